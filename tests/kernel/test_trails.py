"""Where the time of a message went: its trail adds up to its latency, and each part is what it is called."""

from dataclasses import dataclass
from random import Random

import pytest
from msgspec import structs

from dirigo.kernel import (
    CriticalRun,
    Data,
    Hooks,
    Output,
    RunnableMessage,
    SchedulingContext,
    Trail,
    Worker,
    WorkerId,
)
from dirigo.kernel.interface.message import NO_TRAIL, Critical, SyncProgram
from dirigo.scheduling import Fifo
from dirigo.sim.cluster import SimulatedCluster
from dirigo.sim.delay import uniform
from dirigo.sim.network import DeliveryOrder, Network
from dirigo.sim.service import ServiceTimes
from dirigo_lab.verification.guided import Freedom, Guided
from kernel.scenario import AT, HOME, A, D, S, Stage, T, critical, out, program, row, sync_request, unsync
from sim.cluster_jobs import FREEDOM, HOMES, LEDGER, RELAY, WORKERS, directory, some_emissions
from sim.cluster_jobs import A as FIRST
from sim.cluster_jobs import B as SECOND


@dataclass(frozen=True)
class Done:
    """An execution, as its strategy sees it when it is over."""

    message: RunnableMessage
    worker: WorkerId
    now: float
    trail: Trail

    @property
    def latency_s(self) -> float:
        return self.now - self.message.created


class Watched(Guided):
    """Chaos that writes down what became of every message."""

    def __init__(self, rng: Random, freedom: Freedom, done: list[Done]) -> None:
        super().__init__(rng.randrange, freedom)
        self.done = done

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        assert isinstance(context, Worker)
        self.done.append(Done(message, context.id, context.now, context.instance(message.to).context.trail))


def run(seed: int, freedom: Freedom, network: Network, *, count: int = 20, barriers: int = 0) -> list[Done]:
    """Two sources, a relay and a ledger; what their messages went through."""
    done: list[Done] = []

    def strategy(_: WorkerId, rng: Random) -> Hooks:
        return Watched(rng, freedom, done)

    service = ServiceTimes(lambda _message, rng: rng.random() * 0.01)
    cluster = SimulatedCluster(WORKERS, directory(), strategy, network=network, service=service, seed=seed)
    rng = cluster.rng("test")
    for source in (FIRST, SECOND):
        feed, t = cluster.source(source, HOMES[source], (RELAY,)), 0.0
        for output in some_emissions(source, rng, count, barriers):
            t += rng.expovariate(200.0)
            feed.emit_at(t, structs.replace(output, created=t))
    cluster.run()
    assert cluster.quiescent()
    return done


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("barriers", [0, 3])
def test_the_parts_add_up_to_the_latency_whatever_happens(seed: int, barriers: int) -> None:
    network = Network(uniform(0.0001, 0.02), order=DeliveryOrder.NONE, duplicates=0.05)
    done = run(seed, FREEDOM, network, barriers=barriers)
    for each in done:
        assert sum(each.trail) == pytest.approx(each.latency_s, abs=1e-9), each
        assert min(each.trail) >= 0.0
    assert {each.message.to for each in done} == {RELAY, LEDGER}
    assert any(isinstance(each.message, CriticalRun) for each in done)
    assert any(each.worker != HOMES[each.message.to] for each in done)  # forwarded or sent directly
    hop, held, queued, ran = (sum(part) for part in zip(*(each.trail for each in done), strict=True))
    assert min(hop, held, queued, ran) > 0.0


# --- each part by itself -----------------------------------------------------------------------------------------------


def at(stage: Stage, now: float) -> Stage:
    stage.worker.now = now
    return stage


def ends(stage: Stage, elapsed_s: float = 0.0) -> Trail:
    stage.worker.apply()
    return stage.worker.finish(elapsed_s)


def sent(stage: Stage) -> Data:
    """The one data message that has left since the last look."""
    (message,) = (message for message in stage.worker.outgoing if isinstance(message, Data))
    stage.worker.outgoing.clear()
    return message


def test_a_message_is_under_way_until_it_arrives_then_queued_then_executing() -> None:
    stage = at(at(Stage(), 3.0).receives(row("a", 1)), 5.0).starts("a")
    assert ends(at(stage, 9.0), elapsed_s=4.0) == (3.0, 0.0, 2.0, 4.0)


