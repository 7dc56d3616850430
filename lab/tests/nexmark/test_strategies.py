"""Every deterministic query under every strategy gives what another engine gives: where messages run changes no result.

A sample runs with the tests; the whole matrix, in the simulator and on Spark, runs with ``make acceptance``.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dirigo as dg
from dirigo import SLO, Dataflow, to_memory
from dirigo.nexmark.generator import Generator
from dirigo.scheduling import STRATEGIES
from dirigo.sim.service import ServiceTimes
from dirigo.testing import Simulation
from dirigo_lab.nexmark.check import write_side_input
from dirigo_lab.nexmark.events import write_events
from dirigo_lab.nexmark.on_spark import run_on_cluster
from dirigo_lab.nexmark.oracles import comparison, duckdb_oracle
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.tables import GeneratedTables

EVENTS, RATE = 5_000, 100
WORKERS = 3
DETERMINISTIC = [name for name, query in QUERIES.items() if query.is_deterministic]
SCALING = [name for name in STRATEGIES if name not in ("fifo", "edf")]
SERVICE_S = 0.2  # far more than the workers can do in time, so that they have reason to help each other


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("events")
    write_events(Generator(rate=RATE), EVENTS, directory)
    write_side_input(directory)
    return directory


@cache
def expected(name: str, events: Path) -> pa.Table:
    return duckdb_oracle.run(name, events)


def check(name: str, found: pa.Table, events: Path) -> None:
    difference = comparison.difference(comparison.normalise(found), expected(name, events), "dirigo", "duckdb")
    assert difference is None, difference


def simulate(name: str, strategy: str) -> Simulation:
    flow = Dataflow(name, slo=SLO(latency="500ms", throughput="20/s"), splits=2)
    tables = GeneratedTables(EVENTS, RATE, block_events=500)
    QUERIES[name].function(flow, tables).sink(to_memory(name="results"))
    service = ServiceTimes(SERVICE_S)
    return Simulation(flow, workers=WORKERS, strategy=strategy, rows_max=20, service=service).finish()


@pytest.mark.parametrize(
    ("name", "strategy"), [(DETERMINISTIC[3 * number % len(DETERMINISTIC)], each) for number, each in enumerate(STRATEGIES)]
)
def test_a_query_under_a_strategy_equals_duckdb(name: str, strategy: str, events: Path) -> None:
    check(name, simulate(name, strategy).table("results"), events)


@pytest.mark.acceptance
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_query_under_every_strategy_equals_duckdb(strategy: str, events: Path) -> None:
    scaled = 0
    for name in DETERMINISTIC:
        simulation = simulate(name, strategy)
        check(name, simulation.table("results"), events)
        scaled += bool(simulation.elsewhere)
    assert (scaled > len(DETERMINISTIC) // 2) == (strategy in SCALING), "or this would show nothing"


@pytest.mark.acceptance
def test_every_query_under_every_strategy_equals_duckdb_on_spark(events: Path, tmp_path: Path) -> None:
    with dg.Cluster(2) as cluster:
        cluster.wait_ready()
        wrong = {}
        for strategy in STRATEGIES:
            for names in (DETERMINISTIC[:12], DETERMINISTIC[12:]):
                results = tmp_path / strategy
                options: dict[str, Any] = {"workers": 2, "strategy": strategy, "slo": SLO(latency="20ms", throughput="1k/s")}
                run_on_cluster(cluster, names, EVENTS, RATE, results, **options)
                for name in names:
                    found = comparison.normalise(pq.read_table(results / name))
                    difference = comparison.difference(found, expected(name, events), "dirigo", "duckdb")
                    if difference is not None:
                        wrong[strategy, name] = difference
    assert wrong == {}
