"""What schedules a simulation: one strategy for all flows, or one for each of them, as jobs on a cluster can have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import cloudpickle

from dirigo.errors import DirigoError
from dirigo.flow.api.strategy import strategy_of
from dirigo.kernel import JobProperties
from dirigo.scheduling import Arbiter, Strategy, StrategyError, StrategyLike, for_worker
from dirigo.sim.cluster import StrategyFactory

SimulatedStrategy = StrategyLike | StrategyFactory | Mapping[str, StrategyLike]


def factory_of(given: SimulatedStrategy, jobs: Sequence[JobProperties]) -> StrategyFactory:
    """Makes the strategy of each worker; with one for each flow, an arbiter that shares the worker between them."""
    if isinstance(given, Mapping):
        return _arbiters(given, jobs)
    if callable(given) and not isinstance(given, Strategy | type):
        return given
    pattern = strategy_of(given)
    return lambda *_: for_worker(pattern)


def _arbiters(given: Mapping[str, StrategyLike], jobs: Sequence[JobProperties]) -> StrategyFactory:
    names = [job.name for job in jobs]
    if set(given) != set(names):
        told = ", ".join(map(str, given)) or "none"
        raise DirigoError(f"strategy: give one for each of the flows {', '.join(names)}; these are for {told}.")
    patterns = {name: strategy_of(each) for name, each in given.items()}
    keys = {name: _bytes_of(pattern) for name, pattern in patterns.items()}

    def arbiter(*_: object) -> Arbiter:
        made = Arbiter()
        for job in jobs:
            made.add_job(job.id, keys[job.name], partial(for_worker, patterns[job.name]), job.weight)
        return made

    return arbiter


def _bytes_of(pattern: Strategy) -> bytes:
    """The same for strategies of one class with the same settings: as on a cluster, they are one."""
    try:
        return cloudpickle.dumps(pattern)  # type: ignore[no-any-return]
    except Exception as error:  # pickling runs the user's code
        raise StrategyError(f"the strategy {pattern.name} cannot be pickled, as workers would get it: {error}.") from error
