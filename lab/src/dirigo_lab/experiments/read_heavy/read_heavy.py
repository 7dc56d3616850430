"""``read-heavy``: reads of a state as barriers, or as ordinary messages on the replica that UNSYNC carries (section 6).

A function counts updates, more of them than its home could run, so that they are spread over four workers. Beside them
come reads of the count. Without a replica a read has to be a critical message: it sees all that came before it, and
everybody waits for it. With a replica it runs wherever it comes to: on the count as of the last barrier, and what was
counted there since.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar, cast

from dirigo.kernel import (
    Context,
    CriticalOutput,
    CriticalRun,
    Directory,
    FunctionSpec,
    Output,
    RunnableMessage,
    States,
    Trail,
    Worker,
    actor_address,
)
from dirigo.scheduling import for_worker
from dirigo.sim.cluster import SimulatedCluster
from dirigo.sim.feed import Emission
from dirigo.sim.network import Network
from dirigo.sim.service import ServiceTimes
from dirigo.state import StateSet, ValueState, add
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Claim, Experiment, ExperimentSummary, Labels, Latencies, Outcome, Scale, Size
from dirigo_lab.experiments.read_heavy import on_spark as read_heavy_on_spark
from dirigo_lab.experiments.read_heavy.load import (
    READ,
    READ_S,
    READS,
    TIME,
    UPDATE,
    UPDATE_S,
    UPDATES,
    UPDATES_PER_S,
    UPDATES_PER_S_ON_SPARK,
    WATERMARK_EVERY_S,
    WORKERS,
    arrivals,
    strategy,
)
from dirigo_lab.experiments.reporting.drawing import lines

READS_PER_S = (10, 30, 100, 300)
READS_PER_S_ON_SPARK = (10, 30, 100)
WITH, WITHOUT = "with a replica", "without"
_SECONDS = {Size.FULL: 100.0, Size.QUICK: 20.0, Size.TINY: 5.0}
_SECONDS_ON_SPARK = {Size.FULL: 30.0, Size.QUICK: 10.0, Size.TINY: 5.0}
_FLAT_MOST = 1.5  # times as long with the most reads as with the fewest
_SOURCE, _FUNCTION = actor_address("reads", "source"), actor_address("reads", "count")
_HOME = 0
_EVENTS_MAX = 1_000_000_000


class ReadHeavy(Experiment):
    """More and more reads beside the same updates."""

    name: ClassVar = "read-heavy"
    title: ClassVar = "Reads with and without a replica"
    question: ClassVar = "What do reads of a state cost, and cost others, if lessees can answer them?"
    spark_workers: ClassVar = WORKERS

    def settings(self, scale: Scale, size: Size) -> list[Labels]:
        rates: tuple[int, ...] = READS_PER_S if scale is Scale.PAPER else READS_PER_S_ON_SPARK
        if size is Size.TINY:
            rates = rates[1:3]
        return [{"reads": reads, "reads_per_s": rate} for reads in (WITH, WITHOUT) for rate in rates]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        seconds = _SECONDS[size]
        run = _Run(labels["reads"] == WITH, costs, seed)
        run.play(float(labels["reads_per_s"]), seconds)
        return _outcome(labels, seed, run.done, seconds)

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        seconds = _SECONDS_ON_SPARK[size]
        is_replicated = labels["reads"] == WITH
        done = read_heavy_on_spark.run(cluster, is_replicated, float(labels["reads_per_s"]), seconds, seed)
        return _outcome(labels, seed, done, seconds)

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:  # noqa: ARG002
        rates = summary.values_of("reads_per_s")
        fewest, most = rates[0], rates[-1]

        def found(how: str, rate: Any) -> tuple[float, float, float]:
            labels = {"reads": how, "reads_per_s": rate}
            of_run = summary.one(job="", **labels)
            return (
                summary.one(job=READS, **labels)["p50"],
                summary.one(job=UPDATES, **labels)["p50"],
                of_run["updates_per_s"],
            )

        def told(how: str) -> str:
            each = (
                f"{rate}/s: {found(how, rate)[0]:.1f}, {found(how, rate)[1]:.1f}, {found(how, rate)[2]:.0f}"
                for rate in rates
            )
            return "; ".join(each)

        explained = "median ms of reads, of updates, and updates done per second, by reads"
        (read, _, done), (read_most, _, done_most) = found(WITH, fewest), found(WITH, most)
        (slow, _, slow_done), (slow_most, _, slow_done_most) = found(WITHOUT, fewest), found(WITHOUT, most)
        return [
            Claim(
                "with the replica, reads do not synchronise: their latency and the updates' throughput stay flat",
                "reads run at lessees independently (not measured there)",
                f"{explained}: {told(WITH)}",
                read_most <= _FLAT_MOST * read and done_most >= 0.95 * done,
            ),
            Claim(
                "without it, every read synchronises: latency grows with reads, or updates fall behind",
                "a synchronisation for every read (not measured there)",
                f"{explained}: {told(WITHOUT)}",
                slow_most > _FLAT_MOST * slow or slow_done_most < 0.95 * slow_done,
            ),
            Claim(
                "a read is sooner answered with the replica",
                "(not measured there)",
                f"{slow / read:.1f} times sooner with {fewest} reads/s, {slow_most / read_most:.1f} times with {most}",
                all(found(WITH, rate)[0] < found(WITHOUT, rate)[0] for rate in rates),
            ),
        ]

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        reads, updates = figure.subplots(1, 2)
        for axes, rows, value in (
            (reads, summary.all(job=READS), "p50"),
            (updates, summary.all(job=""), "updates_per_s"),
        ):
            lines(
                axes,
                rows,
                x=lambda row: float(row.labels["reads_per_s"]),
                value=value,
                series=lambda row: str(row.labels["reads"]),
                log_y=axes is reads,
            )
            axes.set_xscale("log")
            axes.set_xlabel("reads per second")
        reads.set_ylabel("median latency of reads, ms")
        updates.set_ylabel("updates done per second")

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:
        seconds = (_SECONDS if scale is Scale.PAPER else _SECONDS_ON_SPARK)[size]
        per_s = UPDATES_PER_S if scale is Scale.PAPER else UPDATES_PER_S_ON_SPARK
        work = per_s * (UPDATE_S + (costs.message_s if scale is Scale.PAPER else 0.0))
        load = (
            f"{per_s} updates/s of {UPDATE_S * 1000:g} ms keep {work:.1f} of {WORKERS} workers busy, each message "
            f"at the home of the function or at another worker, by chance. A read takes {READ_S * 1000:g} ms, so that what "
            "reads cost is waiting. Both come at random moments."
        )
        age = (
            f"A watermark every {WATERMARK_EVERY_S:g} s renews the replica; a read may be so old, where a critical message "
            "sees everything before it. That is the price."
        )
        counted = (
            f"Updates done per second count those that were done in the {seconds:g} s in which they came. Where reads as "
            "barriers are more than the function can take, latencies are those of a queue that only grows."
        )
        return [load, age, counted]


def _outcome(labels: Labels, seed: int, done: list[tuple[int, float, float]], seconds: float) -> Outcome:
    """From (kind, when it came, when it was done), in seconds since the beginning."""
    latencies = [
        Latencies.of(job, float("inf"), ((at_s, (at_s - came_s) * 1000) for what, came_s, at_s in done if what == kind))
        for job, kind in ((READS, READ), (UPDATES, UPDATE))
    ]
    in_time = sum(kind == UPDATE and at_s <= seconds for kind, _, at_s in done)
    return Outcome(labels, seed, latencies, {"updates_per_s": in_time / seconds})


class _Run:
    """One run in the simulator."""

    def __init__(self, is_replicated: bool, costs: RuntimeCosts, seed: int) -> None:
        directory = Directory()
        directory.add_job([FunctionSpec(_FUNCTION, _HOME, _Count, _states, (_SOURCE,))])
        self.done: list[tuple[int, float, float]] = []
        self._is_replicated = is_replicated
        seconds = {UPDATE: UPDATE_S + costs.message_s, READ: READ_S + costs.message_s}

        def service(message: RunnableMessage, _rng: Random) -> float:
            if not message.critical:
                return seconds[message.payload]
            return costs.critical_s + (READ_S if message.payload == READ else 0.0)

        self._cluster = SimulatedCluster(
            WORKERS,
            directory,
            lambda _worker, _rng: for_worker(strategy()),
            network=Network(costs.hop_s),
            service=ServiceTimes(service),
            seed=seed,
            fetch_s=costs.fetch_s,
        )
        self._cluster.account = self._note

    def play(self, reads_per_s: float, seconds: float) -> None:
        self._cluster.source(_SOURCE, _HOME, (_FUNCTION,)).play(self._emissions(reads_per_s, seconds))
        self._cluster.run(max_events=_EVENTS_MAX)

    def _emissions(self, reads_per_s: float, seconds: float) -> Iterator[Emission]:
        for at_s, kind in arrivals(reads_per_s, seconds, self._cluster.seed):
            if kind == TIME or (kind == READ and not self._is_replicated):
                yield at_s, CriticalOutput(_FUNCTION, kind, created=at_s)
            else:
                yield at_s, Output(_FUNCTION, kind, at_s)

    def _note(self, worker: Worker, message: RunnableMessage, trail: Trail) -> None:  # noqa: ARG002
        if message.payload != TIME:
            self.done.append((message.payload, message.created, worker.now))


_COUNT = ValueState(int, default=0, combine=add, replicated=True)


def _states() -> States:
    return StateSet({"count": _COUNT})


class _Count:
    """Counts updates. What a read finds is of no interest here, only when."""

    __slots__ = ("_count",)

    def __init__(self, states: States) -> None:
        self._count = cast(StateSet, states).cell("count")

    def on_message(self, context: Context, payload: Any) -> None:  # noqa: ARG002
        if payload == UPDATE:
            self._count.add(1)
        else:
            self._count.read()

    def on_critical(self, context: Context, critical: CriticalRun) -> None:  # noqa: ARG002
        self._count.read()
