"""deduplicate: the first row of every key, for ever or within a stretch of time."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any, cast
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from dirigo.flow.operators.deduplicate import Passed
from dirigo.flow.plan.states import StageStates, WholeState
from dirigo.kernel.instance import Instance
from flow.flows import FakeClock, Rows, Running, collected, event, results, run_inline, split_results, unordered

EVENTS = st.lists(
    st.builds(event, st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 40)), min_size=1, max_size=20
)


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, rows_max=st.integers(1, 10))
def test_the_first_row_of_every_key_is_let_through(rows: Rows, rows_max: int) -> None:
    out = results(rows, lambda s: s.deduplicate("key", "value"), rows_max=rows_max, time=None)
    first: dict[tuple[str, int], dict[str, object]] = {}
    for row in rows:
        first.setdefault((row["key"], row["value"]), row)
    assert unordered(out) == unordered(first.values())


def test_without_columns_whole_rows_are_compared() -> None:
    rows = [event("a", 1, 0), event("a", 1, 0), event("a", 1, 1)]
    assert unordered(results(rows, lambda s: s.deduplicate(), time=None)) == unordered(rows[1:])


@settings(deadline=None, max_examples=40)
@given(rows=EVENTS, within=st.integers(1, 15), rows_max=st.integers(1, 10))
def test_within_a_stretch_of_time_only_one_row_is_let_through(rows: Rows, within: int, rows_max: int) -> None:
    out = results(rows, lambda s: s.deduplicate("key", within=f"{within}ms"), rows_max=rows_max, out_of_orderness="40ms")
    passed: Rows = []
    for row in rows:
        if all(row["key"] != other["key"] or abs(row["ts"] - other["ts"]) >= within for other in passed):
            passed.append(row)
    assert unordered(out) == unordered(passed)


@settings(deadline=None, max_examples=40)
@given(
    moves=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.integers(0, 30)), min_size=1, max_size=60),
    within=st.integers(1, 40),
    rows_max=st.integers(1, 10),
)
def test_watermarks_make_no_difference_to_what_is_let_through(
    moves: list[tuple[str, int, int]], within: int, rows_max: int
) -> None:
    rows, now = [], 30
    for number, (key, step, back) in enumerate(moves):
        now += step
        rows.append(event(key, number, now - back))
    out = results(rows, lambda s: s.deduplicate("key", within=f"{within}ms"), rows_max=rows_max, out_of_orderness="30ms")
    passed: Rows = []
    for row in rows:
        if all(row["key"] != other["key"] or abs(row["ts"] - other["ts"]) >= within for other in passed):
            passed.append(row)
    assert unordered(out) == unordered(passed)


def kept_by(running: Running, instance: str) -> WholeState[Any]:
    participant = running.host.worker.participants[instance]
    assert isinstance(participant, Instance)
    kept = cast(StageStates, participant.states).own
    assert isinstance(kept, WholeState)
    return kept


def test_within_forgets_keys_that_can_have_no_duplicates_any_more() -> None:
    flow = dg.Dataflow("forget", watermark_every="1ms", partitions=1)
    rows = [event(f"key {number}", 0, number * 10) for number in range(50)]
    out = collected(flow.source(dg.from_iterable(rows, time="ts")).deduplicate("key", within="20ms", name="dedup"))
    running = Running(flow, FakeClock())
    for _ in rows:
        running.read()
    passed = kept_by(running, "forget/dedup/0").value
    assert 1 <= len(passed.times_of) <= 3
    assert 1 <= len(passed.keys_at) == len(passed.times) <= 3
    running.finish()
    assert len(out.rows) == 50


class CountedKey:
    """A key that counts how often a table looks at it."""

    def __init__(self) -> None:
        self.looks = 0

    def __hash__(self) -> int:
        self.looks += 1
        return id(self)


def test_a_key_is_looked_at_a_few_times_however_many_watermarks_pass() -> None:
    passed = Passed()
    keys = [CountedKey() for _ in range(500)]
    for time, key in enumerate(keys):
        assert passed.admit(key, time, within_ms=400)
        passed.forget(time - 400)
    passed.forget(10_000)
    assert passed == Passed()
    assert max(key.looks for key in keys) <= 4


@settings(deadline=None)
@given(
    actions=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12)) | st.integers(0, 12), max_size=60),
    within=st.integers(1, 6),
)
def test_what_passed_and_is_not_forgotten_keeps_out_what_is_near(actions: list[tuple[str, int] | int], within: int) -> None:
    passed, naive = Passed(), set[tuple[str, int]]()
    for action in actions:
        if isinstance(action, int):
            passed.forget(action)
            naive = {(key, time) for key, time in naive if time > action}
        else:
            key, time = action
            is_new = all(key != other or abs(time - at) >= within for other, at in naive)
            assert passed.admit(key, time, within) == is_new
            if is_new:
                naive.add(action)
        assert {(key, time) for key, times in passed.times_of.items() for time in times} == naive


# --- keys of all kinds -------------------------------------------------------------------------------------------------

NAN = float("nan")
DISTINCT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), [None, "", "None", "nan"]),
    (pa.float64(), [None, NAN, 0.0, 1.5, float("inf")]),
    (pa.float32(), [None, NAN, 0.5]),
    (pa.list_(pa.float64()), [None, [], [None], [NAN], [1.0], [1.0, 2.0]]),
    (pa.struct([("x", pa.int64()), ("y", pa.string())]), [None, {"x": None, "y": "a"}, {"x": 1, "y": None}]),
    (pa.map_(pa.string(), pa.int64()), [None, [], [("a", 1)], [("a", 2)]]),
    (pa.timestamp("ns"), [None, 0, 1, 1_000]),  # as nanoseconds, which Python's times do not have
    (pa.duration("ns"), [None, 0, 1]),
    (pa.dictionary(pa.int32(), pa.string()), [None, "a", "b"]),
    (pa.null(), [None]),
]


def shown(column: pa.Array) -> list[str]:
    numbers = column.view(pa.int64()) if pa.types.is_temporal(column.type) else column
    return sorted(map(repr, numbers.to_pylist()))


@pytest.mark.parametrize("within", [None, "1h"])
@pytest.mark.parametrize("columns", [(), ("key",), ("key", "value")])
@pytest.mark.parametrize(("kind", "values"), DISTINCT, ids=[str(kind) for kind, _ in DISTINCT])
@pytest.mark.parametrize("rows_at_once", [1, 100])
def test_every_value_is_a_key_like_any_other(
    kind: pa.DataType, values: list[Any], columns: tuple[str, ...], within: str | None, rows_at_once: int
) -> None:
    twice = [*values, *values[::-1]]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(twice, kind), pa.nulls(len(twice), pa.int64()), pa.array([5] * len(twice))], ["key", "value", "ts"]
    )
    pieces = [batch.slice(start, rows_at_once) for start in range(0, len(twice), rows_at_once)]
    flow = dg.Dataflow("kinds", watermark_every="1ms", partitions=2)
    out = collected(flow.source(dg.from_iterable(pieces, time="ts")).deduplicate(*columns, within=within))
    run_inline(flow)
    assert shown(out.table.column("key").combine_chunks()) == shown(batch.column("key").slice(0, len(values)))


def test_zeros_of_both_signs_are_one_key() -> None:
    rows = [{"x": 0.0}, {"x": -0.0}, {"x": None}]
    out = results(rows, lambda s: s.deduplicate("x"), schema={"x": float}, time=None, rows_max=1)
    assert sorted(str(abs(row["x"]) if row["x"] is not None else None) for row in out) == ["0.0", "None"]


def test_times_an_hour_apart_are_two_keys_when_clocks_are_set_back() -> None:
    zone = ZoneInfo("Europe/Amsterdam")
    hours = [datetime(2024, 10, 27, hour, 30, tzinfo=UTC).astimezone(zone) for hour in (0, 1, 0)]
    assert hours[0] == hours[1]  # Python compares what the clocks on the wall show
    schema = pa.schema([("at", pa.timestamp("us", tz="Europe/Amsterdam"))])
    batches = [pa.RecordBatch.from_arrays([pa.array([hour], schema.field("at").type)], schema=schema) for hour in hours]
    flow = dg.Dataflow("clocks")
    out = collected(flow.source(dg.from_iterable(batches)).deduplicate("at"))
    run_inline(flow)
    assert out.table.num_rows == 2


@pytest.mark.parametrize("within", [None, "1h"])
def test_what_was_seen_survives_a_journey(within: str | None) -> None:
    schema = pa.schema([("x", pa.float64()), ("ts", pa.int64())])
    flow = dg.Dataflow("journey", watermark_every="1ms", partitions=1)
    rows = [{"x": x, "ts": 5} for x in (NAN, None, 1.0, NAN, None, 1.0)]
    stream = flow.source(dg.from_iterable(rows, schema, time="ts"))
    out = collected(stream.deduplicate("x", within=within, name="dedup"))
    running = Running(flow, FakeClock())
    for _ in rows:
        running.read()
        kept = kept_by(running, "journey/dedup/0")
        kept.value = pickle.loads(pickle.dumps(kept.value))  # our own bytes
    running.finish()
    assert [repr(row["x"]) for row in out.rows] == ["nan", "None", "1.0"]


def test_a_row_without_a_time_is_still_a_bad_one_within_a_stretch_of_time() -> None:
    rows = [{"key": None, "value": 1, "ts": 3}, {"key": None, "value": 1, "ts": None}]
    out, errors = split_results(rows, lambda s: s.deduplicate(within="5ms"))
    assert out == rows[:1]
    assert ["its time 'ts' is null" in str(error) for error in errors] == [True]


def test_rows_later_than_the_watermark_are_late() -> None:
    flow = dg.Dataflow("late", watermark_every="1ms")
    stream = flow.source(dg.from_iterable([event("a", 1, 30), event("b", 2, 29)], time="ts"))
    result = stream.deduplicate("key", within="5ms")
    out, late = collected(result), collected(result.late)
    running = Running(flow)
    running.finish()
    assert [row["key"] for row in out.rows] == ["a"]
    assert [row["key"] for row in late.rows] == ["b"]


def test_the_time_stays() -> None:
    rows = [event("a", 1, 1), event("a", 1, 2), event("b", 1, 12)]
    out = results(rows, lambda s: s.deduplicate("key").window(dg.Tumbling("10ms")).aggregate(n=dg.count()), rows_max=1)
    assert [row["n"] for row in out] == [1, 1]
