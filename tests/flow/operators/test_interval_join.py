"""The join of two streams by nearness in time, while many watermarks pass: against nested loops."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from dirigo.flow.operators.joins import interval_join, matching
from flow.flows import Rows, run_inline, unordered

LEFT = pa.schema([("id", pa.int64()), ("left", pa.int64()), ("ts", pa.int64())])
RIGHT = pa.schema([("id", pa.int64()), ("right", pa.int64()), ("ts", pa.int64())])
LATENESS_MS = 15


def sides(name: str) -> st.SearchStrategy[Rows]:
    """Rows that go on in time by steps, and lie behind by no more than the allowed disorder."""
    move = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, LATENESS_MS))
    return st.lists(move, max_size=40).map(lambda moves: _rows_of(name, moves))


def _rows_of(name: str, moves: list[tuple[int, int, int]]) -> Rows:
    rows, now = [], LATENESS_MS
    for number, (key, step, back) in enumerate(moves):
        now += step
        rows.append({"id": key, name: number, "ts": now - back})
    return rows


def joined(left: Rows, right: Rows, before: int, after: int, rows_max: int, lateness_ms: int = LATENESS_MS) -> Rows:
    flow = dg.Dataflow("join", watermark_every="1ms", partitions=2)
    times: dict[str, Any] = {"time": "ts", "out_of_orderness": f"{lateness_ms}ms"}
    out = dg.to_memory()
    one, other = (flow.source(dg.from_iterable(left, LEFT, **times)), flow.source(dg.from_iterable(right, RIGHT, **times)))
    one.join(other, on="id", within=(f"{before}ms", f"{after}ms")).sink(out)
    run_inline(flow, rows_max)
    return out.rows


def nested_loops(left: Rows, right: Rows, before: int, after: int) -> Rows:
    return [
        {**one, "right": other["right"], "ts_right": other["ts"]}
        for one in left
        for other in right
        if one["id"] == other["id"] and one["ts"] - before <= other["ts"] <= one["ts"] + after
    ]


@settings(deadline=None, max_examples=60)
@given(
    left=sides("left"),
    right=sides("right"),
    before=st.integers(0, 40),
    after=st.integers(0, 40),
    rows_max=st.integers(1, 10),
)
def test_every_pair_near_in_time_comes_once_while_time_moves_on(
    left: Rows, right: Rows, before: int, after: int, rows_max: int
) -> None:
    assert unordered(joined(left, right, before, after, rows_max)) == unordered(nested_loops(left, right, before, after))


@pytest.mark.parametrize(("before", "after"), [(0, 30), (30, 0), (30, 30)])
@pytest.mark.parametrize("rows_max", [1, 300])  # time moves on in small steps, or all at once
def test_few_more_pairs_are_made_than_come_out(
    before: int, after: int, rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def counted(left: Any, right: Any) -> Any:
        nonlocal made
        found = matching.pairs(left, right)
        made += len(found[0])
        return found

    monkeypatch.setattr(interval_join, "pairs", counted)
    left = [{"id": ts % 2, "left": ts, "ts": ts} for ts in range(300)]
    right = [{"id": ts % 2, "right": ts, "ts": ts} for ts in range(300)]
    # With so much disorder allowed, far more rows are waiting for their time than are near to each other.
    out = joined(left, right, before, after, rows_max, lateness_ms=100)
    assert unordered(out) == unordered(nested_loops(left, right, before, after))
    assert len(out) <= made <= 2.2 * len(out)
