"""Bursts of an experiment's sources: for each source alone, a new rate in each interval, from a Pareto distribution.

``dg.loads.pareto`` is for one source that goes on for ever; here are hundreds, and a run is over in a minute.
"""

from __future__ import annotations

import numpy as np

from dirigo.flow.sources.load_shapes import Load, trace

_BURST_MAX = 20.0


def bursts(sources: int, rate_per_s: float, alpha: float, every_ms: int, seconds: float, seed: int) -> list[Load]:
    """Loads with ``rate_per_s`` on average over all sources and all time, in sum exactly."""
    intervals = max(1, round(seconds * 1000 / every_ms))
    drawn = (1.0 - np.random.Generator(np.random.PCG64(seed)).random((sources, intervals))) ** (-1.0 / alpha)
    factors = np.minimum(drawn * (alpha - 1.0) / alpha, _BURST_MAX)
    counts = factors * (rate_per_s * every_ms / 1000 / factors.mean())
    return [trace(each.tolist(), every=f"{every_ms}ms") for each in counts]


def zipf_shares(sources: int, exponent: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The share of each source in the whole input: in proportion to 1 / (k + 1) ** exponent."""
    weights = np.arange(1, sources + 1, dtype=np.float64) ** -exponent
    shares: np.ndarray[tuple[int], np.dtype[np.float64]] = weights / weights.sum()
    return shares
