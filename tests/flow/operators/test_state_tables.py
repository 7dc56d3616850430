"""What each operator keeps, as a table, in the middle of its input: compared with plain Python."""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isnan, nan
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.errors import DirigoError
from dirigo.flow.plan.states import StageCapture, StageStates
from dirigo.runtime.snapshots.codec import decode, encode
from dirigo.testing.simulation import Simulation

Rows = list[dict[str, Any]]
SCHEMA = pa.schema([("at", pa.int64()), ("key", pa.string()), ("n", pa.int64())])
NAMES = ["red", "green", "blue", "white", "black", "pink", "grey"]
BEHIND_MS = 40
CLOCK_MS = 1_000_000

INPUT: Rows = [
    {"at": 10 * number - (30 if number % 7 == 3 else 0), "key": NAMES[(number * 3 + number // 9) % 7], "n": number}
    for number in range(1, 90)
]


@dataclass
class Read:
    """The state of one operator."""

    rows: Rows
    schema: pa.Schema
    watermark_ms: int
    simulation: Simulation


def read(
    build: Callable[[dg.Stream], dg.Stream], rows: Rows = INPUT, schema: pa.Schema = SCHEMA, name: str | None = None
) -> Read:
    """Run a flow up to the middle of its input, and look at the states as a snapshot has them."""
    flow = dg.Dataflow("shown", partitions=3, watermark_every="0ms")
    source = dg.from_iterable([], schema, time="at", name="rows", out_of_orderness=f"{BEHIND_MS}ms")
    build(flow.source(source)).sink(dg.to_nothing())
    simulation = Simulation(flow, open_sources="rows", rows_max=8)
    simulation.push("rows", rows)
    simulation.advance("5s")
    shown = [stage for stage in simulation.job.plan.stages if stage.operator.state_schema() is not None]
    stage = shown[-1] if name is None else next(each for each in shown if each.name == name)
    tables, watermarks = [], []
    for partition, address in enumerate(stage.addresses):
        states = simulation.cluster.workers[simulation.job.homes[address]].instance(address).states
        assert isinstance(states, StageStates)
        captured = states.capture()
        own = decode(b"".join(bytes(part) for part in encode(captured.own)))
        tables.append(stage.state_table(partition, StageCapture(captured.head, own), CLOCK_MS))
        watermarks.append(captured.head.watermark)
    assert {table.schema for table in tables} == {stage.operator.state_schema()}
    assert len(set(watermarks)) == 1
    assert stage.is_ordered or stage.partitions == 1 or sum(table.num_rows > 0 for table in tables) > 1
    return Read(pa.concat_tables(tables).to_pylist(), tables[0].schema, watermarks[0], simulation)


def by_all(rows: Rows) -> list[Any]:
    return sorted(rows, key=repr)


def grouped(rows: Rows, key: Callable[[dict[str, Any]], Any]) -> dict[Any, Rows]:
    groups: defaultdict[Any, Rows] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def summed(rows: Rows) -> dict[str, Any]:
    return {"rows": len(rows), "total": sum(row["n"] for row in rows), "different": len({row["n"] % 4 for row in rows})}


AGGREGATES = {"rows": dg.count(), "total": dg.sum("n"), "different": dg.distinct(dg.col("n") % 4)}


# --- windows ---------------------------------------------------------------------------------------------------------------


def test_tumbling_windows() -> None:
    found = read(lambda s: s.key_by("key").window(dg.Tumbling("200ms")).aggregate(AGGREGATES))
    expected = [
        {"key": key, **summed(rows), "window_start": start, "window_end": start + 200}
        for (key, start), rows in grouped(INPUT, lambda row: (row["key"], row["at"] // 200 * 200)).items()
        if start + 200 > found.watermark_ms
    ]
    assert by_all(found.rows) == by_all(expected)
    assert 800 < found.watermark_ms < 890
    assert found.schema.names == ["key", "rows", "total", "different", "window_start", "window_end"]


def test_windows_that_may_still_get_late_rows() -> None:
    window = dg.Tumbling("200ms")
    found = read(lambda s: s.key_by("key").window(window, allowed_lateness="300ms").aggregate(rows=dg.count()))
    starts = {row["window_start"] for row in found.rows}
    assert starts == {start for start in range(0, 1000, 200) if start + 200 + 300 > found.watermark_ms}
    assert len(starts) == 3


def test_sliding_windows_without_keys() -> None:
    found = read(lambda s: s.window(dg.Sliding("300ms", every="100ms")).aggregate(AGGREGATES))
    expected = []
    for start in range(-200, 1000, 100):
        rows = [row for row in INPUT if start <= row["at"] < start + 300]
        if rows and start + 300 > found.watermark_ms:
            expected.append({**summed(rows), "window_start": start, "window_end": start + 300})
    assert found.rows == expected
    assert len(expected) == 3


@pytest.mark.parametrize("emit", ["end", "watermark"])
def test_the_whole_stream(emit: Any) -> None:
    found = read(lambda s: s.key_by("key").aggregate(AGGREGATES, emit=emit))
    expected = [{"key": key, **summed(rows)} for key, rows in grouped(INPUT, lambda row: row["key"]).items()]
    assert by_all(found.rows) == by_all(expected)


def test_a_reduction_and_a_ranking() -> None:
    found = read(lambda s: s.key_by("key").reduce(lambda one, other: one if one.n > other.n else other))
    groups = grouped(INPUT, lambda row: row["key"]).values()
    best = [max(rows, key=lambda row: row["n"]) for rows in groups]
    assert by_all([{name: row[name] for name in SCHEMA.names} for row in found.rows]) == by_all(best)
    found = read(lambda s: s.key_by("key").top(2, by="-n", rank="place"))
    expected = [
        {"key": row["key"], "at": row["at"], "n": row["n"], "place": place}
        for rows in groups
        for place, row in enumerate(sorted(rows, key=lambda row: -row["n"])[:2], 1)
    ]
    assert by_all(found.rows) == by_all(expected)


def test_a_function_of_all_rows_shows_the_rows_and_is_not_called() -> None:
    def never(group: dg.Group) -> Rows:
        raise AssertionError(group)

    found = read(lambda s: s.key_by("key").apply(never, {"key": str}))
    assert by_all(found.rows) == by_all([{"key": row["key"], "at": row["at"], "n": row["n"]} for row in INPUT])


def sessions_of(rows: Rows, gap_ms: int) -> list[Rows]:
    sessions: list[Rows] = []
    for row in sorted(rows, key=lambda row: row["at"]):
        if sessions and row["at"] <= sessions[-1][-1]["at"] + gap_ms:
            sessions[-1].append(row)
        else:
            sessions.append([row])
    return sessions


def test_sessions() -> None:
    gap_ms = 25
    apart = [row for row in INPUT if row["n"] % 5 not in (1, 2)]
    found = read(
        lambda s: s.key_by("key").window(dg.Session(f"{gap_ms}ms"), allowed_lateness="200ms").aggregate(AGGREGATES), apart
    )
    expected = [
        {"key": key, **summed(rows), "window_start": rows[0]["at"], "window_end": rows[-1]["at"] + gap_ms}
        for key, of_key in grouped(apart, lambda row: row["key"]).items()
        for rows in sessions_of(of_key, gap_ms)
        if rows[-1]["at"] + gap_ms + 200 >= found.watermark_ms
    ]
    assert by_all(found.rows) == by_all(expected)
    assert len(expected) > 4

    rows_kept = read(lambda s: s.key_by("key").window(dg.Session("25ms")).apply(lambda _: [], {"key": str}), apart)
    assert {row["window_end"] - row["window_start"] >= gap_ms for row in rows_kept.rows} == {True}
    assert all(row["window_start"] <= row["at"] < row["window_end"] for row in rows_kept.rows)


def test_windows_of_processing_time() -> None:
    found = read(lambda s: s.key_by("key").window(dg.Tumbling("1h", time="processing")).aggregate(rows=dg.count()))
    assert {row["key"]: row["rows"] for row in found.rows} == {
        key: len(rows) for key, rows in grouped(INPUT, lambda row: row["key"]).items()
    }
    assert {row["window_end"] - row["window_start"] for row in found.rows} == {timedelta(hours=1)}


# --- joins -----------------------------------------------------------------------------------------------------------------


def joined(stream: dg.Stream, **options: Any) -> dg.Stream:
    left = stream.filter(dg.col("n") % 2 == 0)
    right = stream.filter(dg.col("n") % 2 == 1).select("at", "n", color="key")
    return left.join(right, on={"key": "color"}, **options)


def kept(watermark_ms: int, left_ms: int, right_ms: int) -> Rows:
    left = [
        {"side": "left", "key": row["key"], "at": row["at"], "n": row["n"], "at_right": None, "n_right": None}
        for row in INPUT
        if row["n"] % 2 == 0 and row["at"] + left_ms >= watermark_ms
    ]
    return left + [
        {"side": "right", "key": row["key"], "at": None, "n": None, "at_right": row["at"], "n_right": row["n"]}
        for row in INPUT
        if row["n"] % 2 == 1 and row["at"] + right_ms >= watermark_ms
    ]


def test_a_join_of_whole_streams() -> None:
    found = read(joined)
    assert by_all(found.rows) == by_all(kept(0, 0, 0))


def test_a_join_within_an_interval() -> None:
    found = read(lambda s: joined(s, within=("100ms", "50ms")))
    assert by_all(found.rows) == by_all(kept(found.watermark_ms, 50, 100))


def test_a_join_in_windows() -> None:
    found = read(lambda s: joined(s, window=dg.Tumbling("300ms")))
    begin = found.watermark_ms // 300 * 300
    assert by_all(found.rows) == by_all([row for row in kept(0, 0, 0) if max(row["at"] or 0, row["at_right"] or 0) >= begin])
    assert 0 < len(found.rows) < len(INPUT)


# --- keys ------------------------------------------------------------------------------------------------------------------


def test_keys_that_were_seen() -> None:
    found = read(lambda s: s.deduplicate("key"))
    assert by_all(found.rows) == by_all([{"key": key} for key in {row["key"] for row in INPUT}])


def test_keys_that_were_seen_lately() -> None:
    found = read(lambda s: s.deduplicate("key", within="200ms"))
    assert {row["key"] for row in found.rows} == set(NAMES)
    let_through = grouped(found.rows, lambda row: row["key"])
    for rows in let_through.values():
        times = sorted(row["at"] for row in rows)
        assert all(later - earlier >= 200 for earlier, later in itertools.pairwise(times))
        assert times[0] > found.watermark_ms - 200
    assert {(row["key"], row["at"]) for row in found.rows} <= {(row["key"], row["at"]) for row in INPUT}


ODD = pa.schema(
    [
        ("at", pa.int64()),
        ("time", pa.timestamp("ns", "UTC")),
        ("ratio", pa.float64()),
        ("day", pa.date32()),
        ("n", pa.int64()),
    ]
)
ODD_ROWS: Rows = [
    {
        "at": number,
        "time": datetime(2024, 1, 1 + number % 2, tzinfo=UTC),
        "ratio": [nan, 0.0, -0.0, 1.5][number % 4],
        "day": datetime(2024, 2, 1 + number % 3, tzinfo=UTC).date(),
        "n": number,
    }
    for number in range(24)
]
ODD_KEYS = ("time", "ratio", "day")


class CountedOdd(dg.Function):
    rows = dg.ValueState(int, default=0, combine=operator.add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.rows.add(1)


@pytest.mark.parametrize("kind", ["function", "deduplicate"])
def test_keys_of_odd_types_come_back_as_they_were(kind: str) -> None:
    def build(stream: dg.Stream) -> dg.Stream:
        return (
            stream.deduplicate(*ODD_KEYS)
            if kind == "deduplicate"
            else stream.key_by(*ODD_KEYS).process(CountedOdd, {"n": int})
        )

    found = read(build, ODD_ROWS, ODD)
    assert found.schema.types[:3] == [pa.timestamp("ns", "UTC"), pa.float64(), pa.date32()]
    shown = {
        (row["time"].isoformat(), "nan" if isnan(row["ratio"]) else abs(row["ratio"]), row["day"]): row.get("rows")
        for row in found.rows
    }
    expected: defaultdict[Any, int] = defaultdict(int)
    for row in ODD_ROWS:
        expected[row["time"].isoformat(), "nan" if isnan(row["ratio"]) else abs(row["ratio"]), row["day"]] += 1
    assert len(found.rows) == len(shown)
    assert shown == (expected if kind == "function" else dict.fromkeys(expected))


def test_a_scan() -> None:
    found = read(lambda s: s.key_by("key").scan(lambda before, row: {"at": row.at, "key": row.key, "n": before.n + row.n}))
    expected = [
        {"key": key, "at": rows[-1]["at"], "n": sum(row["n"] for row in rows)}
        for key, rows in grouped(INPUT, lambda row: row["key"]).items()
    ]
    assert by_all(found.rows) == by_all(expected)


# --- functions -------------------------------------------------------------------------------------------------------------


@dataclass
class Item:
    n: int
    color: str


class Everything(dg.Function):
    """A state of each kind, of types that are columns and of types that are not."""

    count = dg.ValueState(int, default=0)
    last = dg.ValueState(tuple, default=())
    first = dg.ValueState(datetime, default=None)
    items = dg.ListState(Item)
    odd = dg.ListState(int)
    by_rest = dg.MapState(int, float)
    key = dg.ValueState(str, default="")
    ordered = True

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.set(self.count.get() + 1)
        self.last.set((row.n, row.at))
        self.key.set(row.key.upper())
        if self.first.get() is None:
            self.first.set(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=row.n))
        if row.n % 10 == 0:
            self.items.append(Item(row.n, row.key))
        if row.n % 2:
            self.odd.append(row.n)
        self.by_rest[row.n % 3] = row.n / 2


def test_states_of_every_kind() -> None:
    found = read(lambda s: s.key_by("key").process(Everything, {"n": int}))
    assert found.schema.field("count").type == pa.int64()
    assert found.schema.field("last").type == pa.string()
    assert found.schema.field("odd").type == pa.list_(pa.int64())
    assert found.schema.field("by_rest").type == pa.map_(pa.int64(), pa.float64())
    assert found.schema.names == ["key", "count", "last", "first", "items", "odd", "by_rest", "key_"]
    for row in found.rows:
        rows = [each for each in INPUT if each["key"] == row["key"]]
        assert row["count"] == len(rows)
        assert row["last"] == repr((rows[-1]["n"], rows[-1]["at"]))
        assert row["first"] == datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=rows[0]["n"])
        assert row["items"] == [{"n": each["n"], "color": each["key"]} for each in rows if each["n"] % 10 == 0]
        assert row["odd"] == [each["n"] for each in rows if each["n"] % 2]
        assert dict(row["by_rest"]) == {each["n"] % 3: each["n"] / 2 for each in rows}
        assert row["key_"] == row["key"].upper()
    assert {row["key"] for row in found.rows} == set(NAMES)


def test_it_is_what_the_test_kit_shows() -> None:
    found = read(lambda s: s.key_by("key").process(Everything, {"n": int}, name="all"))
    told = found.simulation.state("all")
    assert {row["key"]: (row["count"], row["odd"], dict(row["by_rest"]), row["last"]) for row in found.rows} == {
        key: (held["count"], held["odd"], held["by_rest"], repr(held["last"])) for key, held in told.items()
    }


class PerPartition(dg.Function):
    scope = "partition"
    rows = dg.ValueState(int, default=0, combine=operator.add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.rows.add(1)


def test_a_state_of_each_partition() -> None:
    found = read(lambda s: s.key_by("n").process(PerPartition, {"n": int}, name="counted"))
    assert {row["partition"]: row["rows"] for row in found.rows} == {
        partition: held["rows"] for partition, held in found.simulation.state("counted").items()
    }
    assert [row["partition"] for row in found.rows] == [0, 1, 2]
    assert sum(row["rows"] for row in found.rows) == len(INPUT)


class Brief(dg.Function):
    """Its state is gone when its key has been quiet; which the operator may notice later than whoever reads."""

    rows = dg.ValueState(int, default=0, ttl="1s")
    by_clock = dg.ValueState(int, default=0, ttl="100s", ttl_time="clock")
    ordered = True

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.rows.set(self.rows.get() + 1)
        self.by_clock.set(1)


def test_what_has_expired_is_not_shown() -> None:
    rows = [{"at": 10 * number, "key": "old" if number < 5 else "new", "n": number} for number in range(5)]
    rows += [{"at": at, "key": "new", "n": 1} for at in range(1_000, 1_900, 100)]
    found = read(lambda s: s.filter(dg.col("n") >= 0).key_by("key").process(Brief, {"n": int}), rows)
    assert 1_040 < found.watermark_ms < 1_900
    assert found.rows == [{"key": "new", "rows": 9, "by_clock": 0}]  # the clock of this snapshot is far ahead


class Careless(dg.Function):
    ratio = dg.ValueState(int, default=0)
    ordered = True

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.ratio.set(row.n / 2)


def test_a_value_that_does_not_fit_its_declaration_is_named() -> None:
    with pytest.raises(
        DirigoError, match=r"the state 'ratio' holds \d\.\d, which does not fit its declaration, that is int64"
    ):
        read(lambda s: s.key_by("key").process(Careless, {"n": int}), INPUT[:1] + INPUT[3:4])
