"""Latencies in buckets: how far a percentile may be off."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.scheduling.accounting import bucket_of, milliseconds_of, percentiles

OFF_BY_MOST = 1 / 32


@given(st.floats(1.1e-6, 1e6))
def test_a_latency_is_close_to_the_middle_of_its_bucket(seconds: float) -> None:
    assert milliseconds_of(bucket_of(seconds)) == pytest.approx(seconds * 1000, rel=OFF_BY_MOST * (1 + 1e-9))


@given(st.floats(-1e3, 1e6), st.floats(-1e3, 1e6))
def test_a_longer_latency_is_in_no_lower_bucket(one: float, other: float) -> None:
    if one <= other:
        assert bucket_of(one) <= bucket_of(other)


@pytest.mark.parametrize("seconds", [0.0, -5.0, 1e-9, 1e-6])
def test_what_is_too_short_to_measure_is_in_the_first_bucket(seconds: float) -> None:
    assert bucket_of(seconds) == 0


def test_no_latency_is_beyond_the_buckets() -> None:
    assert len({bucket_of(10.0**exponent) for exponent in range(-6, 7)}) == 13
    assert bucket_of(86_400.0) < 1000  # a day: few buckets, so figures stay small


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1, 2, 10, 1_000, 20_000])
def test_percentiles_are_close_to_those_of_the_latencies_themselves(seed: int, size: int) -> None:
    rng = Random(seed)
    latencies = [rng.lognormvariate(-6, 1.5) for _ in range(size)]
    found = percentiles(Counter(map(bucket_of, latencies)))
    assert list(found) == ["p50", "p95", "p99", "max"]
    for name, share in (("p50", 50), ("p95", 95), ("p99", 99), ("max", 100)):
        exact_ms = float(np.percentile(latencies, share, method="inverted_cdf")) * 1000
        assert found[name] == pytest.approx(exact_ms, rel=OFF_BY_MOST, abs=0.001)


def test_without_latencies_there_are_no_percentiles() -> None:
    assert percentiles({}) == {}
    assert percentiles({3: 0}) == {}


def test_counts_of_several_workers_add_up() -> None:
    rng = Random(1)
    parts = [[rng.expovariate(100) for _ in range(500)] for _ in range(3)]
    together: Counter[int] = Counter()
    for part in parts:
        together.update(Counter(map(bucket_of, part)))
    assert percentiles(together) == percentiles(Counter(bucket_of(each) for part in parts for each in part))
