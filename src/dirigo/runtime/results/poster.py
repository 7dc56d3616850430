"""A worker's way to the results log: batches leave in order, and are kept until the log has them."""

from __future__ import annotations

import time

import msgspec
import zmq

from dirigo.runtime.transport.fragments import cut
from dirigo.runtime.transport.link import LinkSender, SentPacket
from dirigo.runtime.transport.reconnect import connect_again
from dirigo.runtime.worker.core import WorkerCore

_UNDER_WAY_BYTES_MOST = 8 << 20
RECONNECT_AFTER_S = 6.0  # a connection over which no acknowledgment comes may be dead without knowing
LOST_AFTER_S = 30.0
_encoder = msgspec.msgpack.Encoder()


class Posted(msgspec.Struct, frozen=True, array_like=True):
    """What precedes a record batch on its way to the log, or stands for the end of a partition or a cut through it."""

    worker: int
    incarnation: int
    number: int
    job: str
    sink: str
    partition: int
    rows: int  # -1 at the end
    snapshot: int = 0  # above 0: the snapshot of this number cuts the partition here, and there are no rows


class LogAck(msgspec.Struct, frozen=True, array_like=True):
    """The log has everything up to this number."""

    number: int
    is_missing: bool = False


_acks = msgspec.msgpack.Decoder(LogAck)


class LogPosting:
    """Used by the fetcher alone."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self._sending = LinkSender()
        self._under_way = 0
        self._who: tuple[int, int] | None = None
        self._endpoint = ""
        self._connected_s = 0.0

    def connect(self, endpoint: str, worker: int, incarnation: int) -> None:
        if self._who is None:
            self._endpoint = endpoint
            self.socket.connect(endpoint)
            self._who = (worker, incarnation)

    def post(self, core: WorkerCore) -> None:
        """Send what has come since, as much as may be under way at once."""
        if self._who is None:
            return
        results = core.results
        now = time.monotonic()
        while results and self._under_way < _UNDER_WAY_BYTES_MOST:
            job, sink, partition, rows, size, snapshot = results.popleft()
            if job not in core.jobs:
                continue
            body = memoryview(b"") if rows is None else memoryview(rows.serialize())
            count = rows.num_rows if rows is not None else 0 if snapshot else -1
            number = self._sending.last + 1
            head = _encoder.encode(Posted(*self._who, number, job, sink, partition, count, snapshot))
            self._sending.add(SentPacket(number, cut((head, body)), ((job, size),)), now)
            self._under_way += size
        if self._sending.is_stuck(now):
            self._sending.resend()
            self._look(core, now)
        for packet in self._sending.unsent():
            try:
                self.socket.send_multipart(packet.frames, zmq.NOBLOCK)
            except zmq.Again:
                return
            self._sending.next_unsent = packet.number + 1

    def _look(self, core: WorkerCore, now: float) -> None:
        """Nothing was acknowledged for a while: make the connection anew, and at last give up the jobs that wait for it."""
        silent_s = self._sending.silent_s(now)
        if silent_s > RECONNECT_AFTER_S and now - self._connected_s > RECONNECT_AFTER_S:
            self._connected_s = now
            connect_again(self.socket, self._endpoint)
        if silent_s > LOST_AFTER_S:
            jobs = {job for packet in self._sending.kept for job, _ in packet.charges}
            jobs |= {result.job for result in list(core.results)}
            with core.lock:
                for job in jobs:
                    core.fail(
                        job,
                        f"worker {core.worker.id} cannot bring its results to the log at {self._endpoint}; see that its "
                        "host can connect to it, and submit the job again.",
                        None,
                    )

    def receive(self, core: WorkerCore) -> None:
        """Acknowledgments."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                ack = _acks.decode(frames[0])
            except (msgspec.DecodeError, ValueError) as error:
                core.refusals.note("a malformed acknowledgment", str(error))
                continue
            for packet in self._sending.acknowledge(ack.number, time.monotonic()):
                ((name, size),) = packet.charges
                self._under_way -= size
                job = core.jobs.get(name)
                if job is not None:
                    job.logged_bytes += size
            if ack.is_missing:
                self._sending.resend()
