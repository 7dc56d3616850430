"""States that are handled some time after the kernel asks for it, as a host does whose user code has its own thread."""

from random import Random

import pytest

from dirigo.kernel import Errand, ErrandKind
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.wait_reasons import waiting_for
from dirigo_lab.verification.random.reference import sequential
from dirigo_lab.verification.random.run import RandomRun
from dirigo_lab.verification.random.world import random_world

SEEDS = range(120)


class Deferring:
    """Takes over all errands of a run, and does each of them after a while."""

    def __init__(self, run: RandomRun, seed: int) -> None:
        self.kinds: list[ErrandKind] = []
        self.waits_told = 0
        self._cluster = run.cluster
        self._rng = Random(f"errands {seed}")
        for worker in run.workers.values():
            worker.defer = self._take_over

    def _take_over(self, errand: Errand) -> bool:
        if self._rng.random() < 0.2:
            return False  # it may be done at once
        self.kinds.append(errand.kind)
        self._cluster.at(self._cluster.now + self._rng.choice((0.0, 0.001, 0.01, 0.3)), lambda: self._do(errand))
        return True

    def _do(self, errand: Errand) -> None:
        if isinstance(errand.instance, Lessor):
            self.waits_told += any("handles the states" in what for what in waiting_for(errand.instance))
        errand.finish(errand.work())


@pytest.mark.parametrize("seed", SEEDS)
def test_results_are_the_same_when_states_are_handled_later(seed: int) -> None:
    run = RandomRun(random_world(seed))
    Deferring(run, seed)
    run.execute()
    run.compare(sequential(run.world))


def test_all_kinds_of_errands_are_met_and_a_round_says_that_it_waits_for_them() -> None:
    kinds: set[ErrandKind] = set()
    waits_told = 0
    for seed in range(10):
        run = RandomRun(random_world(seed))
        deferring = Deferring(run, seed)
        run.execute()
        kinds |= set(deferring.kinds)
        waits_told += deferring.waits_told
    assert kinds == {ErrandKind.TAKE, ErrandKind.MERGE, ErrandKind.VIEW}
    assert waits_told
