"""The simulated cluster itself: runs repeat, time passes as the models say, and runs are bounded."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dirigo.kernel import CriticalOutput, Data, Output, RunnableMessage, WorkerId
from dirigo.scheduling import Fifo
from dirigo.sim.cluster import SimulatedCluster, SimulationError
from dirigo.sim.delay import uniform
from dirigo.sim.feed import Feed, ScheduleError
from dirigo.sim.network import DeliveryOrder, Network
from dirigo.sim.service import Measured, ServiceTime, ServiceTimes, per_row
from sim.cluster_jobs import HOMES, LEDGER, RELAY, WORKERS, A, B, chaotic_run, directory

Event = tuple[float, str, WorkerId, object]


class Timeline:
    """All that a cluster did."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, t: float, what: str, where: WorkerId, message: object) -> None:
        self.events.append((t, what, where, message))

    def times(self, what: str, where: WorkerId) -> list[object]:
        return [pytest.approx(t) for t, each, worker, _ in self.events if (each, worker) == (what, where)]

    def payloads(self, what: str, where: WorkerId) -> list[object]:
        return [
            message.payload
            for _, each, worker, message in self.events
            if (each, worker) == (what, where) and isinstance(message, Data)
        ]


def fifo_cluster(
    network: Network | None = None, service: ServiceTimes | float = 1.0, seed: int = 0
) -> tuple[SimulatedCluster, Feed, Timeline]:
    """The job with one source, nothing forwarded; a delay of 0.1 s and a service time of 1 s unless told otherwise."""
    timeline = Timeline()
    cluster = SimulatedCluster(
        WORKERS,
        directory((A,)),
        lambda _worker, _rng: Fifo(),
        network=network or Network(0.1),
        service=service if isinstance(service, ServiceTimes) else ServiceTimes(service),
        seed=seed,
        trace=timeline,
    )
    return cluster, cluster.source(A, HOMES[A], (RELAY,)), timeline


def number(value: int, created: float = 0.0) -> Output:
    return Output(RELAY, (A, value), created=created)


# --- repeatability ----------------------------------------------------------------------------------------------------


def chaotic_events(seed: int) -> list[Event]:
    timeline = Timeline()
    network = Network(uniform(0.0, 0.02), order=DeliveryOrder.NONE, duplicates=0.2)
    chaotic_run(seed, network, trace=timeline, scale_ins=2).cluster.run()
    return timeline.events


def test_a_run_repeats_exactly_from_its_seed() -> None:
    for seed in range(5):
        events = chaotic_events(seed)
        assert len(events) > 200
        assert chaotic_events(seed) == events
        assert chaotic_events(seed + 100) != events


def test_a_run_repeats_in_another_process() -> None:
    """Strings hash differently in every process, so whatever depends on the order of a set would show here."""
    program = """
import hashlib, sys
from sim.test_cluster import chaotic_events
sys.stdout.write(hashlib.sha256(repr(chaotic_events(3)).encode()).hexdigest())
"""
    folder = Path(__file__).resolve().parent.parent
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
    assert len(digests.pop()) == 64


def test_streams_of_random_numbers_are_independent_of_each_other() -> None:
    cluster, other, another = (fifo_cluster(seed=seed)[0] for seed in (5, 5, 6))
    cluster.rng("service").random()
    assert cluster.rng("network").random() == other.rng("network").random()
    assert cluster.rng("network").random() != cluster.rng("service").random()
    assert cluster.rng("network").random() != another.rng("network").random()


# --- time -------------------------------------------------------------------------------------------------------------


def test_messages_take_the_network_s_and_the_service_s_time() -> None:
    cluster, source, timeline = fifo_cluster()
    source.emit_at(2.0, number(1))
    source.emit_at(2.5, number(2))
    cluster.run()
    assert timeline.times("deliver", 1) == [2.1, 2.6]
    assert timeline.times("start", 1) == [2.1, 3.1]  # one at a time
    assert timeline.times("finish", 1) == [3.1, 4.1]
    assert timeline.times("deliver", 2) == [3.2, 4.2]
    assert cluster.quiescent()


