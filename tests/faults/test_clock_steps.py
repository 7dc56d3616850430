"""The time of day of a worker is set back and forth while jobs run: nothing stands still, and nothing comes too early."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, numbers, until

REAL_TIME = time.time


class SetClock:
    """User code that sets the clock of the worker in which it runs, for all that look at it, as a file says."""

    def __init__(self, folder: Path) -> None:
        self.wanted = str(folder / "wanted")
        self.done = str(folder / "done")

    def __call__(self, row: Any) -> bool:
        with suppress(OSError, ValueError):
            text = Path(self.wanted).read_text()
            step_s = float(text)
            time.time = lambda: REAL_TIME() + step_s
            Path(self.done).write_text(text)
        return True

    def set_by(self, step_s: float) -> None:
        Path(self.wanted).write_text(f"{step_s}")
        until(lambda: Path(self.done).exists() and Path(self.done).read_text() == f"{step_s}", "the clock is set")


@pytest.fixture
def lines() -> Iterator[int]:
    """A server that sends lines all the time: its port."""
    is_over = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            connection, _ = server.accept()
            with connection:
                while not is_over.wait(0.002):
                    connection.sendall(b"a line\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        is_over.set()
        thread.join()


@pytest.mark.parametrize("step_s", [-3600.0, pytest.param(590.0, marks=pytest.mark.acceptance)])
def test_jobs_go_on_when_the_time_of_day_is_set(tmp_path: Path, lines: int, step_s: float) -> None:
    set_clock = SetClock(tmp_path)
    flow = dg.Dataflow("lines")
    source = flow.source(dg.from_socket("127.0.0.1", lines, received=True, time="received"))
    source.filter(set_clock).key_by("line").window(dg.Tumbling("100ms")).aggregate(count=dg.count()).sink(dg.to_memory())
    paced = dg.Dataflow("paced", slo=dg.SLO(latency="5s"))
    source = paced.source(dg.paced(dg.from_generator(numbers, SCHEMA, block=100, time="ts", name="numbers")))
    source.key_by("key").window(dg.Tumbling("100ms", time="processing")).aggregate(count=dg.count()).sink(dg.to_memory())
    with LocalCluster(tmp_path / "logs", workers=1) as cluster:
        jobs = [cluster.submit(flow), cluster.submit(paced)]
        for step in (step_s, 0.0, min(-step_s, 590.0), step_s):
            before = [job.metrics() for job in jobs]
            began_s = time.monotonic()
            set_clock.set_by(step)
            for job, metrics in zip(jobs, before, strict=True):
                until(lambda: job.metrics().rows_in > metrics.rows_in + 50, f"rows of {job.name} go on")  # noqa: B023
                until(lambda: job.metrics().rows_out > metrics.rows_out, f"results of {job.name} go on")  # noqa: B023
            passed_s = time.monotonic() - began_s
            came = jobs[1].metrics().rows_in - before[1].rows_in  # a thousand are due each second, since the last beat
            assert came < 1100 * (passed_s + 5.0)
            (worker,) = cluster.workers()
            assert 0 <= worker.busy < 2
            assert 0 <= worker.running_s < PATIENCE_S
        for job in jobs:
            job.drain()
            status = job.wait(PATIENCE_S)
            assert status.metrics.late_rows == 0
            assert 0 <= status.metrics.latency_ms["max"] < 60_000
            assert status.metrics.busy_s > 0
        share = jobs[1].status().metrics.satisfaction.results
        assert share is not None
        assert share > 0.9
