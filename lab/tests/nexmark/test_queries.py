"""Every query gives the rows that DuckDB gives, wherever its events come from and however they are spread."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dirigo import Dataflow, Source, Stream, to_memory
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.nexmark import Generator
from dirigo.scheduling import Fifo
from dirigo.sim.inline import InlineHost
from dirigo.testing import Simulation
from dirigo_lab.nexmark import QUERIES, GeneratedTables, ParquetTables, Tables
from dirigo_lab.nexmark.events import write_events
from dirigo_lab.nexmark.oracles import duckdb_oracle
from dirigo_lab.nexmark.oracles.comparison import difference
from dirigo_lab.nexmark.oracles.queries import QUERIES as WITH_ORACLE
from dirigo_lab.nexmark.queries.joins.q13 import side_input
from nexmark.small_events import auction, bid, odd_tables, random_tables, write_tables

EVENTS, RATE = 20_000, 1_000
# One event a second, for more than a day: every hour of the clock, and midnight.
LONG_EVENTS, LONG_RATE = 90_000, 1
DETERMINISTIC = [name for name, query in QUERIES.items() if query.is_deterministic]
BY_CLOCK_AND_DAY = ["q10", "q14", "q15", "q16", "q17"]


class SplitDataflow(Dataflow):
    """A flow that reads every source in three splits."""

    def source(self, source: Source, *, name: str | None = None, splits: int | None = 3) -> Stream:
        return super().source(source, name=name, splits=splits)


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(EVENTS, RATE, tmp_path_factory.mktemp("events"))


@pytest.fixture(scope="session")
def long_events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(LONG_EVENTS, LONG_RATE, tmp_path_factory.mktemp("long_events"))


def written(events: int, rate: int, directory: Path) -> Path:
    write_events(Generator(rate=rate), events, directory)
    (directory / "side_input").mkdir()
    pq.write_table(side_input(), directory / "side_input" / "part-0.parquet")
    return directory


@pytest.fixture(scope="session")
def disorderly_events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many ties, touching sessions and exact window edges, in no order at all."""
    return write_tables(tmp_path_factory.mktemp("disorderly"), random_tables(seed=2))


