"""Every deterministic query against two engines that we did not write, as it is and under chaos.

A sample runs with the tests; all seeds run with ``make acceptance`` (the marker ``acceptance``).
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from dirigo import Dataflow, to_memory
from dirigo.nexmark.generator import Generator
from dirigo.testing import Simulation
from dirigo_lab.nexmark.check import write_side_input
from dirigo_lab.nexmark.events import write_events
from dirigo_lab.nexmark.oracles import comparison, duckdb_oracle, spark_oracle
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.tables import GeneratedTables

EVENTS, RATE = 20_000, 200  # one hundred seconds: ten windows of 10 s
ROWS_MAX = 600
WORKERS = 3
DETERMINISTIC = [name for name, query in QUERIES.items() if query.is_deterministic]


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("events")
    write_events(Generator(rate=RATE), EVENTS, directory)
    write_side_input(directory)
    return directory


@cache
def expected(name: str, events: Path) -> pa.Table:
    return duckdb_oracle.run(name, events)


def simulate(name: str, *, seed: int | None = None) -> Simulation:
    flow = Dataflow(name)
    disorder = 1 if seed is None or seed % 2 else 50  # the same events, in order or out of it
    tables = GeneratedTables(EVENTS, RATE, block_events=1_000, out_of_order_group=disorder)
    QUERIES[name].function(flow, tables).sink(to_memory(name="results"))
    if seed is None:
        return Simulation(flow, rows_max=4096).finish()
    return Simulation(flow, workers=WORKERS, seed=seed, chaos=True, rows_max=ROWS_MAX).finish()


def check(name: str, simulation: Simulation, events: Path) -> None:
    found = comparison.normalise(simulation.table("results"))
    difference = comparison.difference(found, expected(name, events), "dirigo", "duckdb")
    assert difference is None, difference


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_query_in_sequence_equals_duckdb(name: str, events: Path) -> None:
    check(name, simulate(name), events)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_query_under_chaos_equals_duckdb(name: str, events: Path) -> None:
    check(name, simulate(name, seed=100), events)


@pytest.mark.acceptance
def test_duckdb_equals_spark_on_these_events(spark: object, events: Path) -> None:
    differences = {
        name: comparison.difference(expected(name, events), spark_oracle.run(spark, name, events), "duckdb", "spark")
        for name in DETERMINISTIC
    }
    assert {name: difference for name, difference in differences.items() if difference} == {}


@pytest.fixture(scope="module")
def spark() -> Iterator[object]:
    with spark_oracle.local_session() as session:
        yield session


@pytest.mark.acceptance
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_query_under_twenty_kinds_of_chaos_equals_duckdb(name: str, events: Path) -> None:
    elsewhere: Counter[str] = Counter()
    for seed in range(20):
        simulation = simulate(name, seed=seed)
        check(name, simulation, events)
        elsewhere.update(simulation.elsewhere)
    parallel = {stage.name for stage in simulation.job.plan.stages if not stage.is_ordered}
    assert parallel - set(elsewhere) == set(), "operators that never had a lessee"
