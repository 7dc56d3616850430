"""How long a message is under way: distributions of delays, as functions of a random generator.

Owns the shapes only; which link has which, and in what order messages come out, is decided in ``network``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Delay = Callable[[Random], float]  # in seconds; any function will do


def constant(seconds: float) -> Delay:
    """Always the same, and no random number is drawn."""
    return lambda _: seconds


def uniform(least_s: float, most_s: float) -> Delay:
    """Anything in a range is equally likely."""
    width_s = most_s - least_s
    return lambda rng: least_s + width_s * rng.random()


def exponential(mean_s: float, least_s: float = 0.0) -> Delay:
    """Mostly short, sometimes several times the mean."""
    rate = 1.0 / mean_s
    return lambda rng: least_s + rng.expovariate(rate)


def pareto(least_s: float, shape: float = 1.5, most_s: float = float("inf")) -> Delay:
    """A heavy tail: most messages take about ``least_s``, a few take far longer. The smaller the shape, the heavier."""
    return lambda rng: min(most_s, least_s * rng.paretovariate(shape))
