"""Runs long-lived Dirigo workers on a Spark session: one Spark job of one task per slot, watched by a thread of its own.

What ends a worker, and what then happens (tried with PySpark 4.3 on local, standalone and Connect sessions):

- The Python process dies (SIGKILL, `os._exit`, a segmentation fault) or its executor is lost: Spark runs that task again by
  itself, the other slots go on. It does so `spark.task.maxFailures` times per job (4 in a session of ours, as on a
  cluster by default; 1 on somebody's `local[N]`); then the job fails and the host starts a new one.
- Spark replaces the daemon that forked the process, as it may when somebody's query is cancelled: nothing, see `lifeline`.
- The target raises: the task hands the traceback to the host, which starts a new job after a pause.
- The target returns: its work is done, the slot stays empty.
- `interrupt`: Spark cancels the job at once and kills the Python process about two seconds later, so that for a moment
  the old worker may live beside the new one. The incarnation number on messages is what fences it off.
- Ctrl-C: in a session of ours nothing happens to the workers, so that they can be told to go. In a classic session that is
  not ours, PySpark cancels all jobs, hence kills all workers, before KeyboardInterrupt is raised.
- Java is killed, or the session is stopped: nothing can be started any more. The host says so (``on_spark_gone``), at once
  on a classic session, and after half a minute over Connect, whose server may come back.
- The driver is killed: in local mode and on a standalone cluster all processes are gone in a second or so. Behind Spark
  Connect the tasks stay (still there after 30 s; the server's `spark.connect.execute.manager.detachedTimeout`, 5 minutes,
  is to end them), unless the worker goes because it lost its controller; then nobody starts it again.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import cloudpickle
import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.runtime.threads import OnEscape, ServiceThread
from dirigo.runtime.worker.process import run_worker
from dirigo.spark.failures import Failure, understand
from dirigo.spark.lifeline import tied_to_task
from dirigo.spark.session import is_connect

Target = Callable[[Any], None]

_log = logging.getLogger(__name__)

GRACE_S = 10.0  # for a worker that was told to go
_SCHEMA = "ended string"
_RETURNED = "returned"
_RESTARTS_MOST = 5
_RESTARTS_WINDOW_S = 60.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_FAILURES_KEPT = 20
_INTERRUPT_AGAIN_S = 0.5
_INTERRUPTS_MOST = 120
_GONE_S = 30.0  # a server of Spark Connect that has not answered for so long is taken for gone
_GONE_TIMES = 2  # one broken connection does not mean that Java is gone; a new one that fails as well does


class HostingError(DirigoError):
    """Something that workers on Spark cannot do."""


class WorkerHost:
    """Keeps a target running in each started slot until the slot is stopped; safe to use from several threads.

    `target` is a function that the executors can import (or one that can be pickled); it is called with the payload of its
    slot inside a Spark task and blocks for as long as the worker lives. The payload travels in the pickled task only.
    """

    def __init__(self, spark: Any, target: Target = run_worker, on_spark_gone: OnEscape = _log.critical) -> None:
        """`on_spark_gone` is called with a sentence when nothing can run on the session any more, or this host cannot."""
        self._spark = spark
        self._on_spark_gone = on_spark_gone
        self._target = target
        self._name = f"dirigo-{uuid4().hex[:12]}"
        self._slots: dict[int, _Slot] = {}
        self._leaving: list[_Slot] = []
        self._lock = threading.Lock()

    def start(self, slot: int, payload: object) -> None:
        """Run the target in `slot`, which must be new, stopped, or at its end; returns at once."""
        with self._lock:
            if (old := self._slots.get(slot)) is not None and old.is_alive():
                if not old.stopping.is_set():
                    raise HostingError(f"Worker slot {slot} is in use: stop it before it is started again.")
                self._leaving.append(old)
            self._leaving = [each for each in self._leaving if each.is_alive()]
            name = f"{self._name}-{slot}-{uuid4().hex[:6]}"
            new = self._slots[slot] = _Slot(self._spark, self._target, payload, name, self._on_spark_gone)
            new.start()

    def interrupt(self, slot: int) -> None:
        """Kill the task that now runs in `slot`, if one does; it is started again unless the slot was stopped."""
        self._slot(slot).interrupt()

    def stop(self, slot: int, *, grace_s: float = GRACE_S) -> None:
        """Do not start the target in `slot` again, and kill it if it has not ended after `grace_s`; returns at once.

        Whoever calls this tells the worker to go, before or after.
        """
        self._slot(slot).stop(grace_s)

    def stop_all(self, timeout_s: float = 30.0, *, grace_s: float = GRACE_S) -> None:
        """Stop all slots as `stop` does, and wait; afterwards no thread and no task of this host is left."""
        with self._lock:
            slots = {**self._slots, **{-1 - number: slot for number, slot in enumerate(self._leaving)}}
        until = time.monotonic() + timeout_s
        for slot in slots.values():
            slot.stop(min(grace_s, timeout_s / 2))
        left = [number for number, slot in slots.items() if not slot.join(until)]
        if left:
            raise HostingError(
                f"Spark did not end {len(left)} of {len(slots)} workers within {timeout_s:g} s: stop the Spark session."
            )

    def is_running(self, slot: int) -> bool:
        """Whether there is, or soon will be again, a task in `slot`."""
        with self._lock:
            found = self._slots.get(slot)
        return found is not None and found.is_alive()

    def failure(self, slot: int) -> str | None:
        """Why the task in `slot` ended the last time that nobody wanted it to, in one sentence; None if it never did."""
        failures = self.failures(slot)
        return failures[-1] if failures else None

    def failures(self, slot: int) -> list[str]:
        """The last failures of `slot`, oldest first."""
        with self._lock:
            found = self._slots.get(slot)
        return [] if found is None else [failure.sentence for failure in tuple(found.failures)]

    def gave_up(self, slot: int) -> bool:
        """Whether `slot` failed so often, or so hopelessly, that it is not started again."""
        return self._slot(slot).gave_up

    def _slot(self, slot: int) -> _Slot:
        with self._lock:
            if (found := self._slots.get(slot)) is None:
                raise HostingError(f"There is no worker slot {slot}: it was never started.")
            return found


class _Slot:
    """One slot: a thread that submits one Spark job after the other, and what it remembers of them."""

    def __init__(self, spark: Any, target: Target, payload: object, name: str, on_spark_gone: OnEscape) -> None:
        self.stopping = threading.Event()
        self.failures: deque[Failure] = deque(maxlen=_FAILURES_KEPT)
        self.gave_up = False
        self._jobs = TaggedJobs(spark)
        self._task = _task(cloudpickle.dumps((target, payload)))
        self._spark = spark
        self._name = name
        self._tag = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._on_spark_gone = on_spark_gone
        # Daemons: they end with the session, and must not keep a process alive whose session nobody stops.
        self._runner = ServiceThread(self._keep_running, name=name, on_escape=on_spark_gone)
        self._killer: ServiceThread | None = None

    def start(self) -> None:
        self._runner.start()

    def is_alive(self) -> bool:
        return self._runner.is_alive()

    def interrupt(self) -> None:
        """Cancel the job that runs now."""
        if tag := self._tag:
            self._jobs.cancel(tag)

    def stop(self, grace_s: float) -> None:
        """No job after this one, and this one no longer than `grace_s`."""
        with self._lock:
            self.stopping.set()
            if self._killer is None and self._runner.is_alive():
                self._killer = ServiceThread(
                    self._kill, name=f"{self._name}-end", on_escape=self._on_spark_gone, args=(grace_s,)
                )
                self._killer.start()

    def join(self, until: float) -> bool:
        """Wait for the threads to end; whether they have."""
        for thread in (self._runner, self._killer):
            if thread is not None:
                thread.join(max(0.0, until - time.monotonic()))
        return not self._runner.is_alive()

    def _kill(self, grace_s: float) -> None:
        wait_s = grace_s
        for _ in range(_INTERRUPTS_MOST):
            if self._ended.wait(wait_s):
                return
            # Again and again: a job that is about to be submitted cannot be cancelled yet.
            with suppress(Exception):  # the session may be gone, and with it the job
                self.interrupt()
            wait_s = _INTERRUPT_AGAIN_S

    def _keep_running(self) -> None:
        try:
            self._run_again_and_again()
        finally:
            self._ended.set()

    def _run_again_and_again(self) -> None:
        restarts: deque[float] = deque()
        pause_s = _FIRST_PAUSE_S
        gone: list[float] = []  # when Spark did not answer, since it last did
        run = 0
        while not self.stopping.is_set():
            began = time.monotonic()
            self._tag = f"{self._name}-{run}"  # of its own for each run, so that a late interrupt meets no other
            failure = self._run()
            self._tag = ""
            if failure is None or self.stopping.is_set():
                return
            self.failures.append(failure)
            now = time.monotonic()
            restarts.append(now)
            while restarts[0] < now - _RESTARTS_WINDOW_S:
                restarts.popleft()
            gone = [*gone, now] if failure.is_spark_gone else []
            if failure.is_final or self._is_gone_for_good(gone):
                self.gave_up = True
                if failure.is_spark_gone:
                    self._on_spark_gone(failure.sentence)
                return
            if len(restarts) > _RESTARTS_MOST:
                pause_s = _RESTARTS_WINDOW_S / _RESTARTS_MOST  # it goes on, but no faster than this
            else:
                pause_s = _FIRST_PAUSE_S if now - began > _RESTARTS_WINDOW_S else min(2 * pause_s, _LONGEST_PAUSE_S)
            self.stopping.wait(pause_s)
            run += 1

    def _is_gone_for_good(self, gone: list[float]) -> bool:
        if self._jobs.is_behind_server:
            return bool(gone) and gone[-1] - gone[0] > _GONE_S
        return len(gone) >= _GONE_TIMES

    def _run(self) -> Failure | None:
        """Run the job to its end; None if the target returned."""
        try:
            self._jobs.add_tag(self._tag)
            try:
                rows = self._spark.range(0, 1, 1, 1).mapInArrow(self._task, _SCHEMA).collect()
            finally:
                self._jobs.remove_tag(self._tag)
        except Exception as error:  # whatever Spark may raise, the slot has to go on
            return understand(str(error) or repr(error))
        told = rows[0]["ended"]
        # What a worker could not reach is not Spark, which has just answered.
        return None if told == _RETURNED else understand(told)._replace(is_spark_gone=False)


class TaggedJobs:
    """Names the jobs of a thread so that another thread can cancel them, on classic sessions and over Connect.

    A classic session knows only the tags of the thread that asks (`interruptTag` of another thread's tag does nothing), so
    there the context's tags are used.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._context = None if is_connect(spark) else spark.sparkContext

    @property
    def is_behind_server(self) -> bool:
        """Whether the session is one of Spark Connect."""
        return self._context is None

    def add_tag(self, tag: str) -> None:
        """Tag what this thread runs from now on."""
        if self._context is None:
            self._spark.addTag(tag)
        else:
            self._context.addJobTag(tag)
            self._context.setInterruptOnCancel(True)

    def remove_tag(self, tag: str) -> None:
        """Take the tag away again."""
        if self._context is None:
            self._spark.removeTag(tag)
        elif self._context._jsc is not None:  # a stopped session has no tags
            self._context.removeJobTag(tag)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs with this tag; the Python processes of their tasks are killed."""
        if self._context is None:
            self._spark.interruptTag(tag)
        elif self._context._jsc is not None:
            self._context.cancelJobsWithTag(tag)


def _task(pickled: bytes) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark runs for a slot, with the target and its payload.

    What goes wrong is handed over as a row: Spark would run the task again at once, many times, and lose the words.
    The target is pickled apart, so that this holds for one that cannot be imported, too.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            target, payload = pickle.loads(pickled)
            with tied_to_task():
                target(payload)
            told = _RETURNED
        except Exception:
            told = traceback.format_exc()
        yield pa.RecordBatch.from_pydict({"ended": [told]})

    return run
