"""Two Nexmark queries while connections between any two processes are cut, delayed and half-closed: their rows are right."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dirigo import Dataflow, to_memory
from dirigo.nexmark.generator import Generator
from dirigo_lab.nexmark.events import write_events
from dirigo_lab.nexmark.oracles import comparison, duckdb_oracle
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.tables import GeneratedTables
from faults.proxied import ProxiedCluster
from runtime.clusters import until

NAMES = ("q7", "q12_event")
RATE = 2_000
SECONDS = 100  # that the events take, in real time
EVENTS = RATE * SECONDS
CUTS = 200
KINDS = ("cut", "cut", "half_close", "delay")
WORKERS = 3
PATIENCE_S = 300.0


def flow_of(name: str) -> tuple[Dataflow, Any]:
    flow = Dataflow(name, splits=WORKERS)
    out = to_memory(name="results")
    QUERIES[name].function(flow, GeneratedTables(EVENTS, RATE, in_real_time=True)).sink(out)
    return flow, out


@pytest.mark.acceptance
@pytest.mark.parametrize("seed", [1, 2])
def test_two_queries_give_their_rows_while_200_connections_are_cut(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    with ProxiedCluster(tmp_path / "logs", WORKERS) as cluster:
        before = [(worker.id, worker.incarnation) for worker in cluster.workers()]
        outs, handles = {}, {}
        for name in NAMES:
            flow, outs[name] = flow_of(name)
            handles[name] = cluster.submit(flow, strategy="reject_send_random")
        jobs = [cluster.controller.jobs[handle.id] for handle in handles.values()]
        until(lambda: all(job.state == "running" and job.metrics().rows_in for job in jobs), "both read")
        proxy = cluster.proxy
        number = 0
        while proxy.count("cut", "half_close") < CUTS:
            assert [job.state for job in jobs] == ["running"] * len(NAMES), [job.error for job in jobs]
            number += 1
            kinds = ("blackhole",) if number % 50 == 0 else KINDS
            until(lambda kinds=kinds: proxy.disturb(rng, kinds), "there is a connection")  # type: ignore[misc]
            time.sleep(rng.uniform(0.05, 0.35))
        assert [job.state for job in jobs] == ["running"] * len(NAMES)
        hit = {name for _, name in proxy.done}
        for handle in handles.values():
            handle.wait(PATIENCE_S)
        assert [(worker.id, worker.incarnation) for worker in cluster.workers()] == before, "no worker was lost"
    assert {"worker to log", "client to log", "client to controller"} < hit
    assert {f"worker {worker} to controller" for worker in range(WORKERS)} < hit
    assert {f"to worker {worker} {lane}" for worker in range(WORKERS) for lane in ("control", "data")} < hit
    write_events(Generator(rate=RATE), EVENTS, tmp_path)
    for name in NAMES:
        found = comparison.normalise(outs[name].table)
        difference = comparison.difference(found, duckdb_oracle.run(name, tmp_path), "dirigo", "duckdb")
        assert difference is None, difference
