"""The thread on the driver that keeps the results logs: workers post batches to it, clients and Spark tasks read from it.

It has a socket of its own, so that results in bulk do not hold up the control plane. Everything from the network is checked
before it takes effect; a batch counts as arrived only when it is in the log, and a job as complete only when its logs are on
disk. What is wrong with one job's results ends that job and no other.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import zmq

from dirigo.runtime.control import Answer, AskedLog, GetLog, LogInfo, Manifest, ReadLog, asked_number
from dirigo.runtime.controller.checks import WAIT_S_MOST, check_request, check_role
from dirigo.runtime.errors import ControlError
from dirigo.runtime.results.epochs import Epochs
from dirigo.runtime.results.log.errors import LogError, reason_of
from dirigo.runtime.results.log.files import make_folder, open_file
from dirigo.runtime.results.log.record import ROWS_MOST
from dirigo.runtime.results.log.store import ResultLog
from dirigo.runtime.results.poster import LogAck, Posted
from dirigo.runtime.results.shelf import Shelf, number_of
from dirigo.runtime.results.sync import SYNC_BYTES, LogSyncing, OnCut
from dirigo.runtime.threads import ServiceThread
from dirigo.runtime.transport.authenticator import Refusals, role_of
from dirigo.runtime.transport.fragments import joined
from dirigo.runtime.transport.keys import WORKER, KeyPair
from dirigo.runtime.transport.link import LinkReceiver
from dirigo.runtime.transport.signal_socket import SignalSocket

_log = logging.getLogger(__name__)
RETAIN_BYTES = 1 << 30  # per sink
RETAIN_S = 86_400.0
_POLL_MS = 50
_AT_ONCE = 64
_EXPIRE_S = 60.0
_READ_BYTES_MOST = 64 << 20
_WAITING_MOST = 10_000
JOBS_KEPT = 200  # that are over, those of earlier runs included
_encoder = msgspec.msgpack.Encoder()
_posted = msgspec.msgpack.Decoder(Posted)
_asked = msgspec.msgpack.Decoder(AskedLog)


class BadRecordError(ValueError):
    """What a worker posted as results cannot be: one sentence without its end."""


@dataclass
class _Reader:
    """Somebody who waits for more."""

    identity: bytes
    number: int
    request: ReadLog
    until_s: float


class LogServer:
    """All results logs of one cluster: those of its jobs, and those that earlier runs left in the same folder."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        own: KeyPair,
        door: str,
        host: str,
        folder: Path,
        refusals: Refusals,
        on_ended: Callable[[str, str | None], None],
        on_broken: Callable[[str], None],
        *,
        on_cut: OnCut | None = None,
        retain_bytes: int,
        retain_s: float,
    ) -> None:
        """`on_ended`: the logs of a job are complete and on disk, or cannot be, for a reason. `on_broken`: a thread of the
        server has ended by an error, so there are no results logs any more. `on_cut`: of a job with snapshots, all rows
        before the cut of this snapshot are on disk, which is at these offsets, by sink. They are called on a thread of the
        server.
        """
        self.folder = folder
        self._refusals = refusals
        self._on_ended = on_ended
        self._limits = {"retain_bytes": retain_bytes, "retain_s": retain_s}
        self._retain_s = retain_s
        self._folder_lock = _alone_in(folder)
        self._lock = threading.Lock()  # around the shelves: the controller adds and closes them
        self._shelves: dict[str, Shelf] = {shelf.job: shelf for shelf in Shelf.find(folder, self._limits)}
        self._runs: dict[str, Shelf] = {}  # by the id of the generation whose records are taken
        self._newest = {shelf.name: shelf.job for shelf in self._shelves.values()}  # job by name
        self.last_number = max(map(number_of, self._shelves), default=0)  # of a submission in an earlier run
        self._senders: dict[tuple[int, int], LinkReceiver] = {}  # by worker and incarnation
        self._readers: list[_Reader] = []
        self._expired_s = time.monotonic()
        self._is_stopping = False
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.router_mandatory = True
        self.socket.router_handover = True  # whoever connects again is the same as before
        own.secure_server(self.socket, door)
        self.endpoint = f"tcp://{host}:{self.socket.bind_to_random_port(f'tcp://{host}')}"
        self._shown = SignalSocket()  # readers that wait may be served
        self._syncing = LogSyncing(
            self._shelves, self._lock, lambda job: self._on_ended(job, None), self._give_up, self._shown.ring, on_cut
        )
        self._thread = ServiceThread(self._run, name="results log", on_escape=on_broken)
        self._sync_thread = ServiceThread(self._syncing.run, name="results log, syncing", on_escape=on_broken)

    def start(self) -> None:
        """Begin to serve. Jobs of an earlier run that go on must have been resumed before."""
        for shelf in self._shelves.values():
            if shelf.may_go_on:
                shelf.cut_short()
        self._expire(is_first=True)
        self._thread.start()
        self._sync_thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        if self._thread.is_alive():
            self._thread.join()
        self._syncing.stop()
        if self._sync_thread.is_alive():
            self._sync_thread.join()
        with self._lock:
            for shelf in self._shelves.values():
                shelf.let_go()
        self.socket.close(0)
        self._shown.close()
        os.close(self._folder_lock)

    # --- for the controller --------------------------------------------------------------------------------------------

    def set_members(self, members: Iterable[tuple[int, int]]) -> None:
        """The workers, with their incarnations, whose results are taken."""
        before = self._senders
        self._senders = {member: before.get(member) or LinkReceiver() for member in members}

    def add(self, job: str, name: str, manifest: Manifest, *, holds_back: bool = False) -> None:
        """Begin the logs of a job. `holds_back`: its rows become visible when a snapshot with them is committed."""
        shelf = Shelf.begin(self.folder, job, name, manifest, self._limits, holds_back=holds_back)
        with self._lock:
            self._shelves[job] = shelf
            self._runs[job] = shelf
            self._newest[name] = job
            over = [each for each in self._shelves.values() if each.is_settled]
        for each in over[: max(0, len(over) - JOBS_KEPT)]:
            self.remove(each.job)

    def resume(self, job: str, cuts: Mapping[str, int] | None, run: str, ended: Mapping[str, Collection[int]]) -> None:
        """Go on with the logs of a job of an earlier run, before ``start``: see ``roll_back``."""
        shelf = self._shelves.get(job)
        if shelf is None or not shelf.may_go_on:
            raise LogError(f"There are no results of job '{job}' that can be gone on with; submit it again.")
        shelf.resume(cuts, run, ended)
        self._runs[run] = shelf
        self._syncing.ask(job)

    def commit(self, job: str, snapshot: int) -> None:
        """Readers see what this snapshot covers, as soon as that is noted on disk. Asked again, it changes nothing."""
        with self._lock:
            shelf = self._shelves.get(job)
            if shelf is None or shelf.is_closed:
                return
            if not shelf.commit(snapshot):
                _log.warning("snapshot %d of job %s was committed, and has no cut through its results", snapshot, job)
                return
        self._syncing.ask(job)

    def cuts(self, job: str, snapshot: int) -> dict[str, int] | None:
        """Where a snapshot cuts the logs of a job, by sink; None if all that lies before it is not on disk yet.

        Once all partitions of a job have ended, and ``on_ended`` has said so, that is the end of the logs.
        """
        with self._lock:
            shelf = self._shelves.get(job)
            if shelf is None:
                return None
            cut = shelf.cuts.get(snapshot)
            if cut is not None and cut.is_synced:
                return cut.offsets
            return {sink: log.next for sink, log in shelf.logs.items()} if _is_complete(shelf) else None

    def is_shown(self, job: str) -> bool:
        """Whether readers see all that was committed; it is noted on disk before."""
        with self._lock:
            shelf = self._shelves.get(job)
            return shelf is None or shelf.committing is None

    def has_ended(self, job: str) -> bool:
        """Whether all that will come of a job is on disk, in the generation that is running now."""
        with self._lock:
            shelf = self._shelves.get(job)
            return shelf is not None and _is_complete(shelf)

    def roll_back(self, job: str, cuts: Mapping[str, int] | None, run: str, ended: Mapping[str, Collection[int]]) -> None:
        """Begin another generation of a job that holds back, at a committed snapshot, or without one from the beginning.

        `cuts`: where that snapshot cut the logs, by sink. `run`: the id of the generation; records of earlier ones are not
        taken any more. `ended`: partitions of sinks that had ended then. A ``LogError`` says why it cannot be.
        """
        with self._lock:
            shelf = self._shelves.get(job)
            if shelf is None or shelf.is_closed:
                raise LogError(f"There are no results of job '{job}' that can be gone on with; submit it again.")
            self._runs.pop(shelf.run, None)
            shelf.roll_back(cuts, run, ended)
            self._runs[run] = shelf
        self._syncing.ask(job)

    def close_job(self, job: str, failed: str | None, *, goes_on: bool = False, is_cut: bool = False) -> None:
        """Nothing more will come; what is there stays readable. Of a job that holds back, that is what was committed.

        If it has finished, it is everything, but for one that `is_cut`, at a savepoint. `goes_on`: only this cluster ends;
        the next one resumes the job.
        """
        with self._lock:
            shelf = self._shelves.get(job)
            if shelf is None:
                return
            is_whole = failed is None and not is_cut and shelf.have_all_ended
            if shelf.holds_back and not shelf.is_closed and is_whole:
                shelf.commit_end()
            self._runs.pop(shelf.run, None)
            shelf.goes_on = goes_on and shelf.holds_back
            shelf.close(failed)
        self._syncing.ask(job)

    def remove(self, job: str) -> None:
        """Forget the logs of a job that is long over, with their files."""
        with self._lock:
            shelf = self._shelves.pop(job, None)
            if shelf is not None:
                self._runs.pop(shelf.run, None)
            if shelf is not None and self._newest.get(shelf.name) == job:
                del self._newest[shelf.name]
        if shelf is not None:
            shelf.remove()

    # --- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self._shown.descriptor, zmq.POLLIN)
        while not self._is_stopping:
            ready = dict(poller.poll(_POLL_MS))
            self._shown.silence()
            if self.socket in ready:
                touched: dict[bytes, tuple[int, int]] = {}
                for _ in range(_AT_ONCE):
                    try:
                        frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
                    except zmq.Again:
                        break
                    self._take(joined([frame.bytes for frame in frames]), role_of(frames[-1]), touched)
                for identity, sender in touched.items():
                    self._acknowledge(identity, sender)
            self._serve_waiting()
            self._expire()

    def _expire(self, *, is_first: bool = False) -> None:
        """Logs that nobody writes to age too; those of a job that has been over for long enough go as a whole."""
        now = time.monotonic()
        if now - self._expired_s < _EXPIRE_S and not is_first:
            return
        self._expired_s = now
        too_old_s = time.time() - self._retain_s
        with self._lock:
            for shelf in self._shelves.values():
                for log in shelf.logs.values():
                    with suppress(LogError, OSError):  # next time, perhaps
                        log.expire()
            old = [each.job for each in self._shelves.values() if each.is_settled and (each.ended_s or 0.0) < too_old_s]
        for job in old:
            self.remove(job)

    def _take(self, frames: list[bytes], role: str, touched: dict[bytes, tuple[int, int]]) -> None:
        try:
            if len(frames) == 3:
                if role != WORKER:
                    self._refusals.note("results of somebody who is no worker")
                    return
                posted = _posted.decode(frames[1])
                if (posted.worker, posted.incarnation) not in self._senders:
                    self._refusals.note("results of a worker that is not a member")
                    return
                touched[frames[0]] = (posted.worker, posted.incarnation)
                self._append(posted, frames[2])
            elif len(frames) == 2:
                asked = _asked.decode(frames[1])
                self._answer(frames[0], asked, role)
            else:
                self._refusals.note("a malformed message to the log", f"{len(frames)} frames")
        except (msgspec.DecodeError, ValueError) as error:
            self._refusals.note("a malformed message to the log", str(error))
            number = asked_number(frames[1:])
            if number is not None:
                self._reply(frames[0], number, None, f"this is no request that the results log knows: {error}.")

    def _append(self, posted: Posted, frame: bytes) -> None:
        receiving = self._senders.get((posted.worker, posted.incarnation))
        if receiving is None or not receiving.accept(posted.number, len(frame)):
            return
        with self._lock:
            shelf = self._runs.get(posted.job)
            if shelf is None or shelf.is_closed:
                return  # of a job that was cancelled meanwhile, or of an earlier generation
            try:
                self._keep(shelf, posted, frame)
                return
            except BadRecordError as error:
                self._refusals.note("a bad record for the results log", f"job {posted.job}: {error}")
                why = f"worker {posted.worker} sent a record for sink '{posted.sink}' that is refused: {error}"
            except (LogError, OSError) as error:
                why = f"the results cannot be kept: {error}"
            except Exception as error:  # whatever it is, it is of one job
                _log.exception("a record of job %s cannot be taken", posted.job)
                why = f"the results cannot be kept: {type(error).__name__}: {error}"
        self._give_up(shelf, why)

    def _give_up(self, shelf: Shelf, why: str) -> None:
        """The logs of a job cannot be complete any more, so the job fails; others do not notice."""
        with self._lock:
            shelf.close(why)
        self._on_ended(shelf.job, why)

    def _keep(self, shelf: Shelf, posted: Posted, frame: bytes) -> None:
        """Put a batch into its log, or note the end of a partition. Its log is ended once it is on disk."""
        log, waiting = shelf.logs.get(posted.sink), shelf.open_partitions.get(posted.sink)
        if log is None or waiting is None:
            raise BadRecordError("the job has no such sink")
        if posted.partition not in waiting:
            raise BadRecordError(f"partition {posted.partition} is none, or has ended")
        if shelf.epochs is not None:
            self._keep_apart(shelf.epochs, shelf, posted, frame)
        elif posted.snapshot:
            raise BadRecordError("the job has no snapshots")
        elif posted.rows == -1:
            waiting.discard(posted.partition)
            if not waiting:
                self._syncing.ask(shelf.job)
        else:
            _check_rows(frame, log, posted.rows)
            log.append(frame, posted.rows)
        if log.unsynced_bytes >= SYNC_BYTES:
            self._syncing.ask(shelf.job)

    def _keep_apart(self, epochs: Epochs, shelf: Shelf, posted: Posted, frame: bytes) -> None:
        """What belongs to different snapshots does not mix."""
        channel = (posted.sink, posted.partition)
        if not epochs.takes(channel):
            raise BadRecordError(f"partition {posted.partition} is none, or has ended")
        if posted.rows != -1 and not posted.snapshot:
            _check_rows(frame, shelf.logs[posted.sink], posted.rows)
            epochs.take_rows(channel, frame, posted.rows)
            return
        cuts = len(shelf.cuts)
        if posted.rows == -1:
            epochs.end(channel)
        elif not epochs.cut(channel, posted.snapshot):
            raise BadRecordError(f"snapshot {posted.snapshot} is not behind the last one of partition {posted.partition}")
        if len(shelf.cuts) > cuts or shelf.have_all_ended:
            self._syncing.ask(shelf.job)

    def _acknowledge(self, identity: bytes, sender: tuple[int, int]) -> None:
        receiving = self._senders.get(sender)
        if receiving is None:  # it was lost a moment ago
            return
        self._send(identity, _encoder.encode(LogAck(receiving.last, receiving.is_missing)))
        receiving.told()

    # --- readers -------------------------------------------------------------------------------------------------------

    def _answer(self, identity: bytes, asked: AskedLog, role: str) -> None:
        request = asked.request
        if any(each.identity == identity and each.number == asked.number for each in self._readers):
            self._send(identity, _encoder.encode(Answer(asked.number, is_pending=True)))  # it was asked again
            return
        try:
            check_role(role, request)
            check_request(request)
            if isinstance(request, ReadLog) and request.wait_s > 0 and len(self._readers) < _WAITING_MOST:
                until = time.monotonic() + min(request.wait_s, WAIT_S_MOST)
                self._readers.append(_Reader(identity, asked.number, request, until))
                return  # it is served at once if there is anything
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
        log = shelf.log(sink)
        schema = log.schema.serialize().to_pybytes()
        failed = shelf.failed if shelf.committing is None else None  # rows become visible yet
        return LogInfo(shelf.job, sink, schema, log.first, log.visible, log.ended and shelf.failed is None, failed)

    def _read(self, request: ReadLog) -> list[bytes]:
        shelf = self._shelf(request.job)
        log = shelf.log(self._sink(shelf, request.sink))
        if request.offset >= log.visible:
            return []
        return log.read(request.offset, min(request.bytes_max, _READ_BYTES_MOST))

    def _is_over(self, request: ReadLog) -> bool:
        """Whether nothing more will come for somebody who waits."""
        shelf = self._shelf(request.job)
        return (shelf.is_closed and shelf.committing is None) or shelf.log(request.sink).ended

    def _shelf(self, job: str) -> Shelf:
        shelf = self._shelves.get(self._newest.get(job, job))
        if shelf is None:
            raise ControlError(f"there is no job '{job}' with a results log here; see `dirigo jobs`.")
        return shelf

    def _sink(self, shelf: Shelf, sink: str | None) -> str:
        sinks = shelf.partitions
        names = ", ".join(sinks) or "none"
        if sink is None:
            if len(sinks) != 1:
                raise ControlError(
                    f"job '{shelf.name}' has {len(sinks)} sinks that can be read ({names}); "
                    + ("say which one." if sinks else "end a stream with .sink(to_spark()).")
                )
            return next(iter(sinks))
        if sink not in sinks:
            raise ControlError(f"job '{shelf.name}' has no sink '{sink}' that can be read; it has {names}.")
        return sink

    def _reply(self, identity: bytes, number: int, value: Any, error: str | None = None) -> None:
        self._send(identity, _encoder.encode(Answer(number, value, error)))

    def _send(self, identity: bytes, body: bytes) -> None:
        try:
            self.socket.send_multipart([identity, body], zmq.NOBLOCK)
        except zmq.ZMQError:
            self._refusals.note("an answer to somebody who is gone")


def _is_complete(shelf: Shelf) -> bool:
    """Whether all partitions of a job's sinks have ended, and it is on disk."""
    return shelf.is_told or all(log.ended for log in shelf.logs.values())


def _check_rows(frame: bytes, log: ResultLog, rows: int) -> None:
    """Refuse what is no record batch of a log: whoever reads it later could do nothing about it."""
    if not 0 <= rows <= ROWS_MOST:
        raise BadRecordError(f"it is said to have {rows} rows")
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(frame), log.schema)
        batch.validate()
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise BadRecordError(f"it is no record batch of this sink ({reason})") from None
    if batch.num_rows != rows:
        raise BadRecordError(f"it has {batch.num_rows} rows, and {rows} were announced")


def _alone_in(folder: Path) -> int:
    """Hold the folder, which is one cluster's at a time; the system lets go of it when the process ends."""
    descriptor = -1
    try:
        make_folder(folder)
        descriptor = open_file(folder / "lock")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        why = "another cluster keeps its results there" if isinstance(error, BlockingIOError) else reason_of(error)
        raise LogError(f"Results cannot be kept in '{folder}' ({why}); choose another folder.") from error
    return descriptor
