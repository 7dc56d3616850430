"""The thread on the driver that keeps the results logs: workers post batches to it, clients and Spark tasks read from it.

It has a socket of its own, so that results in bulk do not hold up the control plane. Everything from the network is checked
before it takes effect; a batch counts as arrived only when it is in the log.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import zmq

from dirigo.runtime.control import Answer, AskedLog, GetLog, LogInfo, Manifest, ReadLog
from dirigo.runtime.errors import ControlError
from dirigo.runtime.gate import Refusals
from dirigo.runtime.keys import Keys
from dirigo.runtime.link import Receiving
from dirigo.runtime.log.errors import LogError
from dirigo.runtime.log.store import ResultLog
from dirigo.runtime.log_posting import LogAck, Posted

_log = logging.getLogger(__name__)
RETAIN_BYTES = 1 << 30  # per sink
RETAIN_S = 86_400.0
_POLL_MS = 50
_AT_ONCE = 64
_EXPIRE_S = 60.0
_READ_BYTES_MOST = 64 << 20
_WAITING_MOST = 10_000
_encoder = msgspec.msgpack.Encoder()
_posted = msgspec.msgpack.Decoder(Posted)
_asked = msgspec.msgpack.Decoder(AskedLog)


@dataclass
class _Shelf:
    """The logs of one job."""

    job: str
    name: str
    logs: dict[str, ResultLog]
    schemas: dict[str, bytes]
    open_partitions: dict[str, set[int]]
    failed: str | None = None
    is_closed: bool = False  # nothing more is taken


@dataclass
class _Reader:
    """Somebody who waits for more."""

    identity: bytes
    number: int
    request: ReadLog
    until_s: float


class LogServer:
    """All results logs of one cluster."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        keys: Keys,
        host: str,
        folder: Path,
        refusals: Refusals,
        on_ended: Callable[[str, str | None], None],
        *,
        retain_bytes: int,
        retain_s: float,
    ) -> None:
        self.folder = folder
        self._refusals = refusals
        self._on_ended = on_ended  # (job, error): its logs have got everything, or cannot; called on the server's thread
        self._retain_bytes = retain_bytes
        self._retain_s = retain_s
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.router_mandatory = True
        keys.secure_server(self.socket)
        self.endpoint = f"tcp://{host}:{self.socket.bind_to_random_port(f'tcp://{host}')}"
        self._lock = threading.Lock()  # around the shelves: the controller adds and closes them
        self._shelves: dict[str, _Shelf] = {}
        self._newest: dict[str, str] = {}  # job by name
        self._senders: dict[tuple[int, int], Receiving] = {}  # by worker and incarnation
        self._readers: list[_Reader] = []
        self._expired_s = time.monotonic()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="results log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            for shelf in self._shelves.values():
                for log in shelf.logs.values():
                    log.close()
        self.socket.close(0)

    # --- for the controller --------------------------------------------------------------------------------------------

    def set_members(self, members: Iterable[tuple[int, int]]) -> None:
        """The workers, with their incarnations, whose results are taken."""
        before = self._senders
        self._senders = {member: before.get(member) or Receiving() for member in members}

    def add(self, job: str, name: str, manifest: Manifest) -> None:
        """Begin the logs of a job."""
        logs = {
            sink: ResultLog(
                self.folder / job / sink,
                pa.ipc.read_schema(pa.py_buffer(schema)),
                retain_bytes=self._retain_bytes,
                retain_s=self._retain_s,
            )
            for sink, (_, schema) in manifest.sinks.items()
        }
        schemas = {sink: schema for sink, (_, schema) in manifest.sinks.items()}
        open_partitions = {sink: set(range(count)) for sink, (count, _) in manifest.sinks.items()}
        with self._lock:
            self._shelves[job] = _Shelf(job, name, logs, schemas, open_partitions)
            self._newest[name] = job

    def close_job(self, job: str, failed: str | None) -> None:
        """Nothing more will come; what is there stays readable."""
        with self._lock:
            shelf = self._shelves.get(job)
            if shelf is not None and not shelf.is_closed:
                shelf.failed = failed
                shelf.is_closed = True

    def remove(self, job: str) -> None:
        """Forget the logs of a job that is long over, with their files."""
        with self._lock:
            shelf = self._shelves.pop(job, None)
            if shelf is not None:
                if self._newest.get(shelf.name) == job:
                    del self._newest[shelf.name]
                for log in shelf.logs.values():
                    log.close()
                shutil.rmtree(self.folder / job, ignore_errors=True)

    # --- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopping:
            if self.socket.poll(_POLL_MS):
                touched: dict[bytes, tuple[int, int]] = {}
                for _ in range(_AT_ONCE):
                    try:
                        frames = self.socket.recv_multipart(zmq.NOBLOCK)
                    except zmq.Again:
                        break
                    self._take(frames, touched)
                for identity, sender in touched.items():
                    self._acknowledge(identity, sender)
            self._serve_waiting()
            self._expire()

    def _expire(self) -> None:
        """Logs that nobody writes to age too."""
        now = time.monotonic()
        if now - self._expired_s >= _EXPIRE_S:
            self._expired_s = now
            with self._lock:
                for shelf in self._shelves.values():
                    for log in shelf.logs.values():
                        with suppress(LogError, OSError):  # next time, perhaps
                            log.expire()

    def _take(self, frames: list[bytes], touched: dict[bytes, tuple[int, int]]) -> None:
        try:
            if len(frames) == 3:
                posted = _posted.decode(frames[1])
                if (posted.worker, posted.incarnation) not in self._senders:
                    self._refusals.note("results of a worker that is not a member")
                    return
                touched[frames[0]] = (posted.worker, posted.incarnation)
                self._append(posted, frames[2])
            elif len(frames) == 2:
                asked = _asked.decode(frames[1])
                self._answer(frames[0], asked)
            else:
                self._refusals.note("a malformed message to the log", f"{len(frames)} frames")
        except (msgspec.DecodeError, ValueError, pa.ArrowException) as error:
            self._refusals.note("a malformed message to the log", str(error))

    def _append(self, posted: Posted, frame: bytes) -> None:
        receiving = self._senders.get((posted.worker, posted.incarnation))
        if receiving is None or not receiving.accept(posted.number, len(frame)):
            return
        with self._lock:
            shelf = self._shelves.get(posted.job)
            if shelf is None or shelf.is_closed or posted.sink not in shelf.logs:
                return  # of a job that was cancelled meanwhile
            try:
                is_over = self._keep(shelf, posted, frame)
            except (LogError, OSError) as error:
                shelf.failed = f"the results cannot be kept: {error}"
                shelf.is_closed = is_over = True
        if is_over:
            self._on_ended(posted.job, shelf.failed)

    def _keep(self, shelf: _Shelf, posted: Posted, frame: bytes) -> bool:
        """Put a batch into its log, or note the end of a partition; whether all logs of the job are complete now."""
        log, waiting = shelf.logs[posted.sink], shelf.open_partitions[posted.sink]
        if posted.rows >= 0:
            log.append(frame, posted.rows)
            return False
        waiting.discard(posted.partition)
        if not waiting:
            log.end()
        return not any(shelf.open_partitions.values())

    def _acknowledge(self, identity: bytes, sender: tuple[int, int]) -> None:
        receiving = self._senders.get(sender)
        if receiving is None:  # it was lost a moment ago
            return
        self._send(identity, _encoder.encode(LogAck(receiving.last, receiving.is_missing)))
        receiving.told()

    # --- readers -------------------------------------------------------------------------------------------------------

    def _answer(self, identity: bytes, asked: AskedLog) -> None:
        request = asked.request
        if isinstance(request, ReadLog) and request.wait_s > 0 and len(self._readers) < _WAITING_MOST:
            self._readers.append(_Reader(identity, asked.number, request, time.monotonic() + request.wait_s))
            return  # it is served at once if there is anything
        try:
            with self._lock:
                value: Any = self._info(request) if isinstance(request, GetLog) else self._read(request)
            self._reply(identity, asked.number, value)
        except (ControlError, LogError) as error:
            self._reply(identity, asked.number, None, str(error))

    def _serve_waiting(self) -> None:
        if not self._readers:
            return
        now = time.monotonic()
        still: list[_Reader] = []
        for reader in self._readers:
            try:
                with self._lock:
                    frames = self._read(reader.request)
                    is_over = self._is_over(reader.request)
            except (ControlError, LogError) as error:
                self._reply(reader.identity, reader.number, None, str(error))
                continue
            if frames or is_over or now >= reader.until_s:
                self._reply(reader.identity, reader.number, frames)
            else:
                still.append(reader)
        self._readers = still

    def _info(self, request: GetLog) -> LogInfo:
        shelf = self._shelf(request.job)
        sink = self._sink(shelf, request.sink)
        log = shelf.logs[sink]
        return LogInfo(shelf.job, sink, shelf.schemas[sink], log.first, log.next, log.ended, shelf.failed)

    def _read(self, request: ReadLog) -> list[bytes]:
        shelf = self._shelf(request.job)
        log = shelf.logs[self._sink(shelf, request.sink)]
        if request.offset >= log.next:
            return []
        return log.read(request.offset, min(request.bytes_max, _READ_BYTES_MOST))

    def _is_over(self, request: ReadLog) -> bool:
        """Whether nothing more will come for somebody who waits."""
        shelf = self._shelf(request.job)
        return shelf.is_closed or shelf.logs[request.sink].ended

    def _shelf(self, job: str) -> _Shelf:
        shelf = self._shelves.get(self._newest.get(job, job))
        if shelf is None:
            raise ControlError(f"there is no job '{job}' with a results log here; see `dirigo jobs`.")
        return shelf

    def _sink(self, shelf: _Shelf, sink: str | None) -> str:
        names = ", ".join(shelf.logs) or "none"
        if sink is None:
            if len(shelf.logs) != 1:
                raise ControlError(
                    f"job '{shelf.name}' has {len(shelf.logs)} sinks that can be read ({names}); "
                    + ("say which one." if shelf.logs else "end a stream with .sink(to_spark()).")
                )
            return next(iter(shelf.logs))
        if sink not in shelf.logs:
            raise ControlError(f"job '{shelf.name}' has no sink '{sink}' that can be read; it has {names}.")
        return sink

    def _reply(self, identity: bytes, number: int, value: Any, error: str | None = None) -> None:
        self._send(identity, _encoder.encode(Answer(number, value, error)))

    def _send(self, identity: bytes, body: bytes) -> None:
        try:
            self.socket.send_multipart([identity, body], zmq.NOBLOCK)
        except zmq.ZMQError:
            self._refusals.note("an answer to somebody who is gone")
