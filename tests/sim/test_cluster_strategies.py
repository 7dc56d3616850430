"""What the simulated cluster does for strategies: chance, the pool, the loads of others, a clock to be woken by."""

from random import Random

import pytest

from dirigo.kernel import Output, RunnableMessage, SchedulingContext, Worker, WorkerId
from dirigo.scheduling import Fifo, Strategy, StrategyExtras
from dirigo.sim.cluster import SimulatedCluster
from dirigo.sim.network import Network
from dirigo.sim.service import ServiceTimes
from sim.cluster_jobs import HOMES, RELAY, WORKERS, A, directory


class Telling(Fifo, StrategyExtras):
    """Says that as many seconds of work wait as it has been asked, and half of that is urgent."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def backlog_s(self, context: SchedulingContext) -> tuple[float, float]:
        self.asked += 1
        return (self.asked / 2, float(self.asked))


class Waking(Fifo, StrategyExtras):
    """Wants to be woken at some times."""

    def __init__(self, *times: float) -> None:
        super().__init__()
        self.times = list(times)
        self.woken: list[tuple[WorkerId, float]] = []

    def wake_at(self) -> float | None:
        return self.times[0] if self.times else None

    def wake(self, context: SchedulingContext) -> None:
        self.woken.append((context.id, context.now))
        while self.times and self.times[0] <= context.now:
            self.times.pop(0)


class Drawing(Fifo):
    """Writes down a random number per message."""

    def __init__(self, drawn: list[tuple[WorkerId, float]]) -> None:
        super().__init__()
        self.drawn = drawn

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self.drawn.append((context.id, context.rng.random()))
        super().enqueue(context, message)


def cluster(strategies: dict[WorkerId, Strategy], **options: object) -> SimulatedCluster:
    """The relay at worker 1 and the ledger at worker 2; a hop of 0.1 s and a service of 1 s."""
    made = SimulatedCluster(
        WORKERS,
        directory((A,)),
        lambda worker, _: strategies[worker],
        network=Network(0.1),
        service=ServiceTimes(1.0),
        **options,  # type: ignore[arg-type]
    )
    feed = made.source(A, HOMES[A], (RELAY,))
    for t in (0.0, 5.0):
        feed.emit_at(t, Output(RELAY, ("a", 1)))
    return made


def everywhere(strategy: type[Strategy]) -> dict[WorkerId, Strategy]:
    return {worker: strategy() for worker in range(WORKERS)}


# --- the pool and chance -----------------------------------------------------------------------------------------------


def test_every_worker_knows_the_pool() -> None:
    made = SimulatedCluster([4, 1, 7], directory((A,)), lambda *_: Fifo())
    assert {worker.workers for worker in made.workers.values()} == {(1, 4, 7)}
    assert len({id(worker.workers) for worker in made.workers.values()}) == 1


def test_chance_is_a_matter_of_the_seed_and_the_worker() -> None:
    runs: list[list[tuple[WorkerId, float]]] = []
    for seed in (1, 1, 2):
        drawn: list[tuple[WorkerId, float]] = []
        cluster({worker: Drawing(drawn) for worker in range(WORKERS)}, seed=seed).run()
        runs.append(drawn)
    assert runs[0] == runs[1] != runs[2]
    assert len({number for _, number in runs[0]}) == 4
    assert isinstance(cluster(everywhere(Fifo)).workers[0].rng, Random)


def test_the_host_says_how_rows_are_counted() -> None:
    made = cluster(everywhere(Fifo), measure=lambda payload: payload[1] * 10)
    assert made.workers[1].measure(("a", 7)) == 70


# --- loads -------------------------------------------------------------------------------------------------------------


def test_a_worker_tells_its_load_with_what_it_sends() -> None:
    made = cluster(everywhere(Telling))
    made.run(until=0.1)
    assert made.workers[1].load(0) == (0.5, 1.0)  # the source's worker was asked once, and told the relay's
    assert made.workers[2].load(1) == (0.0, 0.0)
    made.run(until=1.2001)
    assert made.workers[2].load(1) == (0.5, 1.0)


def test_it_is_asked_once_for_all_that_it_sends_at_a_time() -> None:
    strategies = {worker: Telling() for worker in range(WORKERS)}
    made = cluster(dict(strategies))
    made.run()
    assert strategies[0].asked == strategies[1].asked == 2
    assert strategies[2].asked == 0


def test_nobody_tells_itself() -> None:
    strategies = {worker: Telling() for worker in range(WORKERS)}
    made = cluster(dict(strategies))
    made.run()
    assert made.workers[1].load(3) == (0.0, 0.0)
    assert 1 not in made.workers[1]._loads


def test_strategies_that_know_nothing_of_it_tell_nothing() -> None:
    made = cluster(everywhere(Fifo))
    made.run()
    assert made.workers[1].load(0) == (0.0, 0.0)


class Busy(Fifo, StrategyExtras):
    """Says that a second of work waits while it runs something, and none otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.until = 0.0

    def pre_apply(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self.until = context.now + 1.0

    def backlog_s(self, context: SchedulingContext) -> tuple[float, float]:
        left_s = max(0.0, self.until - context.now)
        return (left_s, left_s)


def test_loads_are_told_without_messages_too_where_that_is_asked_for() -> None:
    with_messages, alone = (cluster(everywhere(Busy), tells_loads=tells_loads) for tells_loads in (False, True))
    for made in (with_messages, alone):
        made.run(until=0.3)  # the relay at worker 1 has begun at 0.1 s, and nothing has been sent since
    assert with_messages.workers[3].load(1) == (0.0, 0.0)
    assert 0.9 < min(alone.workers[3].load(1)) <= 1.0  # as it was told
    assert 1 not in alone.workers[1]._loads
    alone.run()
    assert alone.quiescent()  # it does not go on for ever


def test_a_load_that_is_worked_off_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[WorkerId, WorkerId]] = []
    note = Worker.note_load

    def noted(self: Worker, by: WorkerId, load: tuple[float, float]) -> None:
        told.append((self.id, by))
        note(self, by, load)

    monkeypatch.setattr(Worker, "note_load", noted)
    cluster(everywhere(Busy), tells_loads=True).run(until=1.05)
    assert told.count((3, 1)) == 1


