"""The simulated network: its two orders, its delays, and links that are clogged."""

from random import Random

import pytest

from dirigo.kernel import CriticalOutput, Data, Output, WorkerId
from dirigo.kernel.interface.message import SyncProgram
from dirigo.scheduling import Fifo
from dirigo.sim.cluster import SimulatedCluster
from dirigo.sim.delay import Delay, constant, exponential, pareto, uniform
from dirigo.sim.interval import Intervals
from dirigo.sim.network import DeliveryOrder, Network, SimulatedLink
from sim.cluster_jobs import HOMES, RELAY, WORKERS, A, B, directory

SEEDS = range(10)
Arrival = tuple[float, WorkerId, object]


def arrivals(
    network: Network, emissions: dict[str, list[tuple[float, Output | CriticalOutput]]], seed: int = 0
) -> list[Arrival]:
    """What reaches the relay, when emitted by the sources at these times."""
    found: list[Arrival] = []

    def trace(t: float, what: str, where: WorkerId, message: object) -> None:
        if what == "deliver" and where == HOMES[RELAY] and isinstance(message, Data | SyncProgram):
            found.append((t, message.origin, message))

    cluster = SimulatedCluster(WORKERS, directory(), lambda _worker, _rng: Fifo(), network=network, seed=seed, trace=trace)
    for source, schedule in emissions.items():
        cluster.source(source, HOMES[source], (RELAY,)).play(schedule)
    cluster.run()
    return found


def numbers(source: str, count: int, interval_s: float = 0.001) -> list[tuple[float, Output | CriticalOutput]]:
    return [(index * interval_s, Output(RELAY, (source, index))) for index in range(count)]


def is_in_order(found: list[Arrival], origin: WorkerId) -> bool:
    ids = [message.seq for _, each, message in found if each == origin and isinstance(message, Data)]
    assert len(ids) == 50
    return ids == sorted(ids)


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [uniform(0.0, 0.1), exponential(0.05), pareto(0.001, 0.8), constant(0.0)])
def test_a_channel_is_first_in_first_out(delay: Delay) -> None:
    for seed in SEEDS:
        found = arrivals(Network(delay), {A: numbers(A, 50), B: numbers(B, 50)}, seed)
        assert is_in_order(found, HOMES[A])
        assert is_in_order(found, HOMES[B])


def test_channels_are_not_ordered_among_each_other() -> None:
    """Two sources that emit in turns do not arrive in turns."""
    found = arrivals(Network(uniform(0.0, 0.1)), {A: numbers(A, 50), B: numbers(B, 50)})
    origins = [origin for _, origin, _ in found]
    assert origins != [HOMES[A], HOMES[B]] * 50


def test_control_overtakes_data_and_the_reverse() -> None:
    positions = set()
    for seed in SEEDS:
        emissions = numbers(A, 25)
        emissions.append((0.025, CriticalOutput(RELAY, (A, 0))))
        found = arrivals(Network(uniform(0.0, 0.1)), {A: emissions}, seed)
        positions.add(next(index for index, (_, _, message) in enumerate(found) if isinstance(message, SyncProgram)))
    assert min(positions) < 25, "no barrier overtook the data before it, so the lanes are not apart"
    assert len(positions) > 3


@pytest.mark.parametrize("delay", [uniform(0.0, 0.1), exponential(0.05), pareto(0.001, 0.8)])
def test_without_order_messages_overtake_each_other(delay: Delay) -> None:
    overtaken = sum(
        not is_in_order(arrivals(Network(delay, order=DeliveryOrder.NONE), {A: numbers(A, 50)}, seed), HOMES[A])
        for seed in SEEDS
    )
    assert overtaken == len(SEEDS)


def test_without_order_ties_are_broken_at_random() -> None:
    found = arrivals(Network(0.01, order=DeliveryOrder.NONE), {A: numbers(A, 50, interval_s=0.0)})
    assert {t for t, _, _ in found} == {0.01}
    assert not is_in_order(found, HOMES[A])


@pytest.mark.parametrize("lane", [0, 1])
@pytest.mark.parametrize("order", DeliveryOrder)
def test_the_lanes_of_a_link_are_ordered_each_for_itself(order: DeliveryOrder, lane: int) -> None:
    link = Network(uniform(0.0, 1.0), order=order).link(0, 1, Random(3))
    mine, others = [], []
    for now in range(100):
        mine.append(link.arrival(lane, now * 0.01))
        others.append(link.arrival(1 - lane, now * 0.01))
    assert (mine == sorted(mine)) is (order is DeliveryOrder.CHANNEL)
    assert any(other < own for own, other in zip(mine, others, strict=True)), "the lanes wait for each other"


# --- delays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "least", "most", "mean"),
    [
        (constant(2.0), 2.0, 2.0, 2.0),
        (uniform(1.0, 3.0), 1.0, 3.0, 2.0),
        (exponential(2.0), 0.0, 100.0, 2.0),
        (exponential(2.0, least_s=1.0), 1.0, 100.0, 3.0),
        (pareto(1.0, 3.0), 1.0, 1000.0, 1.5),
        (pareto(1.0, 0.5, most_s=10.0), 1.0, 10.0, None),
    ],
)
def test_delays_have_their_shape(delay: Delay, least: float, most: float, mean: float | None) -> None:
    rng = Random(1)
    drawn = [delay(rng) for _ in range(20_000)]
    assert least <= min(drawn) < least + 0.1
    assert max(drawn) <= most
    if mean is None:
        assert max(drawn) == most
    else:
        assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.05)