@pytest.mark.parametrize(
    ("model", "seconds"),
    [
        (2.0, 2.0),
        (per_row(1.0, 0.25), 1.5),  # the payload has two fields, which stand for rows here
        (per_row(0.0, 0.001, rows=lambda payload: payload[1]), 0.007),
        (lambda message, _: message.payload[1] * 0.1, 0.7),
    ],
)
def test_service_times_come_from_the_model_of_the_function(model: ServiceTime | float, seconds: float) -> None:
    cluster, source, timeline = fifo_cluster(service=ServiceTimes(9.0, {RELAY: model}))
    source.emit_at(0.0, number(7))
    cluster.run()
    assert timeline.times("finish", 1) == [0.1 + seconds]
    assert timeline.times("finish", 2) == [0.2 + seconds + 9.0]


def test_a_watermark_has_no_rows() -> None:
    cluster, source, timeline = fifo_cluster(service=ServiceTimes(per_row(1.0, 5.0)))
    source.emit_at(0.0, CriticalOutput(RELAY, (A, 1)))
    cluster.run()
    assert timeline.times("finish", 1) == [1.1]


def test_a_measured_service_time_is_what_the_function_took() -> None:
    cluster, source, _ = fifo_cluster(Network(0.0), service=ServiceTimes(Measured(1e6)))
    source.emit_at(0.0, number(1))
    cluster.run()
    assert cluster.metrics.executed == 2
    assert cluster.now > 0.1  # two calls of some microseconds, times a million
    assert cluster.quiescent()


def test_control_messages_are_handled_while_a_message_runs() -> None:
    cluster, source, timeline = fifo_cluster(service=10.0)
    source.emit_at(0.0, number(1))
    source.emit_at(1.0, CriticalOutput(RELAY, (A, 1)))
    source.emit_at(2.0, number(2))
    cluster.run(until=1.3)
    assert cluster.workers[1].running is not None
    assert not source.source.is_waiting(), "the acknowledgment waited for the message that runs"
    cluster.run()
    assert timeline.payloads("start", 1) == [(A, 1), (A, 2)]


def test_a_slow_worker_takes_longer_while_it_is_slow() -> None:
    cluster, source, timeline = fifo_cluster()
    cluster.slow(1, 3.0, from_t=0.0, to_t=5.0)
    source.emit_at(0.0, number(1))
    source.emit_at(9.9, number(2))
    cluster.run()
    assert timeline.times("finish", 1) == [3.1, 11.0]
    assert timeline.times("finish", 2) == [4.2, 12.1]


# --- freezes ----------------------------------------------------------------------------------------------------------


def test_a_frozen_worker_neither_receives_nor_runs() -> None:
    cluster, source, timeline = fifo_cluster()
    cluster.freeze(1, 0.6, 5.6)
    for value, t in enumerate([0.0, 1.0, 2.0, 5.5]):
        source.emit_at(t, number(value))
    cluster.run()
    assert timeline.times("deliver", 1) == [0.1, 5.6, 5.6, 5.6]
    assert timeline.payloads("deliver", 1) == [(A, 0), (A, 1), (A, 2), (A, 3)]  # also the one that was due just then
    assert timeline.times("finish", 1) == [6.1, 7.1, 8.1, 9.1]  # half a second before the freeze, half a second after


def test_a_freeze_that_is_declared_while_a_message_runs_stretches_it() -> None:
    cluster, source, timeline = fifo_cluster()
    source.emit_at(0.0, number(1))
    cluster.at(0.5, lambda: cluster.freeze(1, 0.6, 2.6))
    cluster.run()
    assert timeline.times("finish", 1) == [3.1]


def test_a_frozen_worker_s_source_emits_nothing() -> None:
    cluster, source, timeline = fifo_cluster()
    cluster.freeze(0, 0.0, 3.0)
    source.play([(1.0, number(1)), (2.0, number(2)), (4.0, number(3))])
    cluster.run()
    assert timeline.times("emit", 0) == [3.0, 3.0, 4.0]


def test_an_idle_worker_with_work_wakes_up_after_a_freeze() -> None:
    cluster, source, timeline = fifo_cluster()
    source.emit_at(0.0, number(1))
    source.emit_at(0.0, number(2))
    cluster.freeze(1, 1.1, 4.0)  # exactly when the first is done and the second would start
    cluster.run()
    assert timeline.times("finish", 1) == [1.1, 5.0]
    assert cluster.quiescent()