# --- being woken -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fires_timers", [False, True])
def test_a_strategy_is_woken_when_it_wants_to_be(fires_timers: bool) -> None:
    strategies: dict[WorkerId, Strategy] = everywhere(Fifo)
    waking = strategies[1] = Waking(0.5, 0.7, 20.0)
    made = cluster(strategies, fires_timers=fires_timers)
    made.run()
    assert waking.woken == [(1, 0.5), (1, 0.7), (1, 20.0)]
    assert made.now == 20.0
    assert made.quiescent()


def test_a_time_that_is_over_is_now() -> None:
    strategies: dict[WorkerId, Strategy] = everywhere(Fifo)
    waking = strategies[1] = Waking(0.05)  # it is first heard of at 0.1
    cluster(strategies).run()
    ((worker, now),) = waking.woken
    assert (worker, round(now, 9)) == (1, 0.1)


def test_a_strategy_that_only_sends_is_woken_too() -> None:
    strategies: dict[WorkerId, Strategy] = everywhere(Fifo)
    waking = strategies[HOMES[A]] = Waking(3.0)
    cluster(strategies).run()
    assert waking.woken == [(HOMES[A], 3.0)]


# --- taking messages in ------------------------------------------------------------------------------------------------


def test_taking_a_message_in_takes_its_time_one_after_the_other() -> None:
    arrivals: list[tuple[float, WorkerId]] = []

    def trace(now: float, what: str, worker: WorkerId, _: object) -> None:
        if what == "deliver":
            arrivals.append((round(now, 6), worker))

    made = SimulatedCluster(
        WORKERS,
        directory((A,)),
        lambda *_: Fifo(),
        network=Network(0.1),
        service=ServiceTimes(1.0),
        trace=trace,
        fetch_s=0.01,
    )
    feed = made.source(A, HOMES[A], (RELAY,))
    for t in (0.0, 0.0, 0.0, 0.5):
        feed.emit_at(t, Output(RELAY, ("a", 1)))
    made.run(until=1.0)
    assert arrivals == [(0.11, 1), (0.12, 1), (0.13, 1), (0.61, 1)]
