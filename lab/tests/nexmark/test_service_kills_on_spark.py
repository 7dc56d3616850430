"""The process of a service, or its Java, is killed: the next one of that name goes on, and each row is there once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from statistics import median

import pytest

import dirigo as dg
from dirigo.spark.service import file as service_file
from dirigo.spark.service import service
from dirigo.spark.service.file import RunningService
from nexmark.flows_on_spark import NAMES, SlowTables, answers, assert_rows, flow_of
from runtime.clusters import until
from spark.standalone import java_below

SETTINGS = service.ServiceSettings("killed", 2, snapshots_every="500ms")
PATIENCE_S = 180.0
EVENTS = 40_000
BLOCK_S = 0.03  # blocks of all jobs are read one after the other: they take 40 s, or more
OVER = ("finished", "failed", "cancelled")


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIRIGO_HOME", str(tmp_path / "home"))
        try:
            yield
        finally:
            for name in service_file.living():
                found = service_file.read(name)
                assert found is not None
                service.stop(found)


def process_of(started: RunningService) -> int:
    return started.pid


def java_of(started: RunningService) -> int:
    (java,) = java_below(started.pid)
    return java


def ignore(starting: RunningService | None) -> None:
    """How far it is."""


def start() -> RunningService:
    return service.start(SETTINGS, ignore)


def states(jobs: list[str]) -> list[str]:
    with dg.connect(SETTINGS.name) as connected:
        return [connected.job(job).status().state for job in jobs]


def submitted(folder: Path) -> dict[str, str]:
    """The jobs of all queries, once each has a snapshot: their ids."""
    with dg.connect(SETTINGS.name) as connected:
        tables = SlowTables(EVENTS, speed=None, block_s=BLOCK_S)
        jobs = {name: connected.submit(flow_of(name, folder / "out", tables)[0]) for name in NAMES}
        until(lambda: all(job.status().snapshot for job in jobs.values()), "each job has a snapshot")
        return {name: job.id for name, job in jobs.items()}


def check(folder: Path, victim: Callable[[RunningService], int], seed: int, kills: int) -> str:
    random = Random(seed)
    started = start()
    jobs = submitted(folder)
    back_s: list[float] = []
    for _ in range(kills):
        time.sleep(random.uniform(0.0, 4.0))
        began_s = time.monotonic()
        os.kill(victim(started), signal.SIGKILL)
        until(lambda before=started: not before.lives(), "the service has ended")  # type: ignore[misc]
        started = start()
        until(lambda: set(states(list(jobs.values()))) <= {"running", "draining", *OVER}, "the jobs run again")
        back_s.append(time.monotonic() - began_s)
    with dg.connect(SETTINGS.name) as connected:
        statuses = {name: connected.job(job).wait(PATIENCE_S) for name, job in jobs.items()}
        assert all(status.recoveries >= kills for status in statuses.values())
        results = {name: connected.job(job).results().table for name, job in jobs.items()}
    assert_rows(folder / "out", results, answers(NAMES, EVENTS, folder / "events"))
    return f"{len(back_s)} kills: jobs run again in the next one within {median(back_s):.1f} s, at most {max(back_s):.1f} s"


@pytest.mark.acceptance
@pytest.mark.parametrize("victim", [process_of, java_of])
def test_rows_are_there_once_after_kills_of_the_service(tmp_path: Path, victim: Callable[[RunningService], int]) -> None:
    sys.stderr.write(f"\n{check(tmp_path, victim, 1, kills=5)}\n")
