"""A service made of plain processes of this machine: snapshots and recovery are the runtime's, and Spark only adds noise."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dirigo import Dataflow
from dirigo.runtime.client.client import Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.controller.pool import ProcessPool

PATIENCE_S = 120.0


class LocalService:
    """A controller in this process, and workers in processes of their own. As a context, it leaves none behind."""

    def __init__(self, folder: Path, workers: int, every_s: float | None) -> None:
        """``every_s``: how often snapshots are taken; None for a service without a folder for them."""
        self._pool = ProcessPool()
        root = None if every_s is None else str(folder / "snapshots")
        self._controller = Controller(
            "bench", self._pool, workers, logs=folder / "logs", snapshots=root, snapshots_every_s=every_s or 1.0
        )
        self._wanted = workers
        self._controller.start()
        self.client = Client(self._controller.access)

    def __enter__(self) -> Self:
        self.wait_ready()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.close()
        self._controller.stop()
        self._pool.close()

    def wait_ready(self) -> None:
        wait_until(lambda: self._ready() == self._wanted, "all workers are ready")

    def _ready(self) -> int:
        return sum(worker.state == "ready" for worker in self.client.status().workers)

    def kill(self, worker: int) -> float:
        """End a worker as if its machine had lost power; the time of day in milliseconds when that was."""
        pid = next(each.pid for each in self.client.status().workers if each.id == worker)
        now_ms = time.time() * 1000
        os.kill(pid, signal.SIGKILL)
        return now_ms

    def run_s(self, flow: Dataflow) -> float:
        """How long a job runs, until all it has to commit is committed."""
        status = self.client.submit(flow).wait(PATIENCE_S)
        assert status.ended_s is not None
        assert status.started_s is not None
        return status.ended_s - status.started_s

    def submit(self, flow: Dataflow) -> Job:
        return self.client.submit(flow)


def wait_until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"in vain for {PATIENCE_S:g} s: {what}")
        time.sleep(0.01)
