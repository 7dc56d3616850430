"""What the benchmarks run: the cheapest functions that still emit, and graphs of them."""

from __future__ import annotations

from typing import Any, cast

from dirigo.kernel import Address, Behaviour, Context, CriticalRun, Directory, FunctionSpec, States, WorkerId, actor_address
from dirigo.state import StateSet, ValueState, add

SOURCE = actor_address("bench", "source")


class BenchRelay:
    """Passes on what it gets, watermarks included."""

    def __init__(self, to: Address) -> None:
        self._to = to

    def on_message(self, context: Context, payload: Any) -> None:
        context.emit(self._to, payload)

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        context.emit_critical(self._to, critical.payload)


class Drop:
    """Does nothing with what it gets."""

    def on_message(self, context: Context, payload: Any) -> None:
        """The end of the line."""

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        """The end of the line, for watermarks too."""


class BenchSum:
    """Adds up what it gets, in a state that can be spread over lessees."""

    TOTAL = ValueState(int, default=0, combine=add)

    def __init__(self, states: StateSet) -> None:
        self._total = states.cell("total")

    def on_message(self, context: Context, payload: Any) -> None:  # noqa: ARG002
        self._total.add(payload)

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        """A watermark arrives and changes nothing."""


def no_states() -> States:
    return StateSet({})


def total_states() -> States:
    return StateSet({"total": BenchSum.TOTAL})


def relay_spec(address: Address, home: WorkerId, upstream: Address, downstream: Address) -> FunctionSpec:
    return FunctionSpec(address, home, lambda _: BenchRelay(downstream), no_states, (upstream,), (downstream,))


def sum_spec(address: Address, home: WorkerId, upstream: Address) -> FunctionSpec:
    return FunctionSpec(address, home, _sum, total_states, (upstream,))


def _sum(states: States) -> Behaviour:
    return BenchSum(cast(StateSet, states))


def relays_side_by_side(count: int) -> tuple[Directory, list[Address]]:
    """Many relays on worker 0, each with a target of its own, and their addresses."""
    specs = []
    for index in range(count):
        relay, target = actor_address("bench", "relay", index), actor_address("bench", "target", index)
        specs += [relay_spec(relay, 0, SOURCE, target), sum_spec(target, 0, relay)]
    directory = Directory()
    directory.add_job(specs)
    return directory, [spec.address for spec in specs[::2]]


def pipeline() -> tuple[Directory, Address]:
    """source -> relay at worker 1 -> relay at worker 2 -> an end at worker 0; and the address of the first relay."""
    first, second, end = (actor_address("bench", name) for name in ("first", "second", "end"))
    directory = Directory()
    directory.add_job(
        [
            relay_spec(first, 1, SOURCE, second),
            relay_spec(second, 2, first, end),
            FunctionSpec(end, 0, lambda _: Drop(), no_states, (second,)),
        ]
    )
    return directory, first
