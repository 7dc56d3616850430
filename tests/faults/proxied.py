"""A cluster of processes whose every connection goes through a proxy. Endpoints are changed where they are told."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from dirigo.runtime import control
from dirigo.runtime.client.client import Client
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.controller.pool import ProcessPool
from dirigo.runtime.worker.process import run_worker
from faults.proxy import Proxy
from runtime.clusters import LocalCluster

Run = Callable[[control.Bootstrap], None]


class ProxiedPool(ProcessPool):
    """Tells its workers of the proxy in place of the controller."""

    def __init__(self, proxy: Proxy, run: Run) -> None:
        super().__init__()
        self._proxy = proxy
        self._run_worker = run

    def start(self, bootstrap: control.Bootstrap) -> None:
        way = self._proxy.through(bootstrap.controller, f"worker {bootstrap.worker} to controller")
        super().start(msgspec.structs.replace(bootstrap, controller=way))

    def _start(self, bootstrap: control.Bootstrap) -> None:
        process: SpawnProcess = self._context.Process(target=self._run_worker, args=(bootstrap,))
        self._processes[bootstrap.worker] = process
        process.start()


class ProxiedController(Controller):
    """Tells workers of the proxy in place of each other and of the log."""

    def put_behind(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.logs.endpoint = proxy.through(self.logs.endpoint, "worker to log")

    def _greet(self, identity: bytes, hello: control.Hello) -> None:
        ways = {
            lane: self._proxy.through(getattr(hello, lane), f"to worker {hello.worker} {lane}")
            for lane in ("control", "data", "ingest")
        }
        super()._greet(identity, msgspec.structs.replace(hello, **ways))


class ProxiedCluster(LocalCluster):
    """A controller in this process, workers in processes of their own, a client, and a proxy between all of them."""

    def __init__(self, folder: Path, workers: int = 2, *, run: Run = run_worker) -> None:
        self.proxy = Proxy()
        self.pool = ProxiedPool(self.proxy, run)
        controller = ProxiedController("proxied", self.pool, workers, logs=folder)
        access = msgspec.structs.replace(
            controller.access,
            controller=self.proxy.through(controller.access.controller, "client to controller"),
            log=self.proxy.through(controller.access.log, "client to log"),
        )
        controller.put_behind(self.proxy)
        self.controller = controller
        self.controller.start()
        self.client = Client(access)
        self._pids: set[int] = set()

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.proxy.__exit__(kind, error, trace)
