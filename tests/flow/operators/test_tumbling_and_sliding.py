"""Tumbling and sliding windows of event time, against a computation row by row; late rows and allowed lateness."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from flow.flows import TS_SCHEMA, Rows, event, results, run_inline, unordered

EVENTS = st.lists(
    st.builds(event, st.sampled_from(["a", "b", "c"]), st.integers(-9, 9), st.integers(0, 60)), min_size=1, max_size=15
)


def counted(rows: Rows, size: int, every: int, offset: int = 0, keys: bool = True) -> Rows:
    """Count and sum of every window with any rows, the slow way."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        start = (row["ts"] - offset) // every * every + offset
        while start + size > row["ts"]:
            found[(row["key"] if keys else "", start)].append(row["value"])
            start -= every
    return [
        {**({"key": key} if keys else {}), "n": len(values), "total": sum(values)}
        | {"window_start": start, "window_end": start + size}
        for (key, start), values in found.items()
    ]


def aggregated(stream: dg.Stream, window: Any) -> dg.Stream:
    return stream.key_by("key").window(window).aggregate(n=dg.count(), total=dg.sum("value"))


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, size=st.integers(1, 20), offset=st.integers(0, 7), rows_max=st.integers(1, 10))
def test_tumbling_windows_are_what_a_plain_loop_finds(rows: Rows, size: int, offset: int, rows_max: int) -> None:
    rows = sorted(rows, key=lambda row: int(row["ts"]))
    window = dg.Tumbling(f"{size}ms", offset=f"{offset}ms")
    out = results(rows, lambda s: aggregated(s, window), rows_max=rows_max)
    assert unordered(out) == unordered(counted(rows, size, size, offset))


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, every=st.integers(1, 10), more=st.integers(0, 15), offset=st.integers(0, 3), rows_max=st.integers(1, 10))
def test_sliding_windows_are_what_a_plain_loop_finds(rows: Rows, every: int, more: int, offset: int, rows_max: int) -> None:
    rows = sorted(rows, key=lambda row: int(row["ts"]))
    window = dg.Sliding(f"{every + more}ms", every=f"{every}ms", offset=f"{offset}ms")
    out = results(rows, lambda s: aggregated(s, window), rows_max=rows_max)
    assert unordered(out) == unordered(counted(rows, every + more, every, offset))


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, rows_max=st.integers(1, 10))
def test_rows_out_of_order_within_the_promise_all_count(rows: Rows, rows_max: int) -> None:
    out = results(rows, lambda s: aggregated(s, dg.Tumbling("10ms")), rows_max=rows_max, out_of_orderness="60ms")
    assert unordered(out) == unordered(counted(rows, 10, 10))


def test_windows_without_keys_count_all_rows() -> None:
    rows = [event("a", 1, 1), event("b", 2, 3), event("c", 4, 12)]
    window = dg.Tumbling("10ms")
    out = results(rows, lambda s: s.window(window).aggregate(n=dg.count(), total=dg.sum("value")))
    assert unordered(out) == unordered(counted(rows, 10, 10, keys=False))


