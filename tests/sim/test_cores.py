"""Simulated workers of one machine share its cores."""

import pytest

from dirigo.kernel import Output, WorkerId
from dirigo.scheduling import Fifo
from dirigo.sim.cluster import SimulatedCluster
from dirigo.sim.cores import Cores
from dirigo.sim.network import Network
from dirigo.sim.service import ServiceTimes
from sim.cluster_jobs import HOMES, RELAY, WORKERS, A, directory


def test_who_comes_while_all_cores_are_busy_waits_for_the_first_that_is_free() -> None:
    cores = Cores(2)
    assert cores.take(0.0, 3.0) == 3.0
    assert cores.take(0.0, 1.0) == 1.0
    assert cores.take(0.5, 1.0) == 2.0
    assert cores.take(5.0, 1.0) == 6.0


def test_workers_that_look_for_something_to_do_take_a_part_of_the_cores() -> None:
    cores = Cores(2, workers=4, idle_share=0.25)  # half a core for three of them
    assert cores.take(0.0, 1.0) == pytest.approx(2.0)
    cores.working = 4
    assert cores.take(3.0, 1.0) == pytest.approx(4.0)


def test_however_many_wait_something_gets_done() -> None:
    assert Cores(1, workers=100, idle_share=0.5).take(0.0, 1.0) == pytest.approx(10.0)


def finished(cores: Cores | None, *, computing_s: float, fetch_s: float = 0.0, messages: int = 1) -> list[float]:
    """When messages to the relay, each of which sleeps for a second and computes for some time, were done."""
    done: list[float] = []

    def trace(now: float, what: str, worker: WorkerId, _: object) -> None:
        if what == "finish" and worker == HOMES[RELAY]:
            done.append(round(now, 6))

    made = SimulatedCluster(
        WORKERS,
        directory((A,)),
        lambda *_: Fifo(),
        network=Network(0.1),
        service=ServiceTimes(1.0),
        trace=trace,
        fetch_s=fetch_s,
        cores=cores,
        computing=lambda _message, _rng: computing_s,
    )
    feed = made.source(A, HOMES[A], (RELAY,))
    for _ in range(messages):
        feed.emit_at(0.0, Output(RELAY, ("a", 1)))
    made.run()
    return done


def test_what_a_message_computes_comes_on_top_of_what_it_sleeps() -> None:
    assert finished(None, computing_s=0.5) == [1.6]
    assert finished(Cores(1), computing_s=0.5) == [1.6]


def test_taking_messages_in_and_computing_wait_for_each_other() -> None:
    # Taken in at 0.3 and 0.5; the first one computes until 0.8, as the second took the only core before it could begin.
    assert finished(Cores(1), computing_s=0.3, fetch_s=0.2, messages=2)[0] == pytest.approx(1.8)
    assert finished(Cores(2), computing_s=0.3, fetch_s=0.2, messages=2)[0] == pytest.approx(1.6)


def test_further_messages_of_one_go_leave_later() -> None:
    arrivals: list[float] = []

    def trace(now: float, what: str, _worker: WorkerId, _: object) -> None:
        if what == "deliver":
            arrivals.append(round(now, 6))

    made = SimulatedCluster(
        WORKERS,
        directory((A,)),
        lambda *_: Fifo(),
        network=Network(0.1),
        service=ServiceTimes(9.0),
        trace=trace,
        send_s=0.01,
    )
    feed = made.source(A, HOMES[A], (RELAY,))

    def emit() -> None:
        for _ in range(3):
            feed.source.emit(Output(RELAY, ("a", 1)))

    made.at(0.0, emit)
    made.run(until=1.0)
    assert arrivals == [0.1, 0.11, 0.12]


def test_who_has_something_to_take_in_already_finds_what_came_meanwhile() -> None:
    awake: list[bool] = []

    def fetch_s(_message: object, is_awake: bool) -> float:
        awake.append(is_awake)
        return 0.02

    made = SimulatedCluster(
        WORKERS,
        directory((A,)),
        lambda *_: Fifo(),
        network=Network(0.1),
        service=ServiceTimes(9.0),
        fetch_s=fetch_s,
        cores=Cores(1),
        packet_s=0.03,
    )
    feed = made.source(A, HOMES[A], (RELAY,))
    # Sent at 0, 0 and 0.5. The second packet waits for the only core until the first message has been taken in.
    for at in (0.0, 0.0, 0.5):
        feed.emit_at(at, Output(RELAY, ("a", 1)))
    made.run(until=1.0)
    assert awake == [False, True, False]
