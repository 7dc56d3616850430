"""A pool of workers on Spark, and the controller beside it: what users start, submit jobs to, and stop."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from dirigo.flow.api.duration import Duration, positive_milliseconds
from dirigo.flow.api.strategy import strategy_of
from dirigo.runtime.control import Bootstrap
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.errors import ControlError
from dirigo.runtime.folders import SUCCEEDED_WITHIN_S, OwnFolder, remove_abandoned
from dirigo.runtime.results.server import RETAIN_BYTES, RETAIN_S
from dirigo.runtime.snapshots.store import prepare_folder
from dirigo.runtime.threads import OnEscape, ServiceThread
from dirigo.runtime.worker.process import folders_of_run, run_worker
from dirigo.scheduling import DEFAULT, StrategyLike
from dirigo.spark.connection import Service
from dirigo.spark.hosting import WorkerHost
from dirigo.spark.protection import warn_if_unprotected
from dirigo.spark.session import OwnSession, check_session, driver_host, use_this_python, workers_most
from dirigo.spark.sessions import forget

_log = logging.getLogger(__name__)

# For workers to leave in order when the cluster ends: their jobs are cancelled, so nobody waits for what they still do. One
# that is kept by code of a user would end itself some seconds later, and Spark, which knows of no end, start it again.
_LEAVE_S = 1.0
_FREED_S = 1.0  # for processes that Spark has ended to let go of their folders


class Cluster(Service):
    """A service inside this process: workers on the executors of a Spark session, ready for jobs.

    Without a session, Spark is started inside this process. Use it in a `with` statement, or call `stop()`.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        spark: Any = None,
        master: str | None = None,
        name: str = "dirigo",
        strategy: StrategyLike = DEFAULT,
        host: str | None = None,
        logs: str | Path | None = None,
        retain_bytes: int = RETAIN_BYTES,
        retain_s: float = RETAIN_S,
        snapshots: str | Path | None = None,
        every: Duration = "10s",
    ) -> None:
        """Start a cluster of `workers`, by default as many as this machine has cores.

        `spark`: a session of yours, classic or Spark Connect, which is left running. `master`: where to start a session of
        our own, if not on this machine. `strategy`: what schedules jobs that do not bring one of their own: a name such as
        "reject_send" or "fifo", "module:Class", or a `Strategy`. `host`: the address by which executors reach this process.
        `logs`: the folder for results logs, deleted at the end if none is given; of each sink at most `retain_bytes` are
        kept, for `retain_s`. What earlier clusters left there stays readable as long.

        `snapshots`: a folder, or a URI such as "s3://bucket/folder", for snapshots of the jobs, taken `every` so often. Jobs
        then come back after the loss of a worker, and what they write is committed with each snapshot. Jobs that a cluster
        was running when it died are resumed by the next one with the same folder; give it the same `logs`, too.
        """
        if workers is None:
            workers = os.cpu_count() or 1
        if workers < 1:
            raise ControlError(f"a cluster of {workers} workers does nothing; ask for 1 or more.")
        if spark is not None and master is not None:
            raise ControlError("a session has its master already; give spark= or master=, not both.")
        strategy = strategy_of(strategy)  # before anything is started
        every_s = positive_milliseconds(every, "every") / 1000
        self._own_session = OwnSession(workers, master) if spark is None else None
        remove_abandoned(gone_for_s=SUCCEEDED_WITHIN_S)  # what processes that were killed have left
        self._logs = OwnFolder("logs") if logs is None else None
        self._controller: Controller | None = None
        self._host: WorkerHost | None = None
        self._is_stopped = self._is_connected = False
        try:
            self.spark = spark if self._own_session is None else self._own_session.start()
            check_session(self.spark, workers)
            warn_if_unprotected(self.spark)
            use_this_python(self.spark)
            folder = self._logs.path if self._logs is not None else Path(logs or "")
            self._host = WorkerHost(self.spark, run_worker, self._note_failure)
            self._controller = Controller(
                name,
                SparkPool(self._host, self._note_failure, workers_most(self.spark)),
                workers,
                host=host or driver_host(self.spark),
                logs=folder.absolute(),
                strategy=strategy,
                retain_bytes=retain_bytes,
                retain_s=retain_s,
                snapshots=None if snapshots is None else _folder_of_snapshots(snapshots),
                snapshots_every_s=every_s,
            )
            self._controller.start()
            super().__init__(self._controller.access, name, why_silent=self._why_silent)
            self._is_connected = True
            self.register(self.spark)
        except BaseException:
            self.stop()
            raise
        atexit.register(self.stop)

    # --- the end -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End all jobs and workers, and the session if it was started here. Stopping twice does nothing more."""
        if self._is_stopped:
            return
        self._is_stopped = True
        atexit.unregister(self.stop)
        with _all_steps() as step:
            if self._is_connected and self._feeding is not None:
                step(self._feeding.stop)
            if self._controller is not None:
                step(self._controller.stop)
            if self._host is not None:
                step(partial(self._host.stop_all, grace_s=_LEAVE_S))
            if self._is_connected:
                step(self.client.close)
                step(partial(forget, self.access))
            if self._own_session is not None:
                step(self._own_session.stop)
            if self._logs is not None:
                step(self._logs.remove)
            if self._controller is not None:  # of workers that were killed, on this machine
                patience_s = _FREED_S if self._own_session is not None else 0.0
                step(partial(remove_abandoned, folders_of_run(self._controller.run_id), patience_s=patience_s))

    def close(self) -> None:
        """The same as `stop`."""
        self.stop()

    @property
    def is_running(self) -> bool:
        is_there = not self._is_stopped and self._controller is not None and self._controller.is_running
        return is_there and self.failure is None

    @property
    def failure(self) -> str | None:
        """Why the cluster cannot go on, in one sentence, should that be so: its jobs have failed, and it takes no others."""
        return None if self._controller is None else self._controller.failure

    def _why_silent(self) -> str | None:
        return None if self._controller is not None and self._controller.is_running else self.failure

    def _note_failure(self, sentence: str) -> None:
        if self._controller is not None and not self._is_stopped:
            self._controller.mark_failed(sentence)