def test_a_row_at_the_border_belongs_to_the_later_window() -> None:
    out = results([event("a", 1, 9), event("a", 2, 10)], lambda s: aggregated(s, dg.Tumbling("10ms")))
    assert [(row["window_start"], row["total"]) for row in out] == [(0, 1), (10, 2)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Amsterdam"])
def test_windows_have_the_type_of_the_time_column_or_milliseconds(unit: str, zone: str | None) -> None:
    kind = pa.timestamp(unit, zone)
    bounds = pa.timestamp("ms", zone) if unit == "s" else kind
    seconds = pa.array([100, 105, 111], pa.timestamp("s", zone)).cast(kind)
    batch = pa.RecordBatch.from_arrays([seconds], ["at"])
    flow = dg.Dataflow("typed")
    out = dg.to_memory()
    flow.source(dg.from_iterable([batch], time="at")).window(dg.Tumbling("10s")).aggregate(n=dg.count()).sink(out)
    run_inline(flow)
    assert out.table.schema.field("window_end").type == bounds
    assert out.table["n"].to_pylist() == [2, 1]
    assert out.table["window_start"].cast(pa.int64()).to_pylist() == [
        start * {"ms": 10**3, "us": 10**6, "ns": 10**9}[bounds.unit] for start in (100, 110)
    ]


def test_python_datetimes_are_times() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [{"at": start + timedelta(seconds=seconds)} for seconds in (0, 59, 60)]
    flow = dg.Dataflow("datetimes")
    out = dg.to_memory()
    flow.source(dg.from_iterable(rows, time="at")).window(dg.Tumbling("1m")).aggregate(n=dg.count()).sink(out)
    run_inline(flow)
    assert out.rows == [
        {"n": 2, "window_start": start, "window_end": start + timedelta(minutes=1)},
        {"n": 1, "window_start": start + timedelta(minutes=1), "window_end": start + timedelta(minutes=2)},
    ]


def test_windows_follow_windows() -> None:
    """The results of one sliding window all lie in one tumbling window behind it."""
    rows = [event(key, 1, ts) for ts in range(40) for key in ("ab" if ts % 3 else "a")]
    out = results(
        rows,
        lambda s: (
            s.key_by("key")
            .window(dg.Sliding("10ms", every="2ms"))
            .aggregate(n=dg.count())
            .rename(window_start="from_", window_end="until")
            .window(dg.Tumbling("2ms"))
            .aggregate(most=dg.max("n"), keys=dg.count(), until=dg.max("until"))
        ),
        rows_max=3,
    )
    sliding = counted(rows, 10, 2)
    expected = defaultdict(list)
    for row in sliding:
        expected[row["window_end"]].append(row["n"])
    assert {row["until"]: (row["most"], row["keys"]) for row in out} == {
        end: (max(counts), len(counts)) for end, counts in expected.items()
    }
    assert len(out) == len(expected)


# --- late rows ---------------------------------------------------------------------------------------------------------


def late_flow(rows: Rows, window: Any, lateness: str = "0ms") -> tuple[Rows, Rows]:
    flow = dg.Dataflow("late", watermark_every="1ms")
    stream = flow.source(dg.from_iterable(rows, TS_SCHEMA, time="ts"))
    result = stream.key_by("key").window(window, allowed_lateness=lateness).aggregate(n=dg.count(), total=dg.sum("value"))
    out, late = dg.to_memory(), dg.to_memory()
    result.sink(out)
    result.late.sink(late)
    run_inline(flow, 1)
    return out.rows, late.rows


def test_late_rows_go_to_a_stream_of_their_own() -> None:
    rows = [event("a", 1, 5), event("a", 2, 12), event("a", 4, 9), event("b", 8, 13), event("b", 16, 3)]
    out, late = late_flow(rows, dg.Tumbling("10ms"))
    assert late == [event("a", 4, 9), event("b", 16, 3)]
    assert unordered(out) == unordered(counted([rows[0], rows[1], rows[3]], 10, 10))


def test_a_late_row_still_counts_in_sliding_windows_that_are_open() -> None:
    rows = [event("a", 1, 12), event("a", 2, 7)]  # the watermark is 12: windows ending at 10 are gone, those at 15 are not
    out, late = late_flow(rows, dg.Sliding("10ms", every="5ms"))
    assert late == []
    assert {(row["window_start"], row["total"]) for row in out} == {(0, 2), (5, 3), (10, 1)} - {(0, 2)}


def test_rows_within_the_allowed_lateness_have_their_window_emitted_again() -> None:
    rows = [event("a", 1, 5), event("b", 1, 6), event("a", 2, 12), event("a", 4, 9), event("a", 8, 26), event("a", 16, 9)]
    out, late = late_flow(rows, dg.Tumbling("10ms"), lateness="10ms")
    first = [row for row in out if row["window_start"] == 0]
    assert [(row["key"], row["total"]) for row in first if row["key"] == "a"] == [("a", 1), ("a", 5)]
    assert [row["key"] for row in first].count("b") == 1  # nothing of b has changed
    assert late == [event("a", 16, 9)]


def test_a_sliding_window_that_is_gone_is_not_emitted_again_with_those_that_are_kept() -> None:
    rows = [event("a", 1, 3), event("b", 0, 12), event("a", 2, 4)]  # at 12, the window that ended at 5 is gone
    out, late = late_flow(rows, dg.Sliding("10ms", every="5ms"), lateness="5ms")
    assert late == []
    assert [(row["window_start"], row["total"]) for row in out if row["key"] == "a"] == [(-5, 1), (0, 1), (0, 3)]


@settings(deadline=None, max_examples=25)
@given(
    rows=EVENTS,
    size=st.integers(1, 12),
    every=st.integers(1, 12),
    lateness=st.integers(0, 20),
)
def test_the_last_result_of_every_window_has_all_rows_that_were_not_late(
    rows: Rows, size: int, every: int, lateness: int
) -> None:
    every = min(size, every)
    out, late = late_flow(rows, dg.Sliding(f"{size}ms", every=f"{every}ms"), f"{lateness}ms")
    expected: dict[tuple[str, int], int] = defaultdict(int)
    expected_late = []
    newest = -1
    for row in rows:
        start = row["ts"] // every * every
        if newest >= 0 and start + size + lateness <= newest:
            expected_late.append(row)
        else:
            while start + size > row["ts"]:
                if newest < 0 or start + size + lateness > newest:
                    expected[(row["key"], start)] += 1
                start -= every
        newest = max(newest, row["ts"])
    last = {(row["key"], row["window_start"]): row["n"] for row in out}
    assert unordered(late) == unordered(expected_late)
    assert last == dict(expected)
    if not lateness:
        assert len(out) == len(last)  # nothing is emitted twice that was not asked for


def test_late_rows_can_be_worked_with_like_any_others() -> None:
    flow = dg.Dataflow("late", watermark_every="1ms")
    stream = flow.source(dg.from_iterable([event("a", 1, 50), event("b", 2, 3)], time="ts"))
    result = stream.key_by("key").window(dg.Tumbling("10ms")).aggregate(n=dg.count())
    out = dg.to_memory()
    result.late.map(lambda row: {"text": row.key * row.value}, {"text": str}).sink(out)
    result.sink(dg.to_memory())
    run_inline(flow, 1)
    assert out.rows == [{"text": "bb"}]
