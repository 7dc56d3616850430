"""deduplicate: the first row of every key, for ever or within a stretch of time."""

from __future__ import annotations

from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo.flow as dg
from dirigo.flow.states import Kept, StageStates
from dirigo.kernel.instance import Instance
from flow.flows import FakeClock, Rows, Running, collected, event, results, unordered

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


def test_within_forgets_keys_that_can_have_no_duplicates_any_more() -> None:
    flow = dg.Dataflow("forget", watermark_every="1ms", partitions=1)
    rows = [event(f"key {number}", 0, number * 10) for number in range(50)]
    out = collected(flow.source(dg.from_iterable(rows, time="ts")).deduplicate("key", within="20ms", name="dedup"))
    running = Running(flow, FakeClock())
    for _ in rows:
        running.read()
    instance = running.host.worker.parties["forget/dedup/0"]
    assert isinstance(instance, Instance)
    kept = cast(StageStates, instance.states).own
    assert isinstance(kept, Kept)
    assert len(kept.value) <= 3
    running.finish()
    assert len(out.rows) == 50


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
