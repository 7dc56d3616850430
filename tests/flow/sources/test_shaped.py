"""Sources whose rows are released at the times of a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from dirigo import FlowError
from dirigo.flow.sources import Source, SourceBatch, Split, from_generator, from_iterable, paced, shaped
from dirigo.flow.sources import load_shapes as loads
from dirigo.flow.sources.pushed import PushedSource
from dirigo.testing import Simulation, run

BEGAN_S = 1_700_000_000.0
LOADS = st.one_of(
    st.just(loads.constant(40)),
    st.just(loads.sine(40, amplitude=1, period="2s")),
    st.just(loads.square(0, 100, period="1s", duty=0.3)),
    st.just(loads.pareto(40, 1.3, every="100ms")),
    st.just(loads.trace([3, 0, 40, 7], every="300ms", repeat=True)),
)


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())})


def every_third_is_bad(first: int, count: int) -> Sequence[Mapping[str, Any]]:
    return [{"n": "x" if number % 3 == 0 else number} for number in range(first, first + count)]


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = BEGAN_S

    def __call__(self) -> float:
        return self.now_s


def opened(source: Source, clock: Clock, splits: int = 1) -> list[Split]:
    found = list(source.splits(splits))
    for split in found:
        split.clock = clock
    return found


def read_due(split: Split, rows_max: int = 4096) -> list[int]:
    """All rows that are due."""
    rows: list[int] = []
    while not split.ended and (piece := split.read(rows_max)) is not None:
        assert piece.rows.num_rows <= rows_max
        rows += piece.rows.column("n").to_pylist()
    return rows


def due_of(load: loads.Load, count: int, number: int = 0, splits: int = 1, skew: float = 0.0) -> loads.Numbers:
    """When the first rows of a split are due, worked out row by row of the load."""
    weights = [1 / (k + 1) ** skew for k in range(splits)]
    stride = sum(weights) / weights[number]
    rows = np.array([row * stride + number * stride / splits for row in range(count)])
    return np.maximum(BEGAN_S + load.due(rows), BEGAN_S)


@settings(max_examples=100, deadline=None)
@given(
    load=LOADS,
    total=st.integers(1, 200),
    block=st.integers(1, 60),
    rows_max=st.integers(1, 50),
    splits=st.integers(1, 3),
    skew=st.sampled_from([0.0, 0.7, 2.0]),
    steps=st.lists(st.floats(0, 2), min_size=1, max_size=30),
)
def test_no_row_comes_before_its_time_and_all_come_in_the_end(
    load: loads.Load, total: int, block: int, rows_max: int, splits: int, skew: float, steps: list[float]
) -> None:
    clock = Clock()
    source = shaped(from_generator(numbers, {"n": int}, total, block=block), load, skew=skew)
    found = opened(source, clock, splits)
    rows: list[list[int]] = [[] for _ in found]
    for step in [0.0, *steps, 1e9]:
        clock.now_s += step
        for number, split in enumerate(found):
            due_s = due_of(load, total, number, len(found), skew)
            for _ in range(1_000):
                if split.ended:
                    break
                piece = split.read(rows_max)
                if piece is not None:
                    first = len(rows[number])
                    rows[number] += piece.rows.column("n").to_pylist()
                    assert piece.rows.num_rows <= rows_max
                    assert piece.due_s == pytest.approx(due_s[first], abs=1e-6)
                elif split.next_due_s is not None and split.next_due_s > clock.now_s:
                    break
            # As many as are due, but for those due so nearly now that two ways of computing it may differ.
            came = len(rows[number])
            assert (due_s[:came] <= clock.now_s + 1e-6).all()
            assert split.ended or (due_s[came:] > clock.now_s - 1e-6).all()
    assert sorted(row for each in rows for row in each) == list(range(total))
    assert all(each == sorted(each) for each in rows)


def test_each_piece_says_exactly_when_its_oldest_row_was_due() -> None:
    clock = Clock()
    (split,) = opened(shaped(from_generator(numbers, {"n": int}, 1_000), loads.constant(100)), clock)
    seen = []
    for now_s, rows_max in ((0.0, 1_000), (0.005, 1_000), (0.01, 1_000), (0.255, 10), (0.3, 10)):
        clock.now_s = BEGAN_S + now_s
        piece = split.read(rows_max)
        seen.append(piece and (piece.due_s, piece.rows.column("n").to_pylist()))
    assert seen == [
        (BEGAN_S, [0]),
        None,
        (BEGAN_S + 0.01, [1]),
        (BEGAN_S + 0.02, list(range(2, 12))),  # all that fit in a piece
        (BEGAN_S + 0.12, list(range(12, 22))),
    ]
    assert split.next_due_s == BEGAN_S + 0.22


def test_splits_with_equal_shares_take_turns() -> None:
    clock = Clock()
    splits = opened(shaped(from_generator(numbers, {"n": int}, block=1), loads.trace([5, 0, 4])), clock, 3)
    came = []
    for tick in range(61):
        clock.now_s = BEGAN_S + tick / 20
        came.append([row for split in splits for row in read_due(split)])
    assert [row for rows in came for row in rows] == list(range(9))
    assert [tick / 20 for tick, rows in enumerate(came) if rows] == [0, 0.2, 0.4, 0.6, 0.8, 2, 2.25, 2.5, 2.75]
    assert all(split.ended for split in splits)


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 3.0])
def test_shares_follow_zipf(skew: float) -> None:
    clock = Clock()
    splits = opened(shaped(from_generator(numbers, {"n": int}), loads.constant("1k/s"), skew=skew), clock, 4)
    counts = [len(read_due(split)) for split in splits]
    clock.now_s += 100
    counts = [count + len(read_due(split)) for count, split in zip(counts, splits, strict=True)]
    weights = [1 / (k + 1) ** skew for k in range(4)]
    expected = [100_000 * weight / sum(weights) for weight in weights]
    assert counts == pytest.approx(expected, abs=1)


def test_the_source_ends_with_its_trace() -> None:
    clock = Clock()
    endless = from_generator(numbers, {"n": int})
    source = shaped(endless, loads.trace([2, 3, 0]))
    assert source.is_bounded
    assert not shaped(endless, loads.trace([2, 3, 0], repeat=True)).is_bounded
    (split,) = opened(source, clock)
    came = []
    for now_s in (0, 0.5, 1, 1.5, 2, 2.9, 3):
        assert not split.ended
        clock.now_s = BEGAN_S + now_s
        piece = split.read(100)
        came.append(0 if piece is None else piece.rows.num_rows)
    assert came == [1, 1, 1, 1, 1, 0, 0]
    assert split.ended


def test_a_reader_that_is_late_still_gives_all_that_was_due() -> None:
    clock = Clock()
    (split,) = opened(shaped(from_generator(numbers, {"n": int}, block=10), loads.trace([100])), clock)
    assert read_due(split) == [0]
    clock.now_s += 1_000
    assert read_due(split, rows_max=7) == list(range(1, 100))
    assert split.ended


class Silent(Split):
    def read(self, rows_max: int) -> SourceBatch | None:
        return None

    def close(self) -> None:
        pass


class SilentSource(Source):
    def splits(self, wanted: int) -> Sequence[Split]:
        return [Silent()]


def test_a_source_that_gives_nothing_ends_with_its_trace_too() -> None:
    clock = Clock()
    silent = SilentSource(pa.schema({"n": pa.int64()}), name="silent", is_bounded=False)
    (split,) = opened(shaped(silent, loads.trace([1, 1])), clock)
    assert read_due(split) == []
    clock.now_s += 1.9
    assert split.read(10) is None
    assert not split.ended
    clock.now_s += 0.1
    assert split.read(10) is None
    assert split.ended


def test_bad_rows_have_a_place_in_the_load_like_all_others() -> None:
    clock = Clock()
    source = shaped(from_generator(every_third_is_bad, {"n": int}, 30, block=15), loads.constant(10))
    (split,) = opened(source, clock)
    good, bad = 0, 0
    for tick in range(30):
        assert not split.ended
        clock.now_s = BEGAN_S + tick / 10
        piece = split.read(100)
        assert piece is not None
        assert piece.due_s == clock.now_s
        good, bad = good + piece.rows.num_rows, bad + len(piece.bad)
        assert good + bad == tick + 1
    assert (good, bad) == (20, 10)
    assert split.ended


class PiecesSplit(Split):
    def __init__(self, pieces: Sequence[SourceBatch]) -> None:
        self._pieces = list(pieces)

    def read(self, rows_max: int) -> SourceBatch | None:
        piece = self._pieces.pop(0)
        self.ended = not self._pieces
        return piece

    def close(self) -> None:
        self.ended = True


class PiecesSource(Source):
    def splits(self, wanted: int) -> Sequence[Split]:
        first, second, third = numbers(0, 2), numbers(2, 2), numbers(4, 2)
        return [PiecesSplit([SourceBatch(first, holds_time=True), SourceBatch(second, reached_ms=9), SourceBatch(third)])]


def test_what_a_piece_says_of_time_holds_behind_its_last_row() -> None:
    clock = Clock()
    source = PiecesSource(pa.schema({"n": pa.int64()}), name="pieces", is_bounded=True)
    (split,) = opened(shaped(source, loads.constant(1)), clock)
    told = []
    while not split.ended:
        piece = split.read(10)
        assert piece is not None
        told.append((piece.holds_time, piece.reached_ms))
        clock.now_s += 1
    assert told == [(True, None), (True, None), (True, None), (False, 9), (False, None), (False, None)]


def test_a_closed_split_has_ended() -> None:
    (split,) = opened(shaped(from_generator(numbers, {"n": int}), loads.constant(1)), Clock())
    assert read_due(split) == [0]
    split.close()
    assert split.ended
    split.close()


def test_a_flow_takes_as_long_as_its_load_in_virtual_time() -> None:
    flow = dg.Dataflow("trace")
    rows = flow.source(dg.shaped(dg.from_generator(numbers, {"n": int}), dg.loads.trace([20, 0, 50, 0])), splits=2)
    rows.window(dg.Tumbling("1s", time="processing")).aggregate(n=dg.count()).sink(dg.to_memory())
    done = run(flow, workers=2)
    assert [row["n"] for row in done.rows()] == [20, 50]
    assert done.now_s == pytest.approx(4.0, abs=0.01)


def test_a_fast_load_is_kept_up_with_in_virtual_time() -> None:
    flow = dg.Dataflow("fast")
    flow.source(dg.shaped(dg.from_generator(numbers, {"n": int}, block=500), dg.loads.trace([200_000]))).sink(dg.to_memory())
    done = run(flow, rows_max=100)
    assert done.table().column("n").to_pylist() == list(range(200_000))
    assert done.now_s == pytest.approx(1.0, abs=0.03)


def test_time_goes_with_the_load_and_not_with_event_time() -> None:
    rows = [{"at": hour * 3_600_000} for hour in range(20)]
    flow = dg.Dataflow("hours")
    source = dg.shaped(dg.from_iterable(rows, time="at"), dg.loads.constant(10))
    flow.source(source).window(dg.Tumbling("1h")).aggregate(n=dg.count()).sink(dg.to_memory())
    simulation = Simulation(flow)
    simulation.advance("950ms")
    assert len(simulation.rows()) == 9  # the tenth window is open
    simulation.finish()
    assert len(simulation.rows()) == 20
    assert simulation.now_s == pytest.approx(1.9, abs=0.03)


def test_the_same_run_comes_out_of_a_flow_that_was_sent() -> None:
    flow = dg.Dataflow("sent")
    load = dg.loads.pareto(200, 1.3, every="100ms", seed=4)
    rows = flow.source(dg.shaped(dg.from_generator(numbers, {"n": int}, 1_000), load, skew=1), splits=2)
    rows.window(dg.Tumbling("500ms", time="processing")).aggregate(n=dg.count()).sink(dg.to_memory())
    here, there, chaos = run(flow), run(cloudpickle.loads(cloudpickle.dumps(flow))), run(flow, workers=2, chaos=True)
    assert here.rows() == there.rows()
    assert here.now_s == there.now_s
    assert sum(row["n"] for row in chaos.rows()) == 1_000


def test_a_source_with_two_paces_keeps_to_both() -> None:
    rows = [{"at": second * 1_000} for second in range(5)]
    flow = dg.Dataflow("both")
    flow.source(shaped(paced(from_iterable(rows, time="at")), loads.constant(100))).sink(dg.to_memory())
    simulation = Simulation(flow)
    simulation.advance("2500ms")
    assert len(simulation.rows()) == 3
    assert len(simulation.finish().rows()) == 5


@pytest.mark.parametrize("skew", [-1, 11, float("nan"), "much", True])
def test_a_skew_that_makes_no_sense_is_refused(skew: Any) -> None:
    with pytest.raises(FlowError, match=r"generator: a skew of .* makes no sense; give a number from 0 to 10"):
        shaped(from_generator(numbers, {"n": int}), loads.constant(1), skew=skew)


def test_what_is_no_load_is_refused() -> None:
    with pytest.raises(FlowError, match=r"generator: '10/s' is no load; take one of dg.loads"):
        shaped(from_generator(numbers, {"n": int}), "10/s")  # type: ignore[arg-type]


def test_rows_that_are_pushed_cannot_be_held_back() -> None:
    with pytest.raises(FlowError, match="pushed: its rows are pushed by others"):
        shaped(PushedSource({"n": int}), loads.constant(1))
