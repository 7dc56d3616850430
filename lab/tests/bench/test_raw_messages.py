"""The shape of the figures of bare messages; how fast they are on the machine at hand is no matter for a test."""

import pytest

from dirigo_lab.bench.service.raw_messages import measure_hop, measure_hops


def test_a_hop_is_measured_with_curve_and_without() -> None:
    costs = measure_hops(seconds=0.05)
    assert [cost.curve for cost in costs] == [True, False]
    for cost in costs:
        assert 0 < cost.hop_us <= cost.hop_p99_us
        assert cost.small_messages_per_s > 0
        assert cost.large_mb_per_s > 0


def test_a_hop_takes_time() -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        measure_hop(curve=False, seconds=0)
