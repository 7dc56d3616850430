"""A strategy may start a barrier at any actor: its state is put together, and nothing else happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import dirigo as dg
from dirigo.flow.event_time.watermark import END, Watermark
from dirigo.flow.operators.operator import Operator
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.kernel import Address, CriticalOutput, Output, RunnableMessage, SchedulingContext, WorkerId, operator_of
from dirigo.scheduling import Chaos, Strategy
from dirigo.state import ValueState, add
from dirigo.testing import Simulation, run
from flow.flows import TS_SCHEMA, Rows, event, unordered
from flow.operators.builds import BUILDS

# Whatever a strategy likes to send; also what an operator, or the flow, knows from elsewhere.
PAYLOADS = [None, 0, 10**15, "seven", "alone", ("a", 1), Watermark(END), Watermark(5, is_idle=True)]
WORKERS = 3


class Restless(Chaos):
    """Chaos that starts barriers in every hook, at actors whose home is here."""

    def __init__(self, rng: Random, local: list[Address], started: Counter[str]) -> None:
        super().__init__()
        self._rng = rng
        self._local = local
        self._started = started
        self._left = 60

    def _maybe(self, context: SchedulingContext) -> None:
        if self._local and self._left and self._rng.random() < 0.1:
            self._left -= 1
            actor = self._rng.choice(self._local)
            self._started[operator_of(actor)] += 1
            context.run_alone(actor, self._rng.choice(PAYLOADS))

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        self._maybe(context)
        return super().enqueue(context, message)

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        self._maybe(context)
        return super().get_next_message(context)

    def pre_apply(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self._maybe(context)

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        self._maybe(context)
        super().post_apply(context, message, elapsed_s)

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        self._maybe(context)
        return super().prepare_send(context, sender, output)


def flow_of(name: str, rows: Rows) -> dg.Dataflow:
    flow = dg.Dataflow("injected", watermark_every="1ms", on_error="side_output", partitions=2)
    BUILDS[name](flow.source(dg.from_iterable(rows, TS_SCHEMA, time="ts", out_of_orderness="3ms"))).sink(dg.to_memory())
    flow.errors.sink(dg.to_memory(name="errors"))
    return flow


def injected(flow: dg.Dataflow, seed: int, started: Counter[str]) -> Simulation:
    specs = BoundJob(flow, list(range(WORKERS))).specs()
    local = {worker: [spec.address for spec in specs if spec.home == worker] for worker in range(WORKERS)}
    strategy = lambda worker, rng: Restless(rng, local[worker], started)  # noqa: E731
    return run(flow, workers=WORKERS, chaos=True, seed=seed, rows_max=3, strategy=strategy)


def outcome(simulation: Simulation) -> tuple[list[Any], list[Any]]:
    return unordered(simulation.rows("to_memory")), unordered(simulation.rows("errors"))


@pytest.mark.parametrize("name", BUILDS)
def test_barriers_that_a_strategy_starts_change_no_result(name: str) -> None:
    started: Counter[str] = Counter()
    for seed in range(8):
        rng = Random(seed)
        rows = [event(rng.choice("abc"), number, number + rng.randrange(3)) for number in range(50)]
        expected = outcome(run(flow_of(name, rows), rows_max=3))
        assert expected[0]
        assert outcome(injected(flow_of(name, rows), seed, started)) == expected
    assert {stage.name for stage in BoundJob(flow_of(name, rows)).plan.stages} == set(started)


def _operators(cls: type[Operator] = Operator) -> Iterator[type[Operator]]:
    for each in cls.__subclasses__():
        yield each
        yield from _operators(each)


def test_the_flows_here_have_all_operators() -> None:
    row = event("a", 1, 1)
    used = {type(stage.operator) for name in BUILDS for stage in BoundJob(flow_of(name, [row])).plan.stages}
    assert used >= {each for each in _operators() if each.__module__.startswith("dirigo.")}


class Sums(dg.Function):
    """Emits, for each row, how many rows it knows of: those that ran here, and all that ran before the last barrier."""

    scope = "partition"
    count = ValueState(int, default=0, combine=add, replicated=True)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        context.emit({"known": self.count.read()})


class HalfAway(Strategy):
    """Every other message of one actor runs elsewhere; after each that runs at home, a barrier is started if asked for."""

    def __init__(self, starts_barriers: bool) -> None:
        self.starts_barriers = starts_barriers
        self.kept: list[RunnableMessage] = []
        self.seen = 0

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        if operator_of(message.to) == "process" and not message.critical and context.spec(message.to).home == context.id:
            self.seen += 1
            elsewhere = (context.id + 1) % len(context.workers)
            if self.seen % 2 and context.may_forward(message, elsewhere):
                return elsewhere
        self.kept.append(message)
        return None

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        return self.kept.pop(0) if self.kept else None

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        is_home = context.spec(message.to).home == context.id
        if self.starts_barriers and is_home and operator_of(message.to) == "process" and not message.critical:
            context.run_alone(message.to, "gather")


@pytest.mark.parametrize("starts_barriers", [True, False])
def test_a_barrier_that_a_strategy_starts_puts_the_state_together(starts_barriers: bool) -> None:
    flow = dg.Dataflow("gathered")
    source = dg.from_iterable([{"x": number, "ts": 100 * number} for number in range(40)], time="ts")
    flow.source(source).process(Sums, {"known": int}).sink(dg.to_memory())
    simulation = run(flow, workers=2, rows_max=1, strategy=HalfAway(starts_barriers))
    assert simulation.elsewhere["process"] >= 15
    most = max(row["known"] for row in simulation.rows())
    assert most > 35 if starts_barriers else most < 25  # of 40 rows, each place has seen about half
