"""How many messages per second the simulator gets through: deliveries of data messages, each of which is also executed."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import process_time

from dirigo.kernel import Output
from dirigo.scheduling import Fifo
from dirigo.sim.cluster import SimulatedCluster
from dirigo.sim.network import Network
from dirigo.sim.service import ServiceTimes
from dirigo_lab.bench.job import SOURCE, pipeline

EMISSIONS = 20_000
REPEATS = 9
INTERVAL_S = 0.0002  # longer than a service time, so queues stay short and the load is steady
MESSAGES_PER_S_LEAST = 50_000.0  # the budget


@dataclass(frozen=True)
class SimulatorCost:
    """One pipeline: source -> relay -> relay -> end on three workers, first in first out."""

    messages: int  # data messages delivered and executed in one run
    seconds: float  # of real time, median over the repeats

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds

    def within_budget(self) -> bool:
        return self.messages_per_s >= MESSAGES_PER_S_LEAST


def measure_simulator(emissions: int = EMISSIONS, repeats: int = REPEATS) -> SimulatorCost:
    """Run the pipeline some times, each time in a new cluster."""
    messages, seconds = zip(*(_run_once(emissions) for _ in range(repeats)), strict=True)
    return SimulatorCost(messages[0], median(seconds))


def _run_once(emissions: int) -> tuple[int, float]:
    directory, first = pipeline()
    cluster = SimulatedCluster(
        3, directory, lambda _worker, _rng: Fifo(), network=Network(0.001), service=ServiceTimes(0.0001)
    )
    source = cluster.source(SOURCE, 0, (first,))
    source.play((index * INTERVAL_S, Output(first, index)) for index in range(emissions))
    begin = process_time()
    metrics = cluster.run()
    elapsed = process_time() - begin
    if not cluster.quiescent() or metrics.data_delivered != metrics.executed:
        raise RuntimeError(f"the benchmark's pipeline did not finish: {cluster.unfinished()}")
    return metrics.data_delivered, elapsed
