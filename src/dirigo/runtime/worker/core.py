"""What the two threads of a worker share, and the lock around it: the kernel, the jobs, and the ways out.

The worker thread runs user code and holds no lock meanwhile; the fetcher brings messages in. Whoever has the lock may drive
the kernel and send what it wants sent, so that a result is on its way as soon as user code returns. Nobody runs user code
while they have it, of whatever kind: see ``user_code``.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable
from random import Random
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.errors import CaptureFailure, OperatorFailure, RowFailure, said
from dirigo.flow.event_time.watermark import Watermark
from dirigo.flow.exchange.payloads import rows_of as rows_of_payload
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.snapshot_barrier import SnapshotBarrier
from dirigo.flow.sources.reader import SourceReader
from dirigo.kernel import (
    Address,
    CriticalRun,
    Data,
    Directory,
    Errand,
    ErrandKind,
    Granularity,
    Kept,
    Message,
    Worker,
    WorkerId,
    job_of,
)
from dirigo.kernel.interface.message import Lane
from dirigo.runtime import control
from dirigo.runtime.failures import cut_failure
from dirigo.runtime.ingest.keeping import RowKeeping
from dirigo.runtime.results.sink import LogSink
from dirigo.runtime.transport.authenticator import Refusals
from dirigo.runtime.transport.payload import PackedPayload, Schemas
from dirigo.runtime.transport.peers import Peers
from dirigo.runtime.transport.signal_socket import SignalSocket
from dirigo.runtime.transport.wire import Broken, Pressure, register_plain
from dirigo.runtime.worker.installed_job import InstalledJob, partition_of
from dirigo.runtime.worker.snapshots.writing import ActorCapture, SnapshotWriting, VoidSnapshot
from dirigo.runtime.worker.user_code import HostedStates
from dirigo.runtime.worker.wake_up import WakeUp
from dirigo.scheduling import Arbiter, StrategyFailure

_log = logging.getLogger(__name__)
_INPUT = Lane.INPUT
BARRIER_TOLD_AFTER_S = 5.0  # a barrier that waits for longer says for whom
_BARRIERS_TOLD_MOST, _MISSING_TOLD_MOST = 16, 4

register_plain(Watermark)  # the most frequent payload of critical messages
register_plain(SnapshotBarrier)


class Result(NamedTuple):
    """Rows on their way to the results log; None at the end of a partition, and where a snapshot cuts it."""

    job: str
    sink: str
    partition: int
    rows: pa.RecordBatch | None
    size: int
    snapshot: int = 0  # its number, at a cut


class WorkerCore:
    """One worker process. Everything but the two wake-ups is used under ``lock``."""

    def __init__(
        self, worker: WorkerId, peers: Peers, schemas: Schemas, refusals: Refusals, clock: Callable[[], float]
    ) -> None:
        self.lock = Lock()
        self.clock: Callable[[], float] = clock
        self.arbiter = Arbiter()
        self.worker = Worker(worker, Directory(), self.arbiter)
        self.worker.rng = Random()
        self.worker.measure = rows_of
        self.worker.defer = self.defer
        self.peers = peers
        self.schemas = schemas
        self.refusals = refusals
        self.jobs: dict[str, InstalledJob] = {}
        self.reports: deque[control.FromWorker] = deque()  # for the controller
        self.results: deque[Result] = deque()  # for the log
        self.errands: deque[Errand] = deque()  # what the worker thread has to do with states
        self.handling: Address | None = None  # whose states it has in hand
        self.to_close: deque[InstalledJob] = deque()  # jobs that are gone, whose sources the worker thread closes
        self.cuts: deque[tuple[InstalledJob, SourceReader, int]] = deque()  # sources to capture, each for a snapshot
        self.commits: deque[tuple[InstalledJob, int]] = deque()  # jobs whose sinks have to commit a snapshot
        self.snapshots = SnapshotWriting(self.report)
        self.rows = RowKeeping()
        self.is_stopping = False
        self.is_idle = False  # the worker thread waits
        self.busy_s = 0.0
        self.messages = 0
        self.running_since: float | None = None  # by the monotonic clock
        self._work = WakeUp()  # for the worker thread
        self.signal = SignalSocket()  # for the fetcher: there are reports or results

    # --- messages ------------------------------------------------------------------------------------------------------

    def deliver(self, messages: Iterable[Message | Pressure | Broken]) -> None:
        """Messages have come from other workers."""
        self.worker.now = self.clock()
        for message in messages:
            if type(message) is Pressure:
                job = self.jobs.get(message.job)
                if job is not None:
                    job.budget.note(message)
                    if message.costs:
                        job.row_costs.note(message.worker, message.costs)
            elif type(message) is Broken:
                self.fail(job_of(message.to), f"a message to {message.to} cannot be read: {message.error}", None)
            else:
                self._receive(message)  # type: ignore[arg-type]
        self.flush()

    def _receive(self, message: Message) -> None:
        job = self.jobs.get(job_of(message.to))
        if job is None:
            self.refusals.counts["messages of jobs that are gone"] += 1
            return
        try:
            self.worker.receive(message)
        except Exception as error:  # a strategy's hooks may raise anything
            self.fail_for(error, job.id)
            return
        if type(message) is Data:
            job.budget.queued += size_of(message.payload)

    def defer(self, errand: Errand) -> bool:
        """Under the lock: have the worker thread handle states, if that may run user code."""
        states = errand.instance.states
        if not isinstance(states, HostedStates) or not states.needs_thread(errand.kind):
            return False
        self.errands.append(errand)
        if self.is_idle:
            self.wake_worker()
        return True

    def next_errand(self) -> Errand | None:
        """Under the lock: of an instance that is still there."""
        while self.errands:
            errand = self.errands.popleft()
            if self.knows(errand):
                self.handling = errand.instance.address
                return errand
        return None

    def knows(self, errand: Errand) -> bool:
        return self.worker.participants.get(errand.instance.address) is errand.instance

    def state_bytes(self, address: Address) -> int:
        """The memory that an actor's states hold here, when last measured; the worker thread measures what is the user's."""
        instance = self.worker.instance(address)
        states = instance.states
        if not isinstance(states, HostedStates) or not states.can_be_measured:
            return 0
        if states.has_changed and not states.is_users and instance.running is None:
            states.measure()
        elif states.has_changed and states.is_users:
            states.has_changed = False  # once is enough, until a message runs again
            self.errands.append(Errand(instance, ErrandKind.SIZE, states.measure, lambda _: None))
            if self.is_idle:
                self.wake_worker()
        return states.held_bytes

    def flush(self) -> None:
        """Carry away what the kernel wants sent; what stays here is handed over at once."""
        worker = self.worker
        own = worker.id
        leaving: list[Message] = []
        while worker.outgoing:
            messages = worker.outgoing[:]
            worker.outgoing.clear()
            for message in messages:
                if type(message) is Data and message.lane is not _INPUT:
                    self._count_as_gone(message)
                if message.worker == own:
                    self._receive(message)
                else:
                    leaving.append(message)
        if leaving:
            jobs = self._note_use(leaving)
            self._weigh()
            for message, error in self.peers.send(leaving):
                trace = "".join(traceback.format_exception(error))
                self.fail(job_of(message.to), f"a message to {message.to} cannot be sent: {error}", trace)
            self._tell_pressure(jobs)
        if self.is_idle:
            self.wake_worker()

    def barriers_waiting(self) -> list[tuple[str, str]]:
        """Barriers here that take long: (job, a sentence that says whom one waits for)."""
        found = []
        for address, since, missing in self.worker.waiting(BARRIER_TOLD_AFTER_S)[:_BARRIERS_TOLD_MOST]:
            if missing:  # otherwise it is just moving on
                job, operator, partition = address.split("/")
                more = f" and {len(missing) - _MISSING_TOLD_MOST} more" if len(missing) > _MISSING_TOLD_MOST else ""
                whom = ", ".join(missing[:_MISSING_TOLD_MOST]).replace(f"{job}/", "")
                waited_s = self.worker.now - since
                found.append((job, f"a barrier at {operator}/{partition} has waited {waited_s:.0f} s for {whom}{more}"))
        return found

    def _weigh(self) -> None:
        """See how much work waits here, to tell others."""
        try:
            self.peers.load = self.arbiter.backlog_s(self.worker)
        except Exception as error:
            self.fail_for(error)

    def tell_load(self) -> None:
        self._weigh()
        self.peers.tell_load()

    def _count_as_gone(self, message: Data) -> None:
        """A message that waited here is handed to another worker."""
        job = self.jobs.get(job_of(message.to))
        if job is not None:
            job.budget.queued -= size_of(message.payload)
            job.figures.forwarded += message.lane is Lane.FORWARD

    def _note_use(self, leaving: list[Message]) -> set[str]:
        """Remember which workers get something of a job: if one is lost, so is what it had of it. The jobs are returned."""
        jobs = set()
        for name, worker in {(job_of(message.to), message.worker) for message in leaving}:
            jobs.add(name)
            job = self.jobs.get(name)
            if job is not None and worker not in job.used:
                job.used.add(worker)
                if worker not in self.peers.by_worker:
                    self.fail(name, _loss((worker,)), None, lost=(worker,))
        return jobs

    def _tell_pressure(self, jobs: set[str]) -> None:
        for name in jobs:
            job = self.jobs.get(name)
            if job is not None:
                self.tell_pressure_of(job)

    def tell_pressure_of(self, job: InstalledJob, *, is_time: bool = False) -> None:
        others = job.source_workers - {self.worker.id}
        if others:
            costs = job.row_costs.news() if is_time else ()
            news = job.budget.news(job.id, self.worker.id, self.under_way(job), is_time, costs)
            if news is not None:
                self.peers.send_pressure(news, others)

    def under_way(self, job: InstalledJob) -> int:
        """Bytes of a job that have left and have not arrived."""
        return self.peers.unacknowledged.get(job.id, 0) + job.posted_bytes - job.logged_bytes

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def add(self, job: InstalledJob) -> None:
        self.arbiter.add_job(job.id, job.strategy_key, job.new_strategy, job.weight)
        self.worker.directory.add_job(job.specs)
        self.jobs[job.id] = job
        for reader in job.readers:
            reader.split.clock = self.clock
        job.sources = {reader.address: self.worker.add_source(reader.address, (reader.target,)) for reader in job.readers}
        for address, kept in job.kept.items():
            self.worker.restore(address, kept)
        job.kept.clear()

    def remove(self, name: str, *, goes_on: bool = False) -> None:
        """``goes_on``: in a later generation, so what its sinks have prepared has to stay."""
        job = self.jobs.pop(name, None)
        if job is None:
            return
        job.goes_on = goes_on
        participants = self.worker.participants
        job.remains = [participants[spec.address] for spec in job.specs if spec.address in participants]
        self.worker.remove_job(name)
        self.schemas.forget_job(name)
        if job.keeps_rows:  # what takes rows in may be waiting for a disk, and this is the fetcher's thread
            self.rows.put(job.close)
        else:
            job.close()
        self.to_close.append(job)
        if self.is_idle:
            self.wake_worker()

    def set_members(self, members: Iterable[control.Member], left: Collection[WorkerId] = ()) -> None:
        """These workers are in the pool now. A job that had sent something to a lost one cannot go on.

        It is not known here what has become of it there: the last results of a lessee may have been on their way to yet
        another worker. Workers that have ``left`` were let go because they had nothing of any job.
        """
        before = {peer.member for peer in self.peers.by_worker.values()}
        self.peers.set_members(members)
        gone = {member.worker for member in before} - {
            worker for worker, peer in self.peers.by_worker.items() if peer.member in before
        }
        if gone:
            lost = gone.difference(left)
            leased = self.worker.leased_to(gone)
            for name, job in list(self.jobs.items()):
                if name in leased or not job.used.isdisjoint(lost):
                    self.fail(name, _loss(gone), None, lost=tuple(sorted(gone)))
                job.used -= gone
        self.count_helpers()

    def users_of(self, worker: WorkerId) -> tuple[str, ...]:
        """The jobs that have sent something from here to another worker."""
        return tuple(name for name, job in self.jobs.items() if worker in job.used)

    def count_helpers(self) -> None:
        """Say who may run messages: members that know all the jobs which have started here."""
        workers = {self.worker.id, *self.peers.by_worker}
        for job in self.jobs.values():
            if job.helpers:
                workers &= job.helpers | {self.worker.id}
        if workers != set(self.worker.workers):
            self.worker.workers = tuple(sorted(workers))

    def look_at_leases(self) -> None:
        """See whether workers that are to leave still have something of a job: they stay until they have not."""
        started = [job for job in self.jobs.values() if job.helpers]
        leaving = {worker for worker in self.peers.by_worker for job in started if worker not in job.helpers}
        lent = {worker: self.worker.leased_to({worker}) for worker in sorted(leaving)}
        for job in self.jobs.values():
            job.figures.helpers_version = job.helpers_version
            job.figures.lent_to = tuple(worker for worker, jobs in lent.items() if job.id in jobs)

    def fail_for(self, error: BaseException, job: str | None = None) -> None:
        """Something has failed: a strategy takes the jobs with it that it serves; otherwise it is the given job, or all."""
        names = error.jobs if isinstance(error, StrategyFailure) else tuple(self.jobs) if job is None else (job,)
        for name in names:
            self.fail(name, *told(error))

    def fail(self, name: str, error: str, trace: str | None, *, lost: tuple[WorkerId, ...] = ()) -> None:
        """A job cannot go on: tell the controller, and do no more for it here. ``lost``: only because these are gone."""
        if name not in self.jobs:
            return
        self.report(control.Removed(name, self.last_figures(name)))
        self.report(control.ActorFailed(name, *cut_failure(error, trace), lost))
        self.remove(name, goes_on=bool(lost) and self.jobs[name].store is not None)

    def last_figures(self, name: str) -> control.JobFigures:
        """What was counted for a job that is about to be removed; nothing if it is not here."""
        job = self.jobs.get(name)
        if job is None:
            return control.JobFigures()
        job.refresh()
        job.figures.rounds, job.figures.gathered = self.worker.rounds.get(name, (0, 0))
        return job.figures

    # --- snapshots -----------------------------------------------------------------------------------------------------

    def begin_snapshot(self, job: InstalledJob, order: control.TakeSnapshot) -> None:
        """Under the lock: have the worker thread capture the sources that are read here."""
        job.rewrite = frozenset(order.rewrite)
        job.read_on()
        job.stops_at = order.number if order.stops else 0
        self.cuts.extend((job, reader, order.number) for reader in job.readers)

    def next_cut(self) -> tuple[InstalledJob, SourceReader, int] | None:
        """Under the lock: a source of a job that is still there."""
        while self.cuts:
            job, reader, number = self.cuts.popleft()
            if self.jobs.get(job.id) is job:
                return job, reader, number
        return None

    def has_captured(self, message: CriticalRun) -> bool:
        """Under the lock: whether a function has been asked for what it keeps, by a snapshot or because it has ended."""
        is_barrier = message.granularity is Granularity.SNAPSHOT
        return is_barrier or self.worker.instance(message.to).context.captured is not None

    def note_captured(self, job: InstalledJob, message: CriticalRun) -> None:
        """Under the lock, before the kernel goes on: what a function has left behind for a snapshot, or at its end."""
        instance = self.worker.lessor(message.to)
        captured, instance.context.captured = instance.context.captured, None
        states = instance.states
        assert isinstance(states, HostedStates)
        is_barrier = message.granularity is Granularity.SNAPSHOT
        number = message.payload.number if is_barrier else 0
        if captured is None:
            self.snapshots.put(VoidSnapshot(job, number))
            return
        is_void = isinstance(captured, CaptureFailure)
        if not is_void:
            job.note_prepared(number, message.to, captured)
            self._mark_log(job, number, message.to)
        kept = instance.keep() if is_barrier and not is_void else Kept(instance.spec.upstreams, ())
        self.snapshots.put(ActorCapture(job, number, message.to, captured, kept, states.changes))

    def _mark_log(self, job: InstalledJob, number: int, address: Address) -> None:
        """Where a snapshot cuts the results: between what was posted before and what will be."""
        operator = job.operators[address]
        if number and isinstance(operator, SinkRows) and isinstance(operator.sink, LogSink):
            self.post_cut(job.id, operator.name, partition_of(address), number)

    def report(self, record: control.FromWorker) -> None:
        self.reports.append(record)
        self.signal.ring()

    def post_result(self, job: str, sink: str, partition: int, rows: pa.RecordBatch | None) -> None:
        """Called by the worker thread, without the lock: a deque's append is safe."""
        size = 0 if rows is None else buffer_bytes(rows)
        installed = self.jobs.get(job)
        if installed is not None:
            installed.posted_bytes += size
        self.results.append(Result(job, sink, partition, rows, size))
        self.signal.ring()

    def post_cut(self, job: str, sink: str, partition: int, snapshot: int) -> None:
        """Tell the results log where a snapshot cuts what this partition has posted. As with ``post_result``."""
        self.results.append(Result(job, sink, partition, None, 0, snapshot))
        self.signal.ring()

    # --- wake-ups ------------------------------------------------------------------------------------------------------

    def wake_worker(self) -> None:
        self.is_idle = False
        self._work.call()

    def wait_for_work(self, seconds: float) -> None:
        """Called by the worker thread, without the lock, after it has set ``is_idle`` under it."""
        self._work.sleep(seconds)

    def close(self) -> None:
        for name in list(self.jobs):
            self.remove(name)
        self.snapshots.stop()
        self.rows.stop()
        self.peers.close()
        self.signal.close()


