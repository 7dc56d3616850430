"""How many rows come when: the shapes of loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo import FlowError
from dirigo.flow.sources import load_shapes as loads

RATES = st.floats(0.01, 1e6)
PERIODS = st.integers(1, 100_000).map("{}ms".format)
LOADS = st.one_of(
    st.builds(loads.constant, RATES),
    st.builds(loads.sine, RATES, amplitude=st.floats(0, 1), period=PERIODS),
    st.builds(loads.square, st.floats(0, 0.01), RATES, period=PERIODS, duty=st.floats(0.01, 0.99)),
    st.builds(
        loads.trace,
        st.lists(st.integers(0, 1_000), min_size=1, max_size=20).filter(any),
        every=PERIODS,
        repeat=st.booleans(),
    ),
)


def numbers(count: int) -> loads.Numbers:
    return np.arange(count, dtype=np.float64)


@pytest.mark.parametrize(
    "load",
    [
        loads.constant("50k/s"),
        loads.pareto("50k/s", 1.1),
        loads.pareto("50k/s", 3, every="200ms", seed=9, burst_max=1.5),
        loads.sine("50k/s"),
        loads.sine("50k/s", amplitude=1, period="7s"),
        loads.square("20k/s", "80k/s"),
        loads.square(0, "200k/s", duty=0.25),
        loads.trace([10_000, 0, 20_000], every="200ms"),
    ],
    ids=str,
)
def test_the_mean_is_what_was_asked_for(load: loads.Load) -> None:
    assert load.mean_per_s == pytest.approx(50_000, rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(load=LOADS, first=st.floats(0, 1e9), more=st.integers(1, 50))
def test_rows_come_one_after_the_other_at_the_pace_of_the_load(load: loads.Load, first: float, more: int) -> None:
    rows = first % load.rows_by(load.duration_s) + numbers(more) if not load.is_endless else first + numbers(more)
    due = load.due(rows)
    came = due[np.isfinite(due)]
    assert len(came) == more or not load.is_endless
    assert (np.diff(came) >= -1e-9 * came[:-1]).all()
    # What lies between two moments that floats can tell apart.
    between = [load.rows_by(at * (1 + sign * 1e-9) + sign * 1e-9) for at in came for sign in (-1, 1)]
    for row, low, high in zip(rows, between[::2], between[1::2], strict=False):
        assert low - 1e-6 <= row * (1 + 1e-9) + 1e-6
        assert high + 1e-6 >= row * (1 - 1e-9) - 1e-6


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any),
    every_ms=st.integers(1, 5_000),
    repeat=st.booleans(),
)
def test_a_trace_has_exactly_its_counts(counts: list[int], every_ms: int, repeat: bool) -> None:
    load = loads.trace(counts, every=f"{every_ms}ms", repeat=repeat)
    due = load.due(numbers(2 * sum(counts)))
    once, again = due[: sum(counts)], due[sum(counts) :]
    borders = np.arange(len(counts) + 1) * every_ms / 1000
    assert np.histogram(once, borders)[0].tolist() == counts
    assert (once < borders[-1]).all()  # a histogram counts its right end in
    if repeat:
        assert again == pytest.approx(once + borders[-1])
        assert load.duration_s == float("inf")
    else:
        assert (again == np.inf).all()
        assert load.duration_s == borders[-1]
        assert load.rows_by(1e9) == sum(counts)


def test_rows_are_evenly_spaced_within_an_interval() -> None:
    assert loads.trace([4, 0, 2]).due(numbers(6)).tolist() == [0, 0.25, 0.5, 0.75, 2, 2.5]
    assert loads.constant(10).due(numbers(31)).tolist() == [number / 10 for number in range(31)]


def test_bursts_have_a_bound_and_a_seed() -> None:
    def rates(load: loads.Load) -> loads.Numbers:
        return load.intervals()[1]

    wild, tame = loads.pareto(100, 1.2, seed=1), loads.pareto(100, 4, seed=1)
    assert rates(wild).max() == pytest.approx(20 * 100)
    assert rates(loads.pareto(100, 1.2, burst_max=3)).max() == pytest.approx(3 * 100)
    assert np.median(rates(wild)) < np.median(rates(tame)) < 100
    assert rates(wild).std() > 3 * rates(tame).std()
    # Pareto's law, where nothing is cut off: twice as high is 2 ** alpha times as rare.
    above = [(rates(tame) > height).sum() for height in (100, 200)]
    assert above[0] / above[1] == pytest.approx(2**4, rel=0.2)
    assert (rates(wild) == rates(loads.pareto(100, 1.2, seed=1))).all()
    assert (rates(wild) != rates(loads.pareto(100, 1.2, seed=2))).any()


def test_bursts_begin_anew_after_a_long_time() -> None:
    load = loads.pareto(1_000, 1.5, every="10ms")
    cycle_s = loads.PARETO_INTERVALS * 0.01
    far = 1e9
    assert load.due(np.array([far + 1_000 * cycle_s])) == pytest.approx(load.due(np.array([far])) + cycle_s)


def test_a_wave_goes_up_and_down() -> None:
    load = loads.sine(1_000, amplitude=0.8, period="100s")
    by_second = [load.rows_by(second + 1) - load.rows_by(second) for second in range(100)]
    assert by_second[0] == pytest.approx(1_000, rel=0.05)
    assert max(by_second) == pytest.approx(1_800, rel=0.001) == by_second[24]
    assert min(by_second) == pytest.approx(200, rel=0.01) == by_second[74]


def test_two_rates_take_turns() -> None:
    load = loads.square(10, 100, period="4s", duty=0.25)
    assert [load.rows_by(second) for second in (1, 3, 4, 7, 8)] == [10, 30, 130, 160, 260]


def test_a_load_is_equal_and_small_wherever_it_is_sent() -> None:
    load = loads.pareto("1k/s", 1.5, seed=3)
    due = load.due(numbers(1_000))
    sent = cloudpickle.dumps(load)
    assert len(sent) < 500
    again = cloudpickle.loads(sent)
    assert again == load
    assert (again.due(numbers(1_000)) == due).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: loads.constant(-1), "loads.constant: rate: -1 is not a rate that can be met; give one above zero"),
        (lambda: loads.constant(0), "above zero"),
        (lambda: loads.constant("fast"), "'fast' is not a rate; write it like"),
        (lambda: loads.constant(float("nan")), "above zero"),
        (lambda: loads.pareto(-5, 2), "loads.pareto: rate"),
        (lambda: loads.pareto(5, 1), "with an alpha of 1 there is no mean rate; give a number above 1"),
        (lambda: loads.pareto(5, float("nan")), "alpha of nan"),
        (lambda: loads.pareto(5, 2, every="0s"), "loads.pareto: every"),
        (lambda: loads.pareto(5, 2, seed=-1), "-1 is not a seed"),
        (lambda: loads.pareto(5, 2, burst_max=1), "a burst_max of 1 leaves no room"),
        (lambda: loads.sine(5, amplitude=1.1), "an amplitude of 1.1 makes no sense"),
        (lambda: loads.sine(5, amplitude=-0.1), "an amplitude of -0.1 makes no sense"),
        (lambda: loads.sine(5, period="0s"), "loads.sine: period"),
        (lambda: loads.square(-1, 5), "loads.square: low: -1 is not a rate that can be met; give one of zero or more"),
        (lambda: loads.square(5, 1), "low is 5 and high is 1, which is less; exchange them"),
        (lambda: loads.square(0, 0), "loads.square: high"),
        (lambda: loads.square(1, 5, duty=1), "a duty of 1 leaves one rate only"),
        (lambda: loads.trace([]), "give the number of rows of each interval"),
        (lambda: loads.trace("123"), "give the number of rows of each interval"),  # type: ignore[arg-type]
        (lambda: loads.trace(["many"]), "give the number of rows of each interval"),  # type: ignore[list-item]
        (lambda: loads.trace([1, -2]), "interval 1 has -2 rows; give numbers of zero or more"),
        (lambda: loads.trace([0, 0]), "no interval has any rows"),
        (lambda: loads.trace([1], every="0s"), "loads.trace: every"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(FlowError, match=words):
        make()
