"""top: the best rows of every window and key."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from flow.flows import Rows, event, results, unordered

EVENTS = st.lists(
    st.builds(event, st.sampled_from(["a", "b"]), st.integers(0, 4), st.integers(0, 30)), min_size=1, max_size=20
)


def best(rows: Rows, n: int, ties: bool) -> Rows:
    groups = defaultdict(list)
    for row in rows:
        groups[row["ts"] // 10, row["key"]].append(row)
    found: Rows = []
    for group in groups.values():
        ordered = sorted(group, key=lambda row: (-row["value"], row["ts"]))
        kept = ordered[:n]
        if ties:
            kept = [row for row in ordered if row["value"] >= kept[-1]["value"]]
        found += kept
    return found


@pytest.mark.parametrize("ties", [False, True])
@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, n=st.integers(1, 3), rows_max=st.integers(1, 10))
def test_top_is_what_sorting_gives(ties: bool, rows: Rows, n: int, rows_max: int) -> None:
    rows = sorted(rows, key=lambda row: int(row["ts"]))
    out = results(
        rows, lambda s: s.key_by("key").window(dg.Tumbling("10ms")).top(n, by="-value", ties=ties), rows_max=rows_max
    )
    assert unordered(out) == unordered(best(rows, n, ties))


def test_top_with_rank_and_window_columns_has_a_time() -> None:
    rows = [event("a", 1, 0), event("a", 7, 2), event("b", 5, 3), event("a", 9, 12)]
    out = results(
        rows,
        lambda s: s.window(dg.Tumbling("10ms")).top(2, by=["-value", "key"], rank="place", window_columns=True),
    )
    assert [(row["value"], row["place"], row["window_start"]) for row in out] == [(7, 1, 0), (5, 2, 0), (9, 1, 10)]


def test_top_over_sliding_windows() -> None:
    rows = [event("a", value, ts) for ts, value in enumerate([5, 1, 4, 2, 3, 0])]
    out = results(
        rows,
        lambda s: s.window(dg.Sliding("4ms", every="2ms")).top(1, by="-value", window_columns=True),
        rows_max=1,
    )
    assert [(row["window_start"], row["value"]) for row in out] == [(-2, 5), (0, 5), (2, 4), (4, 3)]
