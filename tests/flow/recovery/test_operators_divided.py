"""Every operator that keeps something per key goes on in another number of partitions, with equal results."""

from __future__ import annotations

import pytest

from dirigo.flow.errors import FlowError
from flow.recovery.test_operators_recover import CASES, check

SEEDS, MORE_SEEDS = range(4), range(2_000, 2_050)
PARTITIONS = (2, 3, 8)
# What the first gives depends on the number of partitions from the beginning; the others keep something per partition.
_OTHERS = ("SYNC_ONE beside snapshots", "OfThePartition", "clock windows")
DIVIDED = [name for name in CASES if name not in _OTHERS]


@pytest.mark.parametrize("name", DIVIDED)
def test_it_goes_on_in_other_partitions(name: str) -> None:
    assert check(name, SEEDS, partitions=PARTITIONS)["from a snapshot"] >= 1


@pytest.mark.acceptance
@pytest.mark.parametrize("name", DIVIDED)
def test_it_goes_on_in_other_partitions_at_many_moments(name: str) -> None:
    assert check(name, MORE_SEEDS, partitions=PARTITIONS)["from a snapshot"] > len(MORE_SEEDS) // 4


@pytest.mark.parametrize("name", ["OfThePartition", "clock windows"])
def test_what_is_kept_per_partition_stays_in_as_many(name: str) -> None:
    make, _ = CASES[name]
    check(name, SEEDS, partitions=(make().partitions,))
    with pytest.raises(FlowError, match="cannot be divided anew"):
        check(name, SEEDS, partitions=PARTITIONS)