def test_a_worker_that_never_thaws_leaves_the_cluster_unfinished() -> None:
    cluster, source, _ = fifo_cluster()
    cluster.freeze(1, 0.0, float("inf"))
    source.emit_at(0.0, number(1))
    cluster.run()
    assert cluster.unfinished() == ["1 events are to come"]


# --- what is counted, and bounds ----------------------------------------------------------------------------------------


def test_counts() -> None:
    cluster, source, _ = fifo_cluster()
    for value in range(5):
        source.emit_at(0.0, number(value))
    source.emit_at(0.0, CriticalOutput(RELAY, (A, 1)))
    metrics = cluster.run()
    assert (metrics.emitted, metrics.data_delivered, metrics.executed) == (6, 10, 12)
    assert metrics.control_delivered == 6  # twice a program and its two acknowledgments
    assert metrics.latencies_s == {}


def test_latencies_are_kept_where_they_are_asked_for() -> None:
    cluster, source, _ = fifo_cluster()
    cluster.with_latencies = True
    source.emit_at(2.0, number(1, created=1.5))
    metrics = cluster.run()
    assert metrics.latencies_s == {RELAY: [pytest.approx(1.6)], LEDGER: [pytest.approx(2.7)]}


def test_a_run_ends_at_a_time_and_goes_on_from_there() -> None:
    cluster, source, timeline = fifo_cluster()
    source.emit_at(0.0, number(1))
    cluster.run(until=0.5)
    assert cluster.now == 0.5
    assert not cluster.quiescent()
    assert any("is running a message" in reason for reason in cluster.unfinished())
    cluster.run()
    assert timeline.times("finish", 2) == [2.2]
    assert cluster.quiescent()


def test_what_is_held_or_kept_is_not_at_rest() -> None:
    """A strategy that never runs anything: no event is left, and still the cluster is not at rest."""

    class Miser(Fifo):
        def get_next_message(self, context: object) -> RunnableMessage | None:
            return None

    cluster = SimulatedCluster(WORKERS, directory((A,)), lambda _worker, _rng: Miser())
    source = cluster.source(A, HOMES[A], (RELAY,))
    source.emit_at(0.0, number(1))
    source.emit_at(0.0, CriticalOutput(RELAY, (A, 1)))
    cluster.run()
    assert cluster.unfinished() == [
        f"{RELAY}@w1 is DRAINING",
        f"{RELAY}@w1 has 1 messages that did not run",
        f"{RELAY}@w1 has 1 programs that did not run",
    ]


def test_a_run_that_takes_too_many_events_raises() -> None:
    cluster, _, _ = fifo_cluster()

    def forever() -> None:
        cluster.at(cluster.now, forever)

    cluster.at(1.0, forever)
    with pytest.raises(SimulationError, match="took 1000 events and has more to come; raise max_events"):
        cluster.run(max_events=1000)
    assert cluster.metrics.events == 1000


def test_a_bound_that_is_just_enough_is_enough() -> None:
    def events(bound: int) -> int:
        cluster, source, _ = fifo_cluster()
        source.emit_at(0.0, number(1))
        return cluster.run(max_events=bound).events

    needed = events(1000)
    assert events(needed) == needed
    with pytest.raises(SimulationError):
        events(needed - 1)


def test_a_schedule_is_read_as_time_goes_by() -> None:
    cluster, source, timeline = fifo_cluster()
    read = []

    def schedule() -> Iterator[tuple[float, Output]]:
        for value in range(1_000_000):
            read.append(value)
            yield float(value), number(value)

    source.play(schedule())
    cluster.run(until=10.0)
    assert len(timeline.times("emit", 0)) == 11
    assert len(read) == 12
    with pytest.raises(ScheduleError, match="playing a schedule already"):
        source.play([])


def test_mistakes_are_named() -> None:
    cluster, source, _ = fifo_cluster()
    cluster.at(1.0, lambda: source.emit_at(0.5, number(1)))
    with pytest.raises(SimulationError, match=r"it is 1\.0 already; nothing can be scheduled for 0\.5"):
        cluster.run()
    with pytest.raises(SimulationError, match="there is no worker 9"):
        cluster.source(B, 9, (RELAY,))
    cluster, source, _ = fifo_cluster(service=-1.0)
    source.emit_at(0.0, number(1))
    with pytest.raises(SimulationError, match="a service time cannot be negative"):
        cluster.run()