def _folder_of_snapshots(place: str | Path) -> str:
    """The folder by a URI or an absolute path, made if it is not there."""
    uri = str(place) if "://" in str(place) else str(Path(place).absolute())
    prepare_folder(uri)
    return uri


class SparkPool:
    """Spark as the one that starts workers."""

    def __init__(self, host: WorkerHost, on_escape: OnEscape, workers_most: int | None) -> None:
        self._host = host
        self._on_escape = on_escape
        self.workers_most = workers_most

    def start(self, bootstrap: Bootstrap) -> None:
        self._host.start(bootstrap.worker, bootstrap)

    def stop(self, slot: int) -> None:
        self._beside(self._host.stop, slot)

    def interrupt(self, slot: int) -> None:
        self._beside(self._host.interrupt, slot)

    def _beside(self, action: Callable[[int], Any], slot: int) -> None:
        """The controller does not wait for Spark."""
        ServiceThread(self._tried, name=f"{action.__name__} {slot}", on_escape=self._on_escape, args=(action, slot)).start()

    def _tried(self, action: Callable[[int], Any], slot: int) -> None:
        try:
            action(slot)
        except Exception as error:  # if Spark is gone, the threads of the host say so
            _log.warning("Spark could not %s worker %d: %s", action.__name__, slot, error)

    def problem(self, slot: int) -> str | None:
        return self._host.failure(slot)

    def close(self) -> None:
        self._host.stop_all()


@contextmanager
def _all_steps() -> Iterator[Any]:
    """Do all steps of an ending, although one may fail; the first failure is raised at the end."""
    failures: list[BaseException] = []

    def step(action: Any) -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    yield step
    if failures:
        raise failures[0]
