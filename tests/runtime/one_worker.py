"""One worker inside the test's own process and thread, with a clock that moves only when the test says so."""

from __future__ import annotations

import itertools
import pickle
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zmq

import dirigo as dg
from dirigo.flow.plan.plan import Plan
from dirigo.runtime.client.shipment import named_shipment
from dirigo.runtime.control import Install
from dirigo.runtime.transport.authenticator import Refusals
from dirigo.runtime.transport.keys import WORKER, KeyRing
from dirigo.runtime.transport.payload import Schemas
from dirigo.runtime.transport.peers import Peers
from dirigo.runtime.worker import executor
from dirigo.runtime.worker.core import WorkerCore
from dirigo.runtime.worker.executor import Executor
from dirigo.runtime.worker.installed_job import InstalledJob
from dirigo.runtime.worker.last_words import LastWords

_LOOK_S = 1e-6  # each look at the clock takes this long, so that whatever waits for it comes to an end

_handed_over: dict[int, Plan] = {}
_numbers = itertools.count()


def hand_over(number: int) -> Plan:
    return _handed_over.pop(number)


class SamePlan:
    """Becomes the plan of the flow itself when it is read: its functions see what the test sees."""

    def __init__(self, flow: dg.Dataflow) -> None:
        self._number = next(_numbers)
        _handed_over[self._number] = Plan(flow)

    def __reduce__(self) -> Any:
        return (hand_over, (self._number,))


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now = time.time()
        self.began = self.now

    def time(self) -> float:
        self.now += _LOOK_S
        return self.now

    perf_counter = monotonic = time

    def pass_s(self, seconds: float) -> None:
        self.now += seconds


class OneWorker:
    """Runs jobs until their time is over. As a context, it leaves nothing behind."""

    def __init__(self, folder: Path, monkeypatch: Any) -> None:
        self.clock = Clock()
        monkeypatch.setattr(executor, "time", self.clock)
        self._folder = folder
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        schemas = Schemas()
        peers = Peers(self._context, KeyRing().keys_of(WORKER), 0, schemas, time.monotonic)
        self.core = WorkerCore(0, peers, schemas, Refusals("the only worker"), lambda: self.clock.time())
        self._last_words = LastWords(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.core.close()
        self._last_words.close()
        self._context.term()

    def start(self, flow: dg.Dataflow, *, budget_bytes: int = 64 << 20) -> InstalledJob:
        """Install a job and have its sources begin."""
        install = Install(flow.name, pickle.dumps(SamePlan(flow)), (0,), budget_bytes, named_shipment("fifo")[0])
        job = InstalledJob(install, 0, self.core.post_result, self.core.schemas, self._folder)
        self.core.add(job)
        job.is_started = True
        return job

    def run(self, seconds: float) -> None:
        """Let the worker thread, which is this one, work for so long by the clock."""
        end = self.clock.now + seconds
        look = self.clock.time

        def time_and_end() -> float:
            now = look()
            if now >= end:
                self.core.is_stopping = True
            return now

        self.clock.time = time_and_end  # type: ignore[method-assign]
        self.core.is_stopping = False
        self.core.wait_for_work = self.clock.pass_s  # type: ignore[method-assign]
        try:
            Executor(self.core, self._last_words).run()
        finally:
            self.clock.time = look  # type: ignore[method-assign]
        assert not self.core.reports or "ActorFailed" not in repr(self.core.reports), self.core.reports
