"""Aggregates, top and apply over a whole keyed stream: at its end, or of what changed at every watermark."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from flow.flows import Rows, event, results, unordered

EVENTS = st.lists(
    st.builds(event, st.sampled_from(["a", "b", "c"]), st.integers(-9, 9), st.integers(0, 60)), min_size=1, max_size=20
)


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, rows_max=st.integers(1, 10))
def test_at_the_end_there_is_one_row_per_key(rows: Rows, rows_max: int) -> None:
    out = results(
        rows, lambda s: s.key_by("key").aggregate(n=dg.count(), least=dg.min("value")), rows_max=rows_max, time=None
    )
    values = defaultdict(list)
    for row in rows:
        values[row["key"]].append(row["value"])
    assert unordered(out) == unordered({"key": key, "n": len(v), "least": min(v)} for key, v in values.items())


def test_at_every_watermark_the_keys_that_changed_are_emitted() -> None:
    rows = [event("a", 1, 0), event("b", 2, 10), event("a", 4, 20), event("a", 8, 30)]
    out = results(rows, lambda s: s.key_by("key").aggregate(emit="watermark", total=dg.sum("value")), rows_max=1)
    assert [row["total"] for row in out if row["key"] == "a"] == [1, 5, 13]
    assert [row["total"] for row in out if row["key"] == "b"] == [2]


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, rows_max=st.integers(1, 10))
def test_the_last_update_of_every_key_is_its_result_and_no_row_is_late(rows: Rows, rows_max: int) -> None:
    out = results(
        rows,
        lambda s: s.key_by("key").aggregate(emit="watermark", n=dg.count(), kinds=dg.distinct("value")),
        rows_max=rows_max,
    )
    last = {row["key"]: (row["n"], row["kinds"]) for row in out}
    values = defaultdict(list)
    for row in rows:
        values[row["key"]].append(row["value"])
    assert last == {key: (len(v), len(set(v))) for key, v in values.items()}


def test_distinct_keys_are_an_aggregation_without_aggregates() -> None:
    rows = [event("a", 1, 0), event("b", 2, 1), event("a", 3, 2)]
    assert unordered(results(rows, lambda s: s.key_by("key").aggregate())) == unordered([{"key": "a"}, {"key": "b"}])


def test_top_at_every_watermark_emits_the_best_so_far() -> None:
    rows = [event("a", 1, 0), event("a", 5, 10), event("b", 3, 20), event("a", 2, 30)]
    out = results(rows, lambda s: s.key_by("key").top(1, by="-value", emit="watermark"), rows_max=1)
    assert [row["value"] for row in out if row["key"] == "a"] == [1, 5, 5]
    assert [row["value"] for row in out if row["key"] == "b"] == [3]


def test_apply_gets_all_rows_of_a_key_at_the_end_without_a_window() -> None:
    def spread(group: dg.Group) -> Rows:
        assert group.start_ms is None
        assert group.end_ms is None
        values = [row.value for row in group.rows]
        return [{"key": group.key["key"], "spread": max(values) - min(values)}]

    rows = [event("a", 1, 0), event("b", 2, 1), event("a", 9, 2)]
    out = results(rows, lambda s: s.key_by("key").apply(spread, {"key": str, "spread": int}))
    assert unordered(out) == unordered([{"key": "a", "spread": 8}, {"key": "b", "spread": 0}])


def test_results_of_the_whole_stream_have_no_time() -> None:
    flow = dg.Dataflow("whole")
    assert flow.source(dg.from_iterable([event("a", 1, 0)], time="ts")).key_by("key").aggregate(n=dg.count()).time is None
