"""Loads: how many rows come when. For experiments and demos, with ``dg.shaped(source, load)``.

A load is a cycle of intervals, each with a number of rows that are evenly spaced in it; the cycle is repeated for ever, or
for a trace gone through once. So it takes little memory however long it goes on, and is the same on every worker.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dirigo.flow.api.duration import Duration, positive_milliseconds
from dirigo.flow.api.rate import Rate, is_number, positive_rows_per_second, rows_per_second
from dirigo.flow.errors import FlowError

__all__ = ["Constant", "Load", "Pareto", "Sine", "Square", "Trace", "constant", "pareto", "sine", "square", "trace"]

Numbers = npt.NDArray[np.float64]

PARETO_INTERVALS: Final = 1 << 16
_SINE_INTERVALS: Final = 256


def constant(rate: Rate) -> Constant:
    """The same at all times. A rate is in rows per second, over all splits: "50k/s" or a number."""
    return Constant(positive_rows_per_second(rate, "loads.constant: rate"))


def pareto(rate: Rate, alpha: float, *, every: Duration = "1s", seed: int = 0, burst_max: float = 20.0) -> Pareto:
    """Bursts: a new rate in each interval of length `every`, drawn from a Pareto distribution whose mean is `rate`.

    The smaller `alpha` (above 1), the rarer and the higher the bursts; none is higher than `burst_max` times `rate`. The
    same `seed` gives the same bursts. After 65,536 intervals they begin anew, and by then their mean is exactly `rate`.
    """
    rate_per_s = positive_rows_per_second(rate, "loads.pareto: rate")
    if not is_number(alpha) or not 1 < alpha < math.inf:
        raise FlowError(f"loads.pareto: with an alpha of {alpha!r} there is no mean rate; give a number above 1.")
    if not is_number(burst_max) or not 1 < burst_max < math.inf:
        raise FlowError(f"loads.pareto: a burst_max of {burst_max!r} leaves no room for bursts; give a number above 1.")
    if not _is_whole(seed) or seed < 0:
        raise FlowError(f"loads.pareto: {seed!r} is not a seed; give a whole number of 0 or more.")
    return Pareto(rate_per_s, alpha, positive_milliseconds(every, "loads.pareto: every"), seed, burst_max)


def sine(rate: Rate, *, amplitude: float = 0.5, period: Duration = "60s") -> Sine:
    """A wave around `rate`, up and down by the share `amplitude` of it. It begins in the middle, going up."""
    rate_per_s = positive_rows_per_second(rate, "loads.sine: rate")
    if not is_number(amplitude) or not 0 <= amplitude <= 1:
        raise FlowError(f"loads.sine: an amplitude of {amplitude!r} makes no sense; give a share of the rate, from 0 to 1.")
    return Sine(rate_per_s, amplitude, positive_milliseconds(period, "loads.sine: period"))


def square(low: Rate, high: Rate, *, period: Duration = "20s", duty: float = 0.5) -> Square:
    """Two rates in turn: `low`, and then `high` for the share `duty` of each period."""
    low_per_s = rows_per_second(low, "loads.square: low")
    high_per_s = positive_rows_per_second(high, "loads.square: high")
    if low_per_s > high_per_s:
        raise FlowError(f"loads.square: low is {low!r} and high is {high!r}, which is less; exchange them.")
    if not is_number(duty) or not 0 < duty < 1:
        raise FlowError(
            f"loads.square: a duty of {duty!r} leaves one rate only; give a share of the period between 0 and 1."
        )
    return Square(low_per_s, high_per_s, positive_milliseconds(period, "loads.square: period"), duty)


def trace(counts: Iterable[float], *, every: Duration = "1s", repeat: bool = False) -> Trace:
    """A recorded load: how many rows came in each interval of length `every`.

    When it is over, the source ends, and rows that are left are not released; with `repeat` it begins anew instead.
    """
    every_ms = positive_milliseconds(every, "loads.trace: every")
    numbers = () if isinstance(counts, str | bytes) or not isinstance(counts, Iterable) else tuple(counts)
    try:
        numbers = tuple(float(number) for number in numbers)
    except (TypeError, ValueError):
        numbers = ()
    if not numbers:
        raise FlowError("loads.trace: give the number of rows of each interval, for example [100, 250, 0, 80].")
    for place, number in enumerate(numbers):
        if not 0 <= number < math.inf:
            raise FlowError(f"loads.trace: interval {place} has {number:g} rows; give numbers of zero or more.")
    if not 0 < sum(numbers) < math.inf:
        raise FlowError("loads.trace: no interval has any rows; give at least one number above zero.")
    return Trace(numbers, every_ms, repeat)


class Load(ABC):
    """How many rows come when, over all splits of a source."""

    @property
    def is_endless(self) -> bool:
        return True

    @abstractmethod
    def intervals(self) -> tuple[Numbers, Numbers]:
        """Of one cycle: when each interval ends, in seconds, and the number of rows in it, which need not be whole."""

    @property
    def mean_per_s(self) -> float:
        """Rows per second over a whole cycle."""
        return self._cycle.rows / self._cycle.seconds

    @property
    def duration_s(self) -> float:
        """How long it goes on: infinitely, unless it is a trace that is not repeated."""
        return math.inf if self.is_endless else self._cycle.seconds

    def rows_by(self, seconds: float) -> float:
        """How many rows have come after so many seconds, in between whole rows too."""
        cycle = self._cycle
        cycles, rest_s = divmod(max(seconds, 0.0), cycle.seconds)
        if cycles and not self.is_endless:
            return cycle.rows
        begins_s, before = np.append(cycle.begins_s, cycle.seconds), np.append(cycle.before, cycle.rows)
        return float(cycles * cycle.rows + np.interp(rest_s, begins_s, before))

    def due(self, rows: Numbers) -> Numbers:
        """When these rows come, in seconds, infinity for never. Row 0 is the first of all, and 0.5 half way to the next."""
        cycle = self._cycle
        cycles, rest = np.divmod(rows, cycle.rows)
        # A row at the border of two intervals is the first of the later one, and an interval without rows has none.
        at = np.searchsorted(cycle.before, rest, side="right") - 1
        into_s = (rest - cycle.before[at]) * cycle.lengths_s[at] / cycle.counts[at]
        due: Numbers = cycles * cycle.seconds + cycle.begins_s[at] + into_s
        return due if self.is_endless else np.where(cycles > 0, np.inf, due)

    @cached_property
    def _cycle(self) -> _Cycle:
        return _Cycle(*self.intervals())

    def __getstate__(self) -> dict[str, Any]:
        """Without the intervals, which are made anew elsewhere."""
        return {name: value for name, value in self.__dict__.items() if name != "_cycle"}


@dataclass(frozen=True)
class Constant(Load):
    """The same at all times."""

    rate_per_s: float

    def intervals(self) -> tuple[Numbers, Numbers]:
        return np.array([1.0]), np.array([self.rate_per_s])


@dataclass(frozen=True)
class Pareto(Load):
    """Bursts of a Pareto distribution."""

    rate_per_s: float
    alpha: float
    every_ms: int
    seed: int
    burst_max: float

    def intervals(self) -> tuple[Numbers, Numbers]:
        drawn = (1.0 - np.random.Generator(np.random.PCG64(self.seed)).random(PARETO_INTERVALS)) ** (-1.0 / self.alpha)
        factors = np.minimum(drawn * _scale(drawn, self.burst_max), self.burst_max)
        every_s = self.every_ms / 1000
        return _ends_s(PARETO_INTERVALS, self.every_ms), factors * (self.rate_per_s * every_s)


@dataclass(frozen=True)
class Sine(Load):
    """A wave, in steps small enough not to be noticed."""

    rate_per_s: float
    amplitude: float
    period_ms: int

    def intervals(self) -> tuple[Numbers, Numbers]:
        period_s = self.period_ms / 1000
        shares = np.arange(_SINE_INTERVALS + 1) / _SINE_INTERVALS
        wave = self.amplitude / math.tau * (1 - np.cos(math.tau * shares))  # the integral of the sine
        return shares[1:] * period_s, np.diff(shares + wave) * (self.rate_per_s * period_s)


@dataclass(frozen=True)
class Square(Load):
    """Two rates in turn."""

    low_per_s: float
    high_per_s: float
    period_ms: int
    duty: float

    def intervals(self) -> tuple[Numbers, Numbers]:
        period_s = self.period_ms / 1000
        high_s = self.duty * period_s
        low_s = period_s - high_s
        return np.array([low_s, period_s]), np.array([self.low_per_s * low_s, self.high_per_s * high_s])


@dataclass(frozen=True)
class Trace(Load):
    """A recorded load."""

    counts: tuple[float, ...]
    every_ms: int
    repeats: bool

    @property
    def is_endless(self) -> bool:
        return self.repeats

    def intervals(self) -> tuple[Numbers, Numbers]:
        return _ends_s(len(self.counts), self.every_ms), np.array(self.counts)


class _Cycle:
    """The intervals of a load as arrays: what `due` looks things up in."""

    def __init__(self, ends_s: Numbers, counts: Numbers) -> None:
        by_the_end = np.cumsum(counts)
        self.begins_s = np.concatenate(([0.0], ends_s[:-1]))
        self.lengths_s = ends_s - self.begins_s
        self.before = np.concatenate(([0.0], by_the_end[:-1]))  # rows that came before each interval
        self.counts = counts
        self.seconds = float(ends_s[-1])
        self.rows = float(by_the_end[-1])


def _scale(drawn: Numbers, most: float) -> float:
    """What to multiply these numbers by, so that their mean is 1 after all above `most` are cut off there."""
    falling = np.sort(drawn)[::-1]
    rest = np.cumsum(falling[::-1])[::-1]  # sum of a number and all below it
    cut = np.arange(len(drawn))  # how many of the largest are cut off
    scales = (len(drawn) - cut * most) / rest
    return float(scales[np.argmax(scales * falling <= most)])


def _ends_s(intervals: int, every_ms: int) -> Numbers:
    ends: Numbers = np.arange(1, intervals + 1) * every_ms / 1000
    return ends


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