def test_what_an_execution_puts_out_takes_its_trail_along() -> None:
    stage = at(Stage(says={"a": (out(D, "x"),)}), 3.0).receives(row("a", 1)).starts("a")
    ends(at(stage, 4.0), elapsed_s=1.0)
    message = sent(stage)
    assert (message.trail, message.sent) == ((3.0, 0.0, 0.0, 1.0), 4.0)
    downstream = at(Stage(AT[D]), 6.0).receives(message).starts("x")
    assert ends(at(downstream, 7.0), elapsed_s=1.0) == (5.0, 0.0, 0.0, 2.0)


def test_a_forward_and_a_hand_back_are_hops() -> None:
    lessor = at(Stage(), 3.0)
    lessor.steering.elsewhere["a"] = 2
    forward = sent(lessor.receives(row("a", 1)))
    assert (forward.trail, forward.sent) == ((3.0, 0.0, 0.0, 0.0), 3.0)
    lessee = at(Stage(2), 5.0)
    lessee.steering.elsewhere["a"] = HOME
    handed = sent(lessee.receives(forward))
    assert (handed.trail, handed.sent) == ((5.0, 0.0, 0.0, 0.0), 5.0)
    at(lessor, 6.0).receives(handed)
    assert ends(at(at(lessor, 8.0).starts("a"), 9.0), elapsed_s=1.0) == (6.0, 0.0, 2.0, 1.0)


def test_what_comes_during_a_barrier_waits_for_it() -> None:
    stage = at(Stage(), 1.0).receives(program(1, "W", cut=((10, 1, 1),)))
    at(stage, 2.0).receives(row("later", 2))
    at(stage, 4.0).receives(row("a", 1))
    at(stage, 5.0).starts("a")
    assert ends(at(stage, 6.0), elapsed_s=1.0) == (4.0, 0.0, 1.0, 1.0)
    at(stage, 7.0).starts("W")
    assert ends(at(stage, 8.0), elapsed_s=1.0) == (1.0, 5.0, 1.0, 1.0)  # it came at 1, could run from 6 on, ran at 7
    at(stage, 10.0).starts("later")
    assert ends(at(stage, 11.0), elapsed_s=1.0) == (2.0, 6.0, 2.0, 1.0)  # it came at 2, was released at 8, ran at 10


def test_a_message_that_was_chosen_but_may_not_run_was_queued_first_and_waits_for_the_barrier_then() -> None:
    stage = at(Stage(2, strategy=Fifo()), 1.0).receives(row("t", 1, sender=T, worker=2), sync_request(1, 2))
    at(stage, 4.0).is_idle()
    at(stage, 9.0).receives(unsync(1, 2))
    at(stage, 11.0).starts("t")
    assert ends(at(stage, 12.0), elapsed_s=1.0) == (1.0, 5.0, 3.0 + 2.0, 1.0)


def test_a_barrier_of_an_actor_on_itself_counts_as_one() -> None:
    stage = at(Stage(says={"a": (critical(A, "alone"),)}), 1.0).receives(row("a", 1), row("b", 2)).starts("a")
    ends(at(stage, 3.0), elapsed_s=2.0)
    at(stage, 4.0).starts("alone")
    assert ends(at(stage, 5.0), elapsed_s=1.0) == (1.0, 0.0, 1.0, 3.0)


def test_the_oldest_of_a_common_barrier_tells_where_its_time_went() -> None:
    stage = at(Stage(), 4.0).receives(_created_at(program(1, "W", one=1), 3.0))
    at(stage, 6.0).receives(_created_at(program(1, "W", one=1, sender=T), 1.0))
    at(stage, 7.0).starts("W")
    trail = ends(at(stage, 8.0), elapsed_s=1.0)
    assert trail == (5.0, 0.0, 1.0, 1.0)  # of T's, which was created and sent at 1 and came at 6


def _created_at(message: SyncProgram, t: float) -> SyncProgram:
    criticals = tuple(Critical(each.payload, created=t, sent=t) for each in message.criticals)
    return structs.replace(message, criticals=criticals)


def test_what_a_source_could_not_send_yet_is_not_in_the_trail() -> None:
    stage = at(Stage(AT[S], strategy=Fifo()), 5.0)
    stage.source()
    stage.emits(Output(A, "x", created=2.0))
    message = sent(stage)
    assert (message.created, message.sent, message.trail) == (2.0, 5.0, NO_TRAIL)
