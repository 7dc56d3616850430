"""Session windows: rows of a key with no more than a gap between them, also when they come late."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from flow.flows import TS_SCHEMA, Rows, event, results, run_inline, unordered

EVENTS = st.lists(
    st.builds(event, st.sampled_from(["a", "b", "c"]), st.integers(-9, 9), st.integers(0, 60)), min_size=1, max_size=15
)


def sessions(rows: Rows, gap: int) -> Rows:
    """Count and sum of every session, the slow way."""
    found: Rows = []
    for key in {row["key"] for row in rows}:
        for row in sorted((row for row in rows if row["key"] == key), key=lambda row: int(row["ts"])):
            last = found[-1] if found else None
            if last is None or last["key"] != key or row["ts"] > last["window_end"]:
                found.append({"key": key, "n": 0, "total": 0, "window_start": row["ts"], "window_end": 0})
                last = found[-1]
            last["n"] += 1
            last["total"] += row["value"]
            last["window_end"] = row["ts"] + gap
    return found


def aggregated(stream: dg.Stream, gap: int, lateness: str = "0ms") -> dg.Stream:
    windowed = stream.key_by("key").window(dg.Session(f"{gap}ms"), allowed_lateness=lateness)
    return windowed.aggregate(n=dg.count(), total=dg.sum("value"))


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, gap=st.integers(1, 15), rows_max=st.integers(1, 10))
def test_sessions_are_what_a_plain_loop_finds(rows: Rows, gap: int, rows_max: int) -> None:
    rows = sorted(rows, key=lambda row: int(row["ts"]))
    out = results(rows, lambda s: aggregated(s, gap), rows_max=rows_max)
    assert unordered(out) == unordered(sessions(rows, gap))


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, gap=st.integers(1, 15), rows_max=st.integers(1, 10))
def test_sessions_of_rows_out_of_order_within_the_promise(rows: Rows, gap: int, rows_max: int) -> None:
    out = results(rows, lambda s: aggregated(s, gap), rows_max=rows_max, out_of_orderness="60ms")
    assert unordered(out) == unordered(sessions(rows, gap))


@pytest.mark.parametrize("rows_max", [1, 10])
def test_rows_exactly_a_gap_apart_are_in_one_session(rows_max: int) -> None:
    # The other key has moved the watermark to the end of the session before the row that touches it comes.
    rows = [event("a", 1, 0), event("b", 9, 10), event("a", 2, 10), event("b", 9, 20), event("a", 4, 20), event("a", 8, 31)]
    out = results(rows, lambda s: aggregated(s, 10), rows_max=rows_max)
    assert unordered(row for row in out if row["key"] == "a") == unordered(
        [
            {"key": "a", "n": 3, "total": 7, "window_start": 0, "window_end": 30},
            {"key": "a", "n": 1, "total": 8, "window_start": 31, "window_end": 41},
        ]
    )


def with_late(rows: Rows, gap: int, lateness: str = "0ms", rows_max: int = 1) -> tuple[Rows, Rows]:
    flow = dg.Dataflow("late", watermark_every="1ms")
    result = aggregated(flow.source(dg.from_iterable(rows, TS_SCHEMA, time="ts")), gap, lateness)
    out, late = dg.to_memory(), dg.to_memory()
    result.sink(out)
    result.late.sink(late)
    run_inline(flow, rows_max)
    return out.rows, late.rows


def test_a_late_row_that_touches_an_open_session_belongs_to_it() -> None:
    # The session of 40 is open at watermark 41. 31 + 5 would be over for long, but touches 36..., which touches 40.
    rows = [event("a", 1, 40), event("b", 1, 47), event("a", 2, 37), event("a", 4, 33), event("a", 8, 20)]
    out, late = with_late(rows, 8)
    assert late == [event("a", 8, 20)]
    assert {"key": "a", "n": 3, "total": 7, "window_start": 33, "window_end": 48} in out


def test_a_late_row_of_a_key_without_an_open_session_is_late() -> None:
    out, late = with_late([event("a", 1, 40), event("b", 2, 10)], 5)
    assert late == [event("b", 2, 10)]
    assert out == [{"key": "a", "n": 1, "total": 1, "window_start": 40, "window_end": 45}]


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, gap=st.integers(1, 15), lateness=st.integers(0, 10))
def test_no_row_is_lost_however_late(rows: Rows, gap: int, lateness: int) -> None:
    out, late = with_late(rows, gap, f"{lateness}ms")
    assert sum(row["n"] for row in out) + len(late) == len(rows)
    assert sum(row["total"] for row in out) + sum(row["value"] for row in late) == sum(row["value"] for row in rows)


def test_allowed_lateness_keeps_sessions_open() -> None:
    rows = [event("a", 1, 0), event("b", 1, 20), event("a", 2, 4)]
    assert with_late(rows, 5)[1] == [event("a", 2, 4)]
    out, late = with_late(rows, 5, "20ms")
    assert late == []
    assert {"key": "a", "n": 2, "total": 3, "window_start": 0, "window_end": 9} in out


@pytest.mark.parametrize("lateness", ["0ms", "7ms"])
def test_windows_behind_sessions_get_all_of_them(lateness: str) -> None:
    rows = [event("ab"[ts % 2], 1, ts * 5) for ts in range(40)]
    out = results(
        rows,
        lambda s: (
            aggregated(s, 2, lateness)
            .rename(window_start="from_", window_end="until")
            .window(dg.Tumbling("10ms"))
            .aggregate(n=dg.count())
        ),
        rows_max=1,
    )
    assert sum(row["n"] for row in out) == 40
    assert len({row["window_start"] for row in out}) == len(out)


def test_sessions_without_keys() -> None:
    rows = [event("a", 1, 0), event("b", 2, 4), event("c", 4, 20)]
    out = results(rows, lambda s: s.window(dg.Session("5ms")).aggregate(total=dg.sum("value")), rows_max=1)
    assert out == [
        {"total": 3, "window_start": 0, "window_end": 9},
        {"total": 4, "window_start": 20, "window_end": 25},
    ]


def test_sessions_can_be_ranked_folded_and_applied_to() -> None:
    rows = [event("a", 3, 0), event("b", 7, 1), event("a", 5, 2), event("a", 1, 50)]

    def biggest(one: dg.Row, other: dg.Row) -> Any:
        return one if one.value >= other.value else other

    def spans(group: dg.Group) -> Rows:
        return [{"text": f"{group.key['key']} {group.start_ms}-{group.end_ms}: {sorted(r.value for r in group.rows)}"}]

    session = dg.Session("10ms")
    top = results(rows, lambda s: s.key_by("key").window(session).top(1, by="-value"), rows_max=1)
    assert unordered(top) == unordered([event("a", 5, 2), event("a", 1, 50), event("b", 7, 1)])
    folded = results(rows, lambda s: s.key_by("key").window(session).reduce(biggest).select("value", "window_end"))
    assert unordered(folded) == unordered(
        [{"value": 5, "window_end": 12}, {"value": 1, "window_end": 60}, {"value": 7, "window_end": 11}]
    )
    applied = results(rows, lambda s: s.key_by("key").window(session).apply(spans, {"text": str}).select("text"))
    assert {row["text"] for row in applied} == {"a 0-12: [3, 5]", "a 50-60: [1]", "b 1-11: [7]"}


def test_aggregates_with_tables_of_their_own_work_in_sessions() -> None:
    rows = [event("a", value, ts) for ts, value in enumerate([3, 1, 3, 2])] + [event("b", 9, 2), event("a", 5, 99)]
    out = results(
        sorted(rows, key=lambda row: int(row["ts"])),
        lambda s: s.key_by("key").window(dg.Session("10ms")).aggregate(kinds=dg.distinct("value"), mid=dg.median("value")),
        rows_max=2,
    )
    assert unordered(out) == unordered(
        [
            {"key": "a", "kinds": 3, "mid": 2.5, "window_start": 0, "window_end": 13},
            {"key": "b", "kinds": 1, "mid": 9.0, "window_start": 2, "window_end": 12},
            {"key": "a", "kinds": 1, "mid": 5.0, "window_start": 99, "window_end": 109},
        ]
    )
