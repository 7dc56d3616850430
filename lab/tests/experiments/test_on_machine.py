"""What experiments on this machine's Spark have in common."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dirigo_lab.experiments.window_jobs import on_machine


class PretendedCluster:
    def __init__(self, workers: int) -> None:
        self.sizes = [workers]

    def status(self) -> Any:
        return SimpleNamespace(workers=[None] * self.sizes[-1])

    def resize(self, workers: int) -> None:
        self.sizes.append(workers)

    def wait_ready(self) -> None: ...


@pytest.mark.parametrize("failure", [None, ValueError])
def test_a_cluster_has_as_many_workers_afterwards_as_before(failure: type[Exception] | None) -> None:
    cluster = PretendedCluster(8)
    try:
        with on_machine.workers_of(cluster, 2):
            assert cluster.sizes == [8, 2]
            if failure is not None:
                raise failure
    except ValueError:
        assert failure is not None
    assert cluster.sizes == [8, 2, 8]


def test_whoever_ends_an_experiment_does_not_wait_for_workers_to_start() -> None:
    cluster = PretendedCluster(8)
    with pytest.raises(KeyboardInterrupt), on_machine.workers_of(cluster, 2):
        raise KeyboardInterrupt
    assert cluster.sizes == [8, 2]
