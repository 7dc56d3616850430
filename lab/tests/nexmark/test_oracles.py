"""Both oracles answer as computed by hand, agree with each other on random events, and notice when rows differ."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dirigo.errors import DirigoError
from dirigo_lab.nexmark.oracles import duckdb_oracle, spark_oracle
from dirigo_lab.nexmark.oracles.comparison import difference, normalise
from dirigo_lab.nexmark.oracles.queries import QUERIES
from nexmark.small_events import auction, bid, odd_tables, person, random_tables, write_tables

Answer = Callable[[str, Path], pa.Table]

START = 1_436_918_400_000
# For many tiny queries, compiling and loading large tables of letters cost more than they save.
QUICK_ON_LITTLE_DATA = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.icu.caseMappings.enabled": "false",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_oracle.local_session(QUICK_ON_LITTLE_DATA) as session:
        java = session.sparkContext._gateway.proc
        yield session
    assert java.returncode is not None, "the Java process outlived its session"


@pytest.fixture(params=["duckdb", "spark"])
def answer(request: pytest.FixtureRequest) -> Answer:
    if request.param == "duckdb":
        return duckdb_oracle.run
    session = request.getfixturevalue("spark")
    return lambda query, events: spark_oracle.run(session, query, events)


# --- by hand --------------------------------------------------------------------------------------------------------


def at(second: float) -> int:
    return START + round(second * 1000)


def moment(second: float) -> datetime:
    return datetime.fromtimestamp(START / 1000, UTC) + timedelta(milliseconds=round(second * 1000))


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few enough rows to work out by hand; times on window edges, on expiries, and exactly one session gap apart."""
    tables = {
        "person": [
            person(1, at(9.999), 0, name="Ann"),
            person(2, at(10), 1, name="Bob"),
            person(3, at(3), 2, name="Cat"),
        ],
        "auction": [
            auction(1, at(0), at(20), 3, seller=1),
            auction(2, at(0), at(10), 4, seller=1),
            auction(3, at(5), at(12), 5, seller=2),
            auction(4, at(11), at(30), 6, seller=2),
            auction(5, at(10), at(30), 7, seller=3),
        ],
        "bid": [
            bid(1, 7, 100, at(0), 10),
            bid(1, 7, 300, at(9.999), 11),
            bid(2, 7, 200, at(10), 13),
            bid(2, 8, 200, at(10), 12),
            bid(3, 7, 500, at(20), 14),
            bid(3, 8, 50, at(5), 15),
            bid(1, 8, 300, at(20.001), 16),
            bid(1, 9, 300, at(20), 17),
        ],
    }
    return write_tables(tmp_path_factory.mktemp("by-hand"), tables)


def rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a table as tuples, of all columns or of the given ones."""
    chosen = table.select(list(columns)) if columns else table
    return [tuple(row.values()) for row in chosen.to_pylist()]


def test_q5_counts_bids_in_sliding_windows(answer: Answer, by_hand: Path) -> None:
    expected = [(1, 1)] * 4 + [(1, 2)] * 6 + [(2, 2)] * 5 + [(3, 1)] * 2
    assert rows(answer("q5", by_hand)) == expected


def test_q6_averages_the_winning_prices_of_a_seller_so_far(answer: Answer, by_hand: Path) -> None:
    assert rows(answer("q6", by_hand)) == [(1, 250.0), (1, 300.0), (2, 50.0)]


def test_q6_looks_back_over_ten_auctions_and_no_further(answer: Answer, tmp_path: Path) -> None:
    # Won at 1, 2, ... 12: the twelfth average is that of 2 to 12.
    tables = {
        "auction": [auction(number, at(0), at(100), number, seller=5) for number in range(1, 13)],
        "bid": [bid(number, 7, number, at(number), 100 + number) for number in range(1, 13)],
    }
    averages = [average for _, average in rows(answer("q6", write_tables(tmp_path, tables)))]
    assert averages == sorted([*((number + 1) / 2 for number in range(1, 12)), 7.0])


def test_q7_keeps_all_highest_bids_of_half_open_windows(answer: Answer, by_hand: Path) -> None:
    found = rows(answer("q7", by_hand))
    assert found == [
        (1, 7, 300, moment(9.999), "bid 11"),
        (2, 7, 200, moment(10), "bid 13"),
        (2, 8, 200, moment(10), "bid 12"),
        (3, 7, 500, moment(20), "bid 14"),
    ]


def test_q8_finds_newcomers_once_per_window(answer: Answer, by_hand: Path) -> None:
    assert rows(answer("q8", by_hand)) == [(1, "Ann", moment(0)), (2, "Bob", moment(10))]


def test_q9_breaks_ties_by_time_and_event_number_and_ignores_late_bids(answer: Answer, by_hand: Path) -> None:
    found = rows(answer("q9", by_hand), "id", "bidder", "price", "bid_date_time", "bid_extra")
    assert found == [
        (1, 7, 300, moment(9.999), "bid 11"),
        (2, 8, 200, moment(10), "bid 12"),
        (3, 8, 50, moment(5), "bid 15"),
    ]


def test_q11_joins_bids_that_are_exactly_one_gap_apart(answer: Answer, by_hand: Path) -> None:
    assert rows(answer("q11", by_hand)) == [
        (7, 4, moment(0), moment(30)),
        (8, 1, moment(20.001), moment(30.001)),
        (8, 2, moment(5), moment(20)),
        (9, 1, moment(20), moment(30)),
    ]


# --- against each other ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def random_events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("random"), random_tables(seed=1))


@pytest.fixture(scope="module")
def odd_events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("odd"), odd_tables(seed=5))


BID = "auction int, bidder int, price int, date_time time, extra text"
LONG_BID = "auction int, bidder int, price int, channel text, url text, date_time time, extra text"
BID_COUNTS = "total_bids int, rank1_bids int, rank2_bids int, rank3_bids int"
COUNTS = BID_COUNTS + "".join(
    f", {rank}_{what} int" for what in ("bidders", "auctions") for rank in ("total", "rank1", "rank2", "rank3")
)
COLUMNS = {
    "q0": BID,
    "q1": BID.replace("price int", "price decimal"),
    "q2": "auction int, price int",
    "q3": "name text, city text, state text, id int",
    "q4": "id int, final double",
    "q5": "auction int, num int",
    "q6": "seller int, avg_price double",
    "q7": BID,
    "q8": "id int, name text, stime time",
    "q9": "id int, item_name text, description text, initial_bid int, reserve int, date_time time, expires time, "
    "seller int, category int, extra text, auction int, bidder int, price int, bid_date_time time, bid_extra text",
    "q10": f"{BID}, dt text, hm text",
    "q11": "bidder int, bid_count int, starttime time, endtime time",
    "q12_event": "bidder int, bid_count int, window_start time, window_end time",
    "q13": "auction int, bidder int, price int, date_time time, value text",
    "q14": "auction int, bidder int, price decimal, bid_time_type text, date_time time, extra text, c_counts int",
    "q15": f"day text, {COUNTS}",
    "q16": f"channel text, day text, minute text, {COUNTS}",
    "q17": f"auction int, day text, {BID_COUNTS}, min_price int, max_price int, avg_price double, sum_price int",
    "q18": LONG_BID,
    "q19": f"{LONG_BID}, rank_number int",
    "q20": "auction int, bidder int, price int, channel text, url text, bid_date_time time, bid_extra text, item_name text, "
    "description text, initial_bid int, reserve int, auction_date_time time, expires time, seller int, category int, "
    "auction_extra text",
    "q21": "auction int, bidder int, price int, channel text, channel_id text",
    "q22": "auction int, bidder int, price int, channel text, dir1 text, dir2 text, dir3 text",
}
TYPES = {
    "int": pa.int64(),
    "text": pa.string(),
    "time": pa.timestamp("ms", tz="UTC"),
    "double": pa.float64(),
    "decimal": pa.decimal128(23, 3),
}


@pytest.mark.parametrize("query", QUERIES)
def test_both_oracles_give_the_same_rows_in_the_agreed_columns(query: str, spark: Any, random_events: Path) -> None:
    by_duckdb = duckdb_oracle.run(query, random_events)
    by_spark = spark_oracle.run(spark, query, random_events)
    columns = [column.split() for column in COLUMNS[query].split(", ")]
    agreed = pa.schema([(name, TYPES[kind]) for name, kind in columns])
    assert (by_duckdb.schema, by_spark.schema) == (agreed, agreed)
    assert by_duckdb.num_rows > 0
    assert difference(by_duckdb, by_spark, "duckdb", "spark") is None


@pytest.mark.parametrize("query", ["q4", "q6", "q8", "q17", "q22"])
def test_both_oracles_take_nulls_short_urls_and_repeated_persons_alike(query: str, spark: Any, odd_events: Path) -> None:
    told = difference(duckdb_oracle.run(query, odd_events), spark_oracle.run(spark, query, odd_events), "DuckDB", "Spark")
    assert told is None, told


def test_sessions_are_those_of_spark_own_session_windows(spark: Any, random_events: Path) -> None:
    spark.read.parquet(str(random_events / "bid")).createOrReplaceTempView("bid_for_sessions")
    own = spark.sql(
        "SELECT bidder, COUNT(*) AS bid_count, session_window.start AS starttime, session_window.end AS endtime "
        "FROM bid_for_sessions GROUP BY bidder, session_window(date_time, '10 seconds')"
    )
    assert difference(normalise(own.toArrow()), duckdb_oracle.run("q11", random_events), "spark", "q11") is None


def test_an_oracle_leaves_the_views_and_settings_of_a_session_alone(spark: Any, by_hand: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert rows(spark_oracle.run(spark, "q10", by_hand), "dt", "hm") == [("2015-07-15", "00:00")] * 8
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert "bid" not in {table.name for table in spark.catalog.listTables()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


# --- comparing ------------------------------------------------------------------------------------------------------


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def test_the_order_of_rows_and_the_width_of_types_do_not_matter() -> None:
    left = table(a=pa.array([2, 1, None], pa.int32()), b=pa.array(["x", "y", "z"], pa.large_string()))
    right = table(a=pa.array([1, None, 2], pa.int64()), b=pa.array(["y", "z", "x"]))
    assert difference(left, right, "left", "right") is None


def test_rows_that_come_more_often_are_a_difference() -> None:
    explained = difference(table(a=[1, 1, 1, 2]), table(a=[1, 2, 2, 2]), "ours", "theirs")
    assert explained == (
        "The rows differ: ours has 4 rows and theirs has 4.\n"
        "  2 only in ours:\n    a=1 (2 times)\n"
        "  2 only in theirs:\n    a=2 (2 times)"
    )


def test_a_difference_shows_five_rows_of_each_side() -> None:
    explained = difference(table(a=list(range(10))), table(a=list(range(10, 22))), "ours", "theirs")
    assert explained is not None
    lines = explained.splitlines()
    assert lines[0] == "The rows differ: ours has 10 rows and theirs has 12."
    assert lines[1:7] == ["  10 only in ours, among them:", *(f"    a={value}" for value in range(5))]
    assert lines[7:] == ["  12 only in theirs, among them:", *(f"    a={value}" for value in range(10, 15))]


def test_a_missing_row_is_only_in_one() -> None:
    explained = difference(table(a=[1, None], b=["x", "y"]), table(a=[1], b=["x"]), "ours", "theirs")
    assert explained == "The rows differ: ours has 2 rows and theirs has 1.\n  1 only in ours:\n    a=None, b=y"


def test_doubles_are_compared_to_the_last_bit() -> None:
    explained = difference(table(a=[0.1 + 0.2]), table(a=[0.3]), "ours", "theirs")
    assert explained is not None
    assert "a=0.30000000000000004" in explained
    assert difference(table(a=[float("nan"), 1.0]), table(a=[1.0, float("nan")]), "ours", "theirs") is None


@pytest.mark.parametrize("other", [{"b": [1], "a": [1]}, {"a": [1]}, {"a": [1], "b": ["1"]}])
def test_other_columns_are_a_difference(other: dict[str, list[Any]]) -> None:
    explained = difference(table(a=[1], b=[1]), table(**other), "ours", "theirs")
    assert explained is not None
    assert explained.startswith("The columns differ.\n  ours has a int64, b int64\n  theirs has ")


def test_normalising_keeps_columns_and_sorts_by_all_of_them() -> None:
    given = table(
        t=pa.array([2_000, 1_000, 1_000], pa.timestamp("us", tz="UTC")),
        d=pa.array([Decimal("1.5"), Decimal("2.25"), Decimal(1)], pa.decimal128(10, 2)),
    )
    expected = table(
        t=pa.array([1, 1, 2], pa.timestamp("ms", tz="UTC")),
        d=pa.array([Decimal(1), Decimal("2.25"), Decimal("1.5")], pa.decimal128(23, 3)),
    )
    assert normalise(given).equals(expected)


def test_a_time_between_two_milliseconds_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        normalise(table(t=pa.array([1_001], pa.timestamp("us", tz="UTC"))))


# --- what can go wrong ----------------------------------------------------------------------------------------------


def test_an_unknown_query_is_refused(by_hand: Path) -> None:
    with pytest.raises(DirigoError, match=r"There is no oracle for the query 'q12': choose one of q0, q1, .*"):
        duckdb_oracle.run("q12", by_hand)


def test_missing_events_are_named(tmp_path: Path) -> None:
    with pytest.raises(DirigoError, match=r"The oracle of q0 found no Parquet file in .*bid: write the events there first"):
        duckdb_oracle.run("q0", tmp_path)


def test_a_missing_engine_is_named(monkeypatch: pytest.MonkeyPatch, by_hand: Path) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(DirigoError, match="pip install duckdb"):
        duckdb_oracle.run("q0", by_hand)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(DirigoError, match="pip install pyspark"), spark_oracle.local_session():
        pass


def test_a_second_session_is_refused(spark: Any) -> None:
    with pytest.raises(DirigoError, match="already running"), spark_oracle.local_session():
        pass
