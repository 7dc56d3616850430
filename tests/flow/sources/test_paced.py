"""Sources played back at the pace of their event time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import dirigo as dg
from dirigo import FlowError
from dirigo.flow.sources import Split, from_iterable, paced
from dirigo.testing import Simulation

BEGAN_S = 1_700_000_000.0


def given_by_second(split: Split, seconds: int) -> list[tuple[float, list[Any]] | None]:
    """For each second: when the oldest row was due, since the beginning, and which rows came."""
    found: list[tuple[float, list[Any]] | None] = []
    for second in range(seconds):
        split.clock = partial(float, BEGAN_S + second)
        piece = split.read(100)
        if piece is None:
            found.append(None)
        else:
            assert piece.due_s is not None
            found.append((piece.due_s - BEGAN_S, piece.rows.column("at").to_pylist()))
    return found


def split_of(times: list[int | None], **options: Any) -> Split:
    (split,) = paced(from_iterable([{"at": at} for at in times], {"at": int}, time="at"), **options).splits(1)
    return split


def test_rows_come_when_they_happened() -> None:
    split = split_of([5_000, 5_500, 6_250, 9_000])
    assert given_by_second(split, 5) == [(0, [5_000]), (0.5, [5_500]), (1.25, [6_250]), None, (4, [9_000])]
    assert split.ended


def test_twice_as_fast() -> None:
    assert given_by_second(split_of([0, 1_000, 4_000], speed=2), 3) == [(0, [0]), (0.5, [1_000]), (2, [4_000])]


def test_from_a_given_time_on() -> None:
    split = split_of([500, 3_000, 4_000], begins_ms=2_000)
    assert given_by_second(split, 3) == [(0, [500]), (1, [3_000]), (2, [4_000])]


def test_a_row_out_of_order_comes_with_the_one_in_front_of_it() -> None:
    assert given_by_second(split_of([0, 2_000, 1_000, 3_000]), 4) == [(0, [0]), None, (2, [2_000, 1_000]), (3, [3_000])]


def test_a_row_without_a_valid_time_holds_nobody_up() -> None:
    split = split_of([None, 1_000, None, 10**17, 2_000])
    assert given_by_second(split, 2) == [(0, [None, 1_000, None, 10**17]), (1, [2_000])]


def test_virtual_time_goes_at_the_pace_of_event_time() -> None:
    flow = dg.Dataflow("hour")
    source = dg.paced(dg.from_iterable([{"at": 60_000 * minute} for minute in range(61)], time="at"), speed=2)
    flow.source(source).sink(dg.to_memory())
    simulation = Simulation(flow)
    simulation.advance("10m")
    assert len(simulation.rows()) == 20  # the one that is due now is on its way
    simulation.advance("1s")
    assert len(simulation.rows()) == 21
    assert len(simulation.finish().rows()) == 61
    assert simulation.now_s == pytest.approx(1_800, abs=0.03)


def test_what_has_no_time_has_no_pace() -> None:
    with pytest.raises(FlowError, match="rows: it has no event time to keep pace with"):
        paced(from_iterable([{"a": 1}]))
    with pytest.raises(FlowError, match="rows: a speed of 0 cannot be kept"):
        paced(from_iterable([{"at": 1}], time="at"), speed=0)
