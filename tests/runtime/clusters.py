"""Helpers of the tests of whole clusters: one made of plain processes of this machine, and flows to run on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

import dirigo as dg
from dirigo.runtime.client.client import Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.control import WorkerStatus
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.controller.pool import ProcessPool

T = TypeVar("T")
PATIENCE_S = 60.0  # a test that waits longer has found a hang; how fast things are is not tested


class LocalCluster:
    """A controller in this process, workers in processes of their own, and a client. As a context, it leaves none behind."""

    def __init__(self, folder: Path, workers: int = 2, snapshots: Path | None = None, every_s: float = 0.3) -> None:
        self.pool = ProcessPool()
        root = None if snapshots is None else str(snapshots)
        self.controller = Controller("tests", self.pool, workers, logs=folder, snapshots=root, snapshots_every_s=every_s)
        self.controller.start()
        self.client = Client(self.controller.access)
        self._pids: set[int] = set()

    def __enter__(self) -> Self:
        self.until_ready()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._note_pids()
        finally:
            self.client.close()
            self.controller.stop()
            self.pool.close()
        assert not [pid for pid in self._pids if is_alive(pid)]

    def _note_pids(self) -> None:
        self._pids |= {worker.pid for worker in self.client.status().workers if worker.pid}

    def workers(self) -> list[WorkerStatus]:
        return list(self.client.status().workers)

    def worker(self, number: int) -> WorkerStatus:
        return next(worker for worker in self.workers() if worker.id == number)

    def until_ready(self) -> None:
        wanted = self.controller.wanted
        until(lambda: [worker.state for worker in self.workers()] == ["ready"] * wanted, "all workers are there")
        self._note_pids()

    def kill(self, number: int) -> WorkerStatus:
        """End a worker as if its machine had lost power."""
        worker = self.worker(number)
        os.kill(worker.pid, 9)
        return worker

    def submit(self, flow: dg.Dataflow, **options: Any) -> Job:
        return self.client.submit(flow, **options)

    def run(self, flow: dg.Dataflow, **options: Any) -> Job:
        handle = self.submit(flow, **options)
        handle.wait(PATIENCE_S)
        return handle


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """Wait for something to become true."""
    end = time.monotonic() + patience_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.02)


def wait_for_file(path: str) -> None:
    """For user code that is to go on when the test says so."""
    until(Path(path).exists, "the test lets it go on")


SCHEMA = pa.schema([("n", pa.int64()), ("key", pa.int64()), ("ts", pa.int64())])


def numbers(first: int, count: int) -> pa.RecordBatch:
    """Rows n with a key and a time of n milliseconds."""
    values = pa.array(range(first, first + count), pa.int64())
    keys = pa.array([n % 13 for n in range(first, first + count)], pa.int64())
    return pa.record_batch([values, keys, values], schema=SCHEMA)


def counting(
    name: str = "counting", rows: int | None = 20_000, *, splits: int = 2, block: int = 1_000, sink: Any = None
) -> tuple[dg.Dataflow, Any]:
    """A flow that counts and adds up numbers per key and second, and what collects its rows."""
    flow = dg.Dataflow(name)
    out = dg.to_memory() if sink is None else sink
    source = flow.source(dg.from_generator(numbers, SCHEMA, rows, block=block, time="ts", name="numbers"), splits=splits)
    windows = source.key_by("key").window(dg.Tumbling("1s"))
    windows.aggregate(count=dg.count(), total=dg.sum("n")).sink(out)
    return flow, out


def mapped(
    function: Callable[[Any], Any], name: str = "mapped", rows: int | None = 1_000, **options: Any
) -> tuple[Any, Any]:
    """A flow with a function of a row in it, and what collects its rows."""
    flow = dg.Dataflow(name)
    out = dg.to_memory()
    source = flow.source(dg.from_generator(numbers, SCHEMA, rows, block=100, time="ts", name="numbers"), **options)
    source.map(function, schema={"n": "int64"}).sink(out)
    return flow, out


def sorted_rows(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)
