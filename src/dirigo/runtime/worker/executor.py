"""The worker thread: it executes messages one after the other, and reads sources when there is time for it."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from dirigo.flow.plan.snapshot_barrier import SnapshotBarrier
from dirigo.flow.sources.reader import ReaderCapture, SourceReader
from dirigo.kernel import (
    CriticalOutput,
    CriticalRun,
    Data,
    Errand,
    ErrandKind,
    Granularity,
    Output,
    RunnableMessage,
    job_of,
)
from dirigo.runtime import control
from dirigo.runtime.control import ActorEnded
from dirigo.runtime.worker.core import WorkerCore, size_of, told
from dirigo.runtime.worker.installed_job import ROWS_AT_ONCE, InstalledJob
from dirigo.runtime.worker.last_words import LastWords
from dirigo.runtime.worker.snapshots.writing import SourceCapture
from dirigo.runtime.worker.user_code import HostedStates, do

_log = logging.getLogger(__name__)

SOURCE_EVERY_S = 0.02  # so often sources are read in turn although messages wait: their jobs are not the only ones
PACED_EVERY_S = 0.005  # how often a paced source is polled: polling is cheap, and polling less often delivers rows late
ASK_AGAIN_S = 0.002  # a source that had nothing, and does not know when it will have something
ASK_AT_LEAST_S = 0.05  # one that knows: it might have to tell that it is idle
_IDLE_S = 0.5


Failure = tuple[str, str | None]  # a sentence, and where it was


class JobGone(BaseException):  # raised inside user code, which must not take it for an error of its own
    """The job of the running message was removed."""


class Executor:
    """The loop of the worker thread."""

    def __init__(self, core: WorkerCore, last_words: LastWords) -> None:
        self._core = core
        self._last_words = last_words
        self._thread_id = threading.get_ident()
        self._look_at_s = 0.0  # when to look for a source that is to be read although messages wait
        self._turn = 0  # which job's sources come first
        self._interruption = threading.Lock()
        self._interruptible: str | None = None  # the job whose code runs
        self._interrupted: str | None = None  # the job whose code was told to stop, until it has

    def run(self) -> None:
        """Until the core stops."""
        core = self._core
        message: RunnableMessage | None = None
        elapsed = 0.0
        failure: Failure | None = None
        errand: Errand | None = None
        outcome: Any = None
        while True:
            reading: tuple[InstalledJob, SourceReader] | None = None
            while core.commits:  # first, also of jobs that are gone: what was committed stays
                self._commit(*core.commits.popleft())
            while core.to_close:
                gone = core.to_close.popleft()
                self._guarded(gone.id, gone.close_ends)
            with core.lock:
                if core.is_stopping:
                    return
                now = core.worker.now = core.clock()
                if message is not None:
                    self._finish(message, elapsed, failure)
                    message = None
                elif errand is not None:
                    self._finish_errand(errand, elapsed, outcome, failure)
                    outcome = None
                failure = None
                errand = core.next_errand()
                cut = core.next_cut() if errand is None else None
                if errand is None and cut is None and now >= self._look_at_s:
                    reading = self._choose_source(now, while_messages_wait=True)
                    if reading is None:
                        self._look_at_s = now + ASK_AGAIN_S
                if errand is None and cut is None and reading is None:
                    message = self._choose_message()
                    if message is None:
                        reading = self._choose_source(now, while_messages_wait=False)
                        core.is_idle = reading is None
                elif errand is not None:
                    core.running_since = time.monotonic()
            if message is not None:
                began = time.perf_counter()
                failure = self._apply(message)
                elapsed = time.perf_counter() - began
            elif errand is not None:
                began = time.perf_counter()
                outcome, failure = self._do(errand)
                elapsed = time.perf_counter() - began
            elif cut is not None:
                self._cut(*cut)
            elif reading is not None:
                self._read(*reading)
            else:
                core.wait_for_work(self._patience())

    # --- messages ------------------------------------------------------------------------------------------------------

    def _choose_message(self) -> RunnableMessage | None:
        core = self._core
        try:
            message = core.worker.next()
        except Exception as error:
            core.worker.abandon()  # it may have been chosen before something failed
            core.fail_for(error)
            return None
        core.running_since = None if message is None else time.monotonic()
        return message

    def _apply(self, message: RunnableMessage) -> Failure | None:
        self._last_words.note(message.to)
        failure = self._explained(job_of(message.to), self._core.worker.apply)
        self._last_words.note("")
        return failure

    def _do(self, errand: Errand) -> tuple[Any, Failure | None]:
        """Handle states for a barrier, or measure them."""
        address = errand.instance.address
        outcome: Any = None

        def work() -> None:
            nonlocal outcome
            outcome = do(errand, self._core.schemas)

        self._last_words.note(address)
        failure = self._explained(job_of(address), work)
        self._last_words.note("")
        return outcome, failure

    def _explained(self, job: str, run: Callable[[], None]) -> Failure | None:
        """Run user code; what there is to say if it fails is found out here too, because an error's text is user code."""
        failure = self._guarded(job, run)
        if failure is None:
            return None
        words: list[Failure] = []
        if self._guarded(job, lambda: words.append(told(failure))) is not None or not words:
            return (f"{type(failure).__name__}, which cannot say what happened", None)
        return words[0]

    def _guarded(self, job: str, run: Callable[[], None]) -> BaseException | None:
        """Run user code. An interruption may come at any moment in here, and at none outside."""
        failure: BaseException | None = None
        try:
            self._interruptible = job
            try:
                run()
            except JobGone:
                raise
            except BaseException as error:  # sys.exit() in user code must not end the worker
                failure = error
            with self._interruption:
                self._interruptible = None
                was_interrupted = self._interrupted is not None
            if was_interrupted:
                self._raise_in_worker(None)  # what was to be raised and has not been yet
        except JobGone as gone:
            failure = gone
            self._interruptible = None
        self._interrupted = None
        return failure

    def _finish(self, message: RunnableMessage, elapsed: float, failure: Failure | None) -> None:
        """Under the lock: the outcome of a message that was executed."""
        core = self._core
        core.busy_s += elapsed
        core.messages += 1
        core.running_since = None
        job = core.jobs.get(job_of(message.to))
        if core.worker.running is not message or job is None:
            return  # the job went meanwhile, and the kernel has forgotten the message
        job.figures.busy_s += elapsed
        if failure is not None:
            core.worker.abandon()
            core.fail(job.id, *failure)
            return
        if type(message) is CriticalRun and job.store is not None and core.has_captured(message):
            core.note_captured(job, message)
        try:
            trail = core.worker.finish(elapsed)
        except Exception as error:  # a strategy's hooks may raise anything
            core.worker.abandon()
            core.fail_for(error, job.id)
            return
        rows = core.worker.rows(message)
        job.note_cost(message, rows, elapsed)
        is_result = message.to in job.leaves and type(message) is Data
        job.figures.account.note(message, core.worker.now, trail, rows if is_result else 0)
        if type(message) is Data:
            job.budget.queued -= size_of(message.payload)
        elif job.store is not None or message.to in job.leaves:
            self._look_for_the_end(job, message)  # type: ignore[arg-type]
        core.flush()
        core.tell_pressure_of(job)

    def _finish_errand(self, errand: Errand, elapsed: float, outcome: Any, failure: Failure | None) -> None:
        """Under the lock: the outcome of an errand."""
        core = self._core
        core.busy_s += elapsed
        core.running_since = core.handling = None
        job = core.jobs.get(job_of(errand.instance.address))
        if job is None or not core.knows(errand):
            return  # the job went meanwhile
        job.figures.busy_s += elapsed
        if failure is not None and errand.kind is ErrandKind.SIZE:  # which is no reason to fail
            _log.warning("%s; they are not counted any more", failure[0])
            errand.instance.states.can_be_measured = False  # type: ignore[attr-defined]
            return
        if failure is not None:
            core.fail(job.id, *failure)
            return
        try:
            errand.finish(outcome)
        except Exception as error:  # a strategy's hooks may raise anything
            core.fail_for(error, job.id)
            return
        core.flush()

    def _look_for_the_end(self, job: InstalledJob, message: CriticalRun) -> None:
        is_leaf = message.to in job.leaves
        if is_leaf and job.store is not None:  # then it has ended once its last capture is on the disk
            return
        states = self._core.worker.instance(message.to).states
        if isinstance(states, HostedStates) and states.has_ended():
            self._core.report(ActorEnded(job.id, message.to, is_leaf))

    def interrupt(self, job: str) -> bool:
        """From another thread: stop user code of a job that is gone. Whether there is any to stop."""
        with self._interruption:
            if self._interruptible != job:
                return False
            self._interruptible = None  # once is enough
            self._interrupted = job
            self._raise_in_worker(JobGone)
        return True

    def busy_with(self) -> str | None:
        """The job whose code has been running since it was interrupted."""
        return self._interrupted

    def leftover(self) -> str | None:
        """What has been running since it was interrupted: the actor if that is known, or the job."""
        job, doing = self._interrupted, self._last_words.doing
        return doing if job is not None and job_of(doing) == job else job

    def _raise_in_worker(self, kind: type[BaseException] | None) -> None:
        """Have an exception raised in the worker thread, or none that was to be raised."""
        exception = None if kind is None else ctypes.py_object(kind)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread_id), exception)

    # --- sources -------------------------------------------------------------------------------------------------------

    def _choose_source(self, now: float, *, while_messages_wait: bool) -> tuple[InstalledJob, SourceReader] | None:
        """Under the lock: jobs in turn."""
        core = self._core
        jobs = list(core.jobs.values())
        for number in range(len(jobs)):
            job = jobs[(self._turn + number) % len(jobs)]
            ending = job.next_to_end()
            if ending is not None:
                return job, ending
            under_way = core.under_way(job)
            job.is_paused = bool(job.active) and job.budget.is_over(under_way)
            if job.is_paused:
                continue
            reader = job.next_reader(now, under_way, while_messages_wait=while_messages_wait)
            if reader is not None:
                self._turn += number + 1
                return job, reader
        return None

    def _read(self, job: InstalledJob, reader: SourceReader) -> None:
        core = self._core
        rows_before = reader.rows
        outputs: Sequence[Output | CriticalOutput] = ()
        tightest_s = min((each.latency_s for each in tuple(core.jobs.values())), default=inf)

        def read() -> None:
            nonlocal outputs
            job.cut_messages(reader, tightest_s)
            outputs = job.read(reader, ROWS_AT_ONCE, core.clock())

        core.running_since = time.monotonic()
        self._last_words.note(reader.target)
        began = time.perf_counter()
        failure = self._explained(job.id, read)
        elapsed = time.perf_counter() - began
        self._last_words.note("")
        with core.lock:
            core.running_since = None
            if job.id not in core.jobs:
                return
            job.turn_s[reader.address] = self._next_turn(reader, elapsed)
            job.figures.busy_s += elapsed
            core.busy_s += elapsed
            if failure is not None:
                core.fail(job.id, *failure)
                return
            job.note_read(reader, rows_before)
            if not outputs:
                job.retry_s[reader.address] = _ask_again_at(core.clock(), reader.split.next_due_s)
            source = job.sources[reader.address]
            core.worker.now = core.clock()
            try:
                for emission in outputs:
                    source.emit(emission)
            except Exception as error:
                core.fail_for(error, job.id)
                return
            core.flush()

    def _cut(self, job: InstalledJob, reader: SourceReader, number: int) -> None:
        """Capture where a source is, and have the snapshot's barrier follow what it has given."""
        core = self._core
        if job.is_to_end(reader):  # that was asked for before, so in the snapshot it has ended
            self._read(job, reader)
        captured: ReaderCapture | None = None

        def capture() -> None:
            nonlocal captured
            captured = reader.capture()

        failure = self._explained(job.id, capture)
        with core.lock:
            if job.id not in core.jobs:
                return
            if failure is not None:
                core.fail(job.id, *failure)
                return
            assert captured is not None
            job.note_captured(number, reader, captured.position)
            core.snapshots.put(SourceCapture(job, number, reader.address, captured))
            if number == job.stops_at:
                job.held.add(reader.address)
            if reader.has_ended:
                return
            now = core.worker.now = core.clock()
            barrier = SnapshotBarrier(number)
            try:
                job.sources[reader.address].emit(
                    CriticalOutput(reader.target, barrier, Granularity.SNAPSHOT, created=now, deadline=now + job.latency_s)
                )
            except Exception as error:
                core.fail_for(error, job.id)
                return
            core.flush()

    def _commit(self, job: InstalledJob, number: int) -> None:
        core = self._core
        failure = self._explained(job.id, lambda: job.commit(number))
        if job.keeps_rows:
            core.rows.put(job.covered_rows(number))
        with core.lock:
            if core.jobs.get(job.id) is not job:
                return
            if failure is not None:
                core.fail(job.id, *failure)
            else:
                core.report(control.Committed(job.id, number))

    def _next_turn(self, reader: SourceReader, elapsed: float) -> float:
        """When a source is read again although messages wait. All sources together get half of the time at most."""
        now, due_s = self._core.clock(), reader.split.next_due_s
        sources = sum(len(job.active) for job in self._core.jobs.values())
        if due_s is None:
            return now + max(SOURCE_EVERY_S, elapsed) * sources
        return max(due_s, now + max(PACED_EVERY_S, elapsed * sources))

    def _patience(self) -> float:
        """How long to sleep if nothing comes: sources that had nothing are asked again."""
        now = self._core.clock()
        asked_at = [each for job in tuple(self._core.jobs.values()) for each in job.asked_again_at()]
        # One that could be asked now waits for something else, such as room or a barrier's acknowledgment.
        return min((at - now if at > now else ASK_AGAIN_S for at in asked_at), default=_IDLE_S)


def _ask_again_at(now: float, due_s: float | None) -> float:
    """When to read a source again that had nothing."""
    if due_s is None or due_s <= now:
        return now + ASK_AGAIN_S
    return min(due_s, now + ASK_AT_LEAST_S)
