"""Whoever starts worker processes: Spark, or, where none is needed, this machine itself."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from multiprocessing.context import SpawnProcess
from typing import Protocol
from weakref import WeakSet

from dirigo.runtime.control import Bootstrap
from dirigo.runtime.threads import ServiceThread
from dirigo.runtime.worker.process import run_worker

_log = logging.getLogger(__name__)

_WATCH_S = 0.1
_LAST_S = 8.0


class Pool(Protocol):
    """Starts and ends workers. None of its methods waits for long."""

    @property
    def workers_most(self) -> int | None:
        """How many workers there will ever be room for; None if that may grow."""

    def start(self, bootstrap: Bootstrap) -> None:
        """Have a worker run in this slot, and start it again whenever it ends by itself, until it is stopped."""

    def stop(self, slot: int) -> None:
        """The worker in this slot has been told to go, and is not to be started again."""

    def interrupt(self, slot: int) -> None:
        """End the worker in this slot, which does not answer; it is started again."""

    def problem(self, slot: int) -> str | None:
        """Why the worker in this slot does not come, in one sentence."""

    def close(self) -> None:
        """End all workers; afterwards no process is left."""


_pools: WeakSet[ProcessPool] = WeakSet()


def replace_no_more() -> None:
    """This process is about to end the hard way: from now on no worker is started in the place of one that ends."""
    for pool in list(_pools):
        pool.replace_no_more()


class ProcessPool:
    """Workers as plain processes of this machine: for tests and measurements of the runtime alone."""

    workers_most: int | None = None

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._lock = threading.Lock()
        self._processes: dict[int, SpawnProcess] = {}
        self._bootstraps: dict[int, Bootstrap] = {}  # of the slots that are to have a worker
        self._ends: dict[int, int | None] = {}
        self._is_closed = threading.Event()
        _pools.add(self)
        self._watcher = ServiceThread(self._watch, name="process pool", on_escape=_log.critical)
        self._watcher.start()

    def replace_no_more(self) -> None:
        self._is_closed.set()
        if self._lock.acquire(timeout=1.0):  # whoever was about to start one has done so
            self._bootstraps.clear()
            self._lock.release()

    def start(self, bootstrap: Bootstrap) -> None:
        with self._lock:
            if self._is_closed.is_set():
                return
            self._bootstraps[bootstrap.worker] = bootstrap
            self._start(bootstrap)

    def _start(self, bootstrap: Bootstrap) -> None:
        process = self._processes[bootstrap.worker] = self._context.Process(
            target=run_worker, args=(bootstrap,), name=f"worker {bootstrap.worker}"
        )
        process.start()

    def _watch(self) -> None:
        while not self._is_closed.wait(_WATCH_S):
            with self._lock:
                for slot, bootstrap in self._bootstraps.items():
                    process = self._processes[slot]
                    if not process.is_alive():
                        self._ends[slot] = process.exitcode
                        self._start(bootstrap)

    def stop(self, slot: int) -> None:
        with self._lock:
            self._bootstraps.pop(slot, None)

    def interrupt(self, slot: int) -> None:
        with self._lock:
            self._processes[slot].kill()

    def problem(self, slot: int) -> str | None:
        return f"its process ended with exit code {self._ends[slot]}." if slot in self._ends else None

    def close(self) -> None:
        self._is_closed.set()
        self._watcher.join()
        for process in self._processes.values():
            process.join(_LAST_S)
            if process.is_alive():
                process.kill()
            process.join()
        self._processes.clear()