def test_a_link_has_its_own_delay() -> None:
    network = Network(1.0, local=0.25, links={(0, 1): 3.0, (2, 2): lambda _: 0.5})
    times = {pair: network.link(*pair, Random(0)).arrival(0, 10.0) for pair in [(0, 1), (1, 0), (1, 1), (2, 2)]}
    assert times == {(0, 1): 13.0, (1, 0): 11.0, (1, 1): 10.25, (2, 2): 10.5}


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(ValueError, match="a delay cannot be negative"):
        Network(-1.0).link(0, 1, Random(0)).arrival(0, 5.0)


def test_two_runs_do_not_share_what_a_link_remembers() -> None:
    network = Network(uniform(0.0, 0.1))
    assert arrivals(network, {A: numbers(A, 50)}, seed=4) == arrivals(network, {A: numbers(A, 50)}, seed=4)


# --- duplicates -------------------------------------------------------------------------------------------------------


def test_only_control_messages_come_twice() -> None:
    emissions = [*numbers(A, 20), (0.1, CriticalOutput(RELAY, (A, 0)))]
    found = [message for _, _, message in arrivals(Network(duplicates=1.0), {A: emissions})]
    assert sum(isinstance(message, Data) for message in found) == 20
    assert sum(isinstance(message, SyncProgram) for message in found) == 2
    with pytest.raises(ValueError, match="between 0 and 1"):
        Network(duplicates=1.5)


# --- clogs ------------------------------------------------------------------------------------------------------------


def due(network: Network, link: tuple[WorkerId, WorkerId], times: list[float]) -> list[float]:
    made: SimulatedLink = network.link(*link, Random(0))
    return [made.arrival(0, t) for t in times]


def test_messages_wait_while_a_link_is_clogged() -> None:
    network = Network(0.5)
    network.clog((0, 1), 2.0, 5.0)
    assert due(network, (0, 1), [1.0, 1.5, 4.0, 4.5, 5.0]) == [1.5, 5.0, 5.0, 5.0, 5.5]
    assert due(network, (1, 0), [2.0]) == [2.5]
    assert due(network, (0, 2), [2.0]) == [2.5]


def test_a_clogged_worker_neither_sends_nor_receives() -> None:
    network = Network(0.5, local=0.5)
    existing = network.link(2, 1, Random(0))
    network.clog(1, 2.0, 5.0)
    assert existing.arrival(0, 2.0) == 5.0
    assert [due(network, link, [2.0]) for link in [(0, 1), (1, 0), (1, 1), (0, 2)]] == [[5.0], [5.0], [2.5], [2.5]]


def test_what_waited_comes_out_in_the_order_of_the_network() -> None:
    def found(order: DeliveryOrder) -> list[Arrival]:
        network = Network(0.01, order=order)
        network.clog((HOMES[A], HOMES[RELAY]), 0.0, 1.0)
        return arrivals(network, {A: numbers(A, 50)})

    assert {t for t, _, _ in found(DeliveryOrder.CHANNEL)} == {1.0}
    assert is_in_order(found(DeliveryOrder.CHANNEL), HOMES[A])
    assert not is_in_order(found(DeliveryOrder.NONE), HOMES[A])


@pytest.mark.parametrize(
    ("intervals", "t", "opens"),
    [
        ([(1.0, 2.0)], 0.9, 0.9),
        ([(1.0, 2.0)], 1.0, 2.0),
        ([(1.0, 2.0)], 2.0, 2.0),
        ([(3.0, 4.0), (2.0, 3.0), (1.0, 2.0)], 1.5, 4.0),
        ([(1.0, 9.0), (2.0, 3.0)], 2.5, 9.0),
        ([(1.0, 3.0), (2.0, 5.0)], 1.5, 5.0),
    ],
)
def test_when_an_interval_opens(intervals: list[tuple[float, float]], t: float, opens: float) -> None:
    made = Intervals()
    for each in intervals:
        made.add(*each)
    assert made.open_at(t) == opens


@pytest.mark.parametrize(
    ("intervals", "t", "done"),
    [
        ([], 0.0, 2.0),
        ([(1.0, 5.0)], 0.0, 6.0),
        ([(2.0, 5.0)], 0.0, 2.0),
        ([(0.0, 5.0)], 0.0, 7.0),
        ([(1.0, 2.0), (2.5, 4.0)], 0.0, 4.5),
        ([(1.0, 3.0), (2.0, 5.0)], 0.0, 6.0),
        ([(1.0, 9.0), (2.0, 3.0)], 0.0, 10.0),
    ],
)
def test_work_of_two_seconds_rests_during_intervals(intervals: list[tuple[float, float]], t: float, done: float) -> None:
    made = Intervals()
    for each in intervals:
        made.add(*each)
    assert made.end_of_work(t, 2.0) == done


def test_an_interval_must_not_be_empty() -> None:
    with pytest.raises(ValueError, match="must end after it begins"):
        Network().clog((0, 1), 3.0, 3.0)
