"""Latencies counted in buckets that grow with the latency: cheap to note, to send and to add up."""

from __future__ import annotations

from collections.abc import Mapping
from math import frexp

_PER_OCTAVE = 16  # a bucket is 1/16 of the way to twice the latency, so a figure is off by 3 % at most
_SMALLEST_S = 1e-6


def bucket_of(seconds: float) -> int:
    """The bucket of a latency; whatever is below a microsecond, or negative because of clocks, is in the first."""
    if seconds <= _SMALLEST_S:
        return 0
    mantissa, exponent = frexp(seconds / _SMALLEST_S)
    return exponent * _PER_OCTAVE + int((mantissa - 0.5) * 2 * _PER_OCTAVE)


def milliseconds_of(bucket: int) -> float:
    """The middle of a bucket."""
    exponent, step = divmod(bucket, _PER_OCTAVE)
    return (0.5 + (step + 0.5) / (2 * _PER_OCTAVE)) * 2.0**exponent * _SMALLEST_S * 1000


def percentiles(counts: Mapping[int, int]) -> dict[str, float]:
    """p50, p95, p99 and the largest, in milliseconds; nothing without any count."""
    total = sum(counts.values())
    if not total:
        return {}
    ranks = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1.0}
    found: dict[str, float] = {}
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        for name, share in ranks.items():
            if name not in found and seen >= share * total:
                found[name] = round(milliseconds_of(bucket), 3)
    return found
