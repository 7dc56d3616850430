"""A cluster of plain processes with the face of ``Cluster``: what commands do with a cluster does not depend on Spark."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from dirigo import Dataflow
from dirigo.flow.api.duration import Duration, positive_milliseconds
from dirigo.runtime.client.client import BUDGET_BYTES, Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.controller.pool import ProcessPool
from dirigo.runtime.errors import ControlError
from dirigo.runtime.folders import OwnFolder
from dirigo.runtime.snapshots.store import prepare_folder
from dirigo.scheduling import DEFAULT, StrategyLike


class ProcessCluster:
    """Named to the commands by DIRIGO_CLUSTER_CLASS."""

    def __init__(
        self,
        workers: int | None = None,
        *,
        spark: Any = None,
        master: str | None = None,
        name: str = "dirigo",
        strategy: StrategyLike = DEFAULT,
        host: str | None = None,
        logs: Path | str | None = None,
        snapshots: str | None = None,
        every: Duration = "10s",
    ) -> None:
        if master == "local[nowhere]":
            raise ControlError("there is no Spark at '[red]nowhere[/]'; see its address.")
        if master == "local[broken]":
            raise ValueError("a sentence\nand a [red]second[/] line")
        if master == "local[sudden]":
            os._exit(7)
        if master == "local[slow]":
            time.sleep(60)
        if snapshots is not None:
            prepare_folder(snapshots)
        self._folder = OwnFolder("logs")
        self._pool = ProcessPool()
        self._controller = Controller(
            name,
            self._pool,
            workers or 2,
            logs=Path(logs or self._folder.path),
            host=host or "127.0.0.1",
            strategy=strategy,
            snapshots=snapshots,
            snapshots_every_s=positive_milliseconds(every, "every") / 1000,
        )
        self.access = self._controller.access
        self._controller.start()
        self.client = Client(self.access)
        self._is_doomed = master == "local[doomed]"

    @property
    def is_running(self) -> bool:
        return self._controller.is_running and self.failure is None

    @property
    def failure(self) -> str | None:
        return self._controller.failure

    def wait_ready(self, timeout_s: float = 60) -> None:
        if self._is_doomed:
            threading.Timer(1.5, self._controller.mark_failed, ("Spark does not answer any more.",)).start()
        until = time.monotonic() + timeout_s
        while any(worker.state != "ready" for worker in self.client.status().workers):
            if time.monotonic() >= until:
                raise ControlError("the workers did not come.")
            time.sleep(0.02)

    def submit(
        self,
        flow: Dataflow,
        *,
        name: str | None = None,
        strategy: StrategyLike | None = None,
        budget_bytes: int = BUDGET_BYTES,
        snapshots_every: Duration | None = None,
    ) -> Job:
        return self.client.submit(
            flow, name=name, strategy=strategy, budget_bytes=budget_bytes, snapshots_every=snapshots_every
        )

    def stop(self) -> None:
        self._controller.stop()
        self._pool.close()
        self.client.close()
        self._folder.remove()