@pytest.fixture(scope="session")
def orderly_events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such events in the order of their times, so that windows close while rows come."""
    tables = random_tables(seed=3)
    for kind in ("person", "auction", "bid"):
        tables[kind].sort(key=lambda row: int(row["event_number"]))
    return write_tables(tmp_path_factory.mktemp("orderly"), tables)


@pytest.fixture(scope="session")
def odd_events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = odd_tables(seed=4)
    for kind in ("person", "auction", "bid"):
        tables[kind].sort(key=lambda row: int(row["date_time"]))
    return write_tables(tmp_path_factory.mktemp("odd"), tables)


def answer(name: str, tables: Tables, flow: Dataflow | None = None, rows_max: int = 4096) -> pa.Table:
    flow = flow or Dataflow(name)
    sink = to_memory()
    QUERIES[name].function(flow, tables).sink(sink)
    job = BoundJob(flow)
    job.prepare_sinks()
    InlineHost(job.specs(), Fifo(), time.time).run(job.readers, rows_max)
    return sink.table


def assert_right(name: str, found: pa.Table, events: Path) -> None:
    expected = duckdb_oracle.run(name, events)
    assert expected.num_rows, "a query without rows shows nothing"
    told = difference(expected, found, "DuckDB", "Dirigo")
    assert told is None, told


def test_every_query_is_listed_and_all_but_q12_have_an_oracle() -> None:
    assert tuple(DETERMINISTIC) == WITH_ORACLE
    assert set(QUERIES) - set(WITH_ORACLE) == {"q12"}
    for name, query in QUERIES.items():
        assert query.name == name
        assert query.title


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_a_query_over_generated_events_gives_duckdbs_rows(name: str, events: Path) -> None:
    assert_right(name, answer(name, GeneratedTables(EVENTS, RATE)), events)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_splits_partitions_and_events_out_of_order_do_not_change_the_rows(name: str, events: Path) -> None:
    tables = GeneratedTables(EVENTS, RATE, out_of_order_group=1_000, block_events=2_500)
    assert_right(name, answer(name, tables, SplitDataflow(name, partitions=3)), events)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_ties_and_edges_are_decided_as_by_duckdb(name: str, disorderly_events: Path, orderly_events: Path) -> None:
    whole_time = ParquetTables(disorderly_events, out_of_orderness="2d")
    assert_right(name, answer(name, whole_time), disorderly_events)
    assert_right(name, answer(name, ParquetTables(orderly_events), rows_max=20), orderly_events)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_nulls_short_urls_and_persons_who_register_twice_are_as_in_duckdb(name: str, odd_events: Path) -> None:
    assert_right(name, answer(name, ParquetTables(odd_events), rows_max=20), odd_events)


@pytest.mark.parametrize("name", ["q6", "q9"])
def test_the_event_number_decides_between_bids_at_the_same_time(name: str, tmp_path: Path) -> None:
    noon = 1_436_961_600_000
    auctions = [auction(number, noon, noon + 1_000, number, seller=7) for number in (1, 2, 3)]
    bids = [
        bid(2, 50, 300, noon + 5, 14),  # won: the same price at the same time, but an earlier number
        bid(2, 51, 300, noon + 5, 15),
        bid(3, 52, 500, noon + 5, 12),  # three sales of one seller at the same time, in the order of the numbers
        bid(1, 53, 100, noon + 5, 13),
        bid(1, 54, 100, noon + 5, 16),
    ]
    for turn in range(len(bids)):
        events = write_tables(tmp_path / str(turn), {"auction": auctions, "bid": bids[turn:] + bids[:turn]})
        found = answer(name, ParquetTables(events))
        assert_right(name, found, events)
        if name == "q9":
            assert sorted(zip(found["id"].to_pylist(), found["bidder"].to_pylist(), strict=True)) == [
                (1, 53),
                (2, 50),
                (3, 52),
            ]
        else:
            assert sorted(found["avg_price"].to_pylist()) == [300.0, 300.0, 500.0]


@pytest.mark.parametrize("name", ["q2", "q4", "q7", "q8", "q20"])
def test_a_query_over_events_in_files_gives_the_same_rows(name: str, events: Path) -> None:
    assert_right(name, answer(name, ParquetTables(events)), events)


@pytest.mark.parametrize("name", BY_CLOCK_AND_DAY)
def test_what_depends_on_the_hour_and_the_day_is_right_all_day_and_past_midnight(name: str, long_events: Path) -> None:
    assert_right(name, answer(name, GeneratedTables(LONG_EVENTS, LONG_RATE)), long_events)


def test_the_long_events_reach_every_kind_of_hour_and_two_days() -> None:
    kinds = answer("q14", GeneratedTables(LONG_EVENTS, LONG_RATE))["bid_time_type"].unique().to_pylist()
    assert sorted(kinds) == ["dayTime", "nightTime", "otherTime"]
    days = answer("q15", GeneratedTables(LONG_EVENTS, LONG_RATE))["day"].to_pylist()
    assert sorted(days) == ["2015-07-15", "2015-07-16"]


@pytest.mark.parametrize("name", ["q3", "q5", "q6", "q7", "q8", "q11", "q16", "q19"])
def test_three_workers_in_chaos_give_the_same_rows(name: str, events: Path) -> None:
    flow = SplitDataflow(name)
    QUERIES[name].function(flow, GeneratedTables(EVENTS, RATE, block_events=1_000)).sink(to_memory())
    simulation = Simulation(flow, workers=3, chaos=True, seed=5, rows_max=500).finish()
    if name not in ("q3", "q8"):  # few messages: perhaps none of them moves
        assert simulation.elsewhere, "nothing ran at another worker, so this shows nothing"
    assert_right(name, simulation.table(), events)


@pytest.mark.parametrize("name", ["q1", "q14"])
def test_converted_prices_are_exact_decimals(name: str) -> None:
    found = answer(name, GeneratedTables(1_000))
    assert found.schema.field("price").type == pa.decimal128(23, 3)


# --- q12 -------------------------------------------------------------------------------------------------------------------


def test_windows_of_processing_time_count_every_bid_once_and_do_not_overlap() -> None:
    flow = Dataflow("q12")
    QUERIES["q12"].function(flow, GeneratedTables(EVENTS, RATE)).sink(to_memory())
    found = Simulation(flow, workers=2, rows_max=500).finish().table()
    assert found.column_names == ["bidder", "bid_count", "starttime", "endtime"]
    bids = Generator(rate=RATE).bids(0, EVENTS, ["bidder"]).column("bidder").to_pylist()
    counted: Counter[int] = Counter()
    windows: dict[int, list[tuple[float, float]]] = {}
    for row in found.to_pylist():
        counted[row["bidder"]] += row["bid_count"]
        start, end = row["starttime"].timestamp(), row["endtime"].timestamp()
        assert end - start == 10
        assert start % 10 == 0
        windows.setdefault(row["bidder"], []).append((start, end))
    assert counted == Counter(bids)
    for its_windows in windows.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(its_windows)))
    # 20 s of events go by in 20 s of the simulated clock.
    assert len({window for its_windows in windows.values() for window in its_windows}) >= 2