def _loss(workers: Iterable[WorkerId]) -> str:
    gone = " and ".join(map(str, sorted(workers)))
    return f"worker {gone} is gone, and with it went a part of the states of the job; submit the job again."


def told(failure: BaseException) -> tuple[str, str | None]:
    """What to say of a failure: a sentence, and where it was."""
    if isinstance(failure, StrategyFailure):
        return str(failure), "".join(traceback.format_exception(failure.__cause__ or failure))
    if isinstance(failure, DirigoError):
        has_place = isinstance(failure, RowFailure | OperatorFailure)
        return str(failure), "".join(traceback.format_exception(failure)) if has_place else None
    place = "".join(f". {note}" for note in getattr(failure, "__notes__", ()))
    return f"{said(failure).removesuffix(': ')}{place}", "".join(traceback.format_exception(failure))


def buffer_bytes(batch: pa.RecordBatch) -> int:
    """How much memory a batch keeps. Rows that are sent own theirs (see ``flow.rows.own_memory``)."""
    return int(batch.get_total_buffer_size())


def rows_of(payload: Any) -> int:
    """How many rows a message carries."""
    return payload.rows if type(payload) is PackedPayload else rows_of_payload(payload)


def size_of(payload: Any) -> int:
    """How many bytes wait with a message; what is not made of batches counts as nothing."""
    if type(payload) is PackedPayload:
        return payload.nbytes
    if type(payload) is tuple and len(payload) == 2:
        content = payload[1]
        if isinstance(content, pa.RecordBatch):
            return buffer_bytes(content)
        if type(content) is list:
            return sum(buffer_bytes(each[1]) for each in content if type(each) is tuple)
    return 0
