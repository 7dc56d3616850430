"""Pushing rows from outside to the worker that takes them in: what is said, and the side that pushes.

One attempt goes to one split. Its pushes are numbered, and each is acknowledged once its rows are on the worker's disk; what
is lost with a connection is sent again. The worker's side is ``staging``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, Protocol

import msgspec
import pyarrow as pa
import zmq

from dirigo.errors import DirigoError
from dirigo.runtime.control import AttemptRef, SourcePlaces, SplitPlace
from dirigo.runtime.transport.fragments import cut
from dirigo.runtime.transport.link import RESEND_AFTER_S, LinkSender, SentPacket
from dirigo.runtime.transport.reconnect import connect_again

STAGE, STAGED = b"stage", b"staged"
PUSH_BYTES: Final = 1 << 20
FRAME_ROWS: Final = 1 << 16
_UNACKNOWLEDGED_MOST: Final = 8
_IN_VAIN_MOST: Final = 3  # pushes that are sent again in vain, before the connection is taken for dead
_PATIENCE_S: Final = 60.0
_FAREWELL_MS: Final = 1_000  # how long a closed socket may go on delivering what was sent


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """What is known of when the rows of a micro-batch came, in milliseconds since the epoch."""

    began_ms: int  # when Spark planned the micro-batch: all of its rows had come by then
    oldest_ms: int | None = None  # the oldest event time among them
    every_ms: int = 0  # how often Spark looks for new rows; 0 for as soon as it has done with the last ones


class StagingHeader(msgspec.Struct, frozen=True, array_like=True):
    """One push: which attempt it belongs to, and its sequence number. The frames are record batch messages of Arrow."""

    job: str
    source: str
    split: int
    attempt: str
    number: int
    last: bool
    reached_ms: int | None = None  # the newest event time of a whole micro-batch, which its committer tells every split
    is_dropped: bool = False  # the attempt failed: forget it
    arrival: Arrival | None = None  # of the whole micro-batch, as its committer tells every split


class StagingAck(msgspec.Struct, frozen=True, array_like=True):
    """The rows are staged up to this push, or a sentence says why not. The last one tells the event times of the attempt."""

    attempt: str
    number: int
    error: str | None = None
    newest_ms: int | None = None
    oldest_ms: int | None = None
    is_missing: bool = False  # one that was not due has come: those after this number are wanted again
    has_moved: bool = False  # the error is that another worker takes them in, or soon will


class PushError(DirigoError):
    """Rows could not be brought to their worker. The message is one sentence that says what to do."""


class MovedError(PushError):
    """The rows of the split are taken in elsewhere by now, or will soon be."""


class ClientKeys(Protocol):
    """Whatever lets a socket in: see ``Keys``."""

    def secure_client(self, socket: zmq.Socket[bytes], server_public: str) -> None: ...


class Pusher:
    """Brings the rows of one attempt to one split. Used by one thread, as a context; left by an exception, it drops them."""

    def __init__(
        self,
        places: SourcePlaces,
        place: SplitPlace,
        keys: ClientKeys,
        *,
        patience_s: float = _PATIENCE_S,
        has_moved: Callable[[], bool] | None = None,
    ) -> None:
        """``has_moved``: asked when the worker is silent, whether the split is elsewhere by now."""
        self.attempt = str(uuid.uuid4())
        self.rows = 0
        self.newest_ms: int | None = None  # known when finished
        self.oldest_ms: int | None = None
        self._places = places
        self._place = place
        self._patience_s = patience_s
        self._has_moved = has_moved
        self._frames: list[memoryview] = []
        self._bytes = 0
        self._pushes = 0
        self._sending = LinkSender()  # where push 0 is number 1
        self._gap: int | None = None  # after which push a gap was told last
        self._is_finished = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()  # of our own: a host may fork
        try:
            self._socket = self._context.socket(zmq.DEALER)
            self._socket.linger = 0
            # Without a connection, as after one that was refused, there is nowhere to put a message: sending waits as well.
            send_s = patience_s if has_moved is None else min(patience_s, RESEND_AFTER_S)
            self._socket.sndtimeo = int(send_s * 1000)
            keys.secure_client(self._socket, place.key)
            self._socket.connect(place.endpoint)
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def push(self, batch: pa.RecordBatch) -> None:
        """Rows in the source's own columns. They are sent when enough of them are there."""
        for part in _slices(batch):
            frame = memoryview(part.serialize())
            if self._frames and self._bytes + len(frame) > PUSH_BYTES:
                self._send(is_last=False)
            self._frames.append(frame)
            self._bytes += len(frame)
            self.rows += part.num_rows

    def finish(self, reached_ms: int | None = None, arrival: Arrival | None = None) -> AttemptRef:
        """Send the rest, and wait until all of it is staged."""
        self._send(is_last=True, reached_ms=reached_ms, arrival=arrival)
        while self._sending.kept:
            self._await_acknowledgment()
        self._is_finished = True
        place = self._place
        return AttemptRef(place.worker, place.incarnation, place.split, self.attempt, self.rows)

    def forget(self, attempts: Sequence[str]) -> None:
        """Tell the worker that these attempts will not be released. Best effort: it forgets them by age anyway."""
        places = self._places
        for attempt in attempts:
            header = StagingHeader(
                places.run or places.job, places.source, self._place.split, attempt, 0, last=True, is_dropped=True
            )
            self._socket.send_multipart([STAGE, msgspec.msgpack.encode(header)], zmq.NOBLOCK)
        self._socket.linger = _FAREWELL_MS

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def __enter__(self) -> Pusher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        try:
            if kind is not None and self._pushes and not self._is_finished:
                self.forget([self.attempt])
        except zmq.ZMQError:
            pass  # what is wrong is being raised already
        finally:
            self.close()

    def _send(self, is_last: bool, reached_ms: int | None = None, arrival: Arrival | None = None) -> None:
        while len(self._sending.kept) >= _UNACKNOWLEDGED_MOST:
            self._await_acknowledgment()
        places, split = self._places, self._place.split
        header = StagingHeader(
            places.run or places.job, places.source, split, self.attempt, self._pushes, is_last, reached_ms, arrival=arrival
        )
        self._pushes += 1
        frames = cut([STAGE, msgspec.msgpack.encode(header), *self._frames])
        self._sending.add(SentPacket(self._pushes, frames, ()), time.monotonic())
        self._frames = []
        self._bytes = 0
        self._offer()

    def _offer(self) -> None:
        until = time.monotonic() + self._patience_s
        for parcel in self._sending.unsent():
            while True:
                try:
                    self._socket.send_multipart(parcel.frames)
                    break
                except zmq.Again:
                    if time.monotonic() >= until or self._has_moved is None:
                        raise self._impatience() from None
                    self._look_whether_moved()
            self._sending.next_unsent = parcel.number + 1

    def _look_whether_moved(self) -> None:
        if self._has_moved is not None and self._has_moved():
            raise MovedError(f"Worker {self._place.worker} takes in no rows of split {self._place.split} any more.")

    def _await_acknowledgment(self) -> None:
        """Until one comes. Whatever may have got lost meanwhile is sent again."""
        until = time.monotonic() + self._patience_s
        in_vain = 0
        while not self._socket.poll(int(min(RESEND_AFTER_S, self._patience_s) * 1000)):
            if time.monotonic() >= until:
                raise self._impatience()
            self._look_whether_moved()
            in_vain += 1
            if in_vain % _IN_VAIN_MOST == 0:
                connect_again(self._socket, self._place.endpoint)
            self._sending.resend()
            self._offer()
        kind, body = self._socket.recv_multipart()
        ack = msgspec.msgpack.decode(body, type=StagingAck)
        if kind != STAGED or ack.attempt != self.attempt:
            return
        if ack.error is not None:
            raise MovedError(ack.error) if ack.has_moved else PushError(ack.error)
        self._sending.acknowledge(ack.number + 1, time.monotonic())
        if ack.newest_ms is not None:
            self.newest_ms, self.oldest_ms = ack.newest_ms, ack.oldest_ms
        if ack.is_missing and self._sending.kept and ack.number != self._gap:  # each push behind a gap tells of it
            if self._sending.kept[0].number > ack.number + 2:
                raise PushError("The worker has lost rows that it had staged; Spark has to run the task again.")
            self._gap = ack.number
            self._sending.resend()
            self._offer()

    def _impatience(self) -> PushError:
        return PushError(
            f"Worker {self._place.worker} has not taken in rows for {self._patience_s:g} s; look with"
            " `dirigo cluster status` whether it is there, and run the query again."
        )


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in parts that are small enough for one push, as far as a single row allows."""
    if not batch.num_rows:
        return
    fitting = max(1, batch.num_rows * PUSH_BYTES // max(batch.nbytes, 1))
    step = min(fitting, FRAME_ROWS)
    for first in range(0, batch.num_rows, step):
        yield batch.slice(first, step)
