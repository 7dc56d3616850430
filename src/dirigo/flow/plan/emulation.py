"""Emulated work: an operator that takes longer per message than its code does, for experiments and demos.

It is done where the operator's messages run, by the lessor and by lessees. Operators without it are not touched, and the
simulator adds the same time to its virtual clock instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import sleep, thread_time
from typing import TYPE_CHECKING, Any

from dirigo.flow.errors import FlowError
from dirigo.flow.exchange.payloads import rows_of
from dirigo.kernel import Behaviour, Context, CriticalRun, States

if TYPE_CHECKING:
    from dirigo.flow.api.dataflow import Dataflow
    from dirigo.flow.plan.planner import Planner

_BETWEEN_LOOKS = range(100)  # about a microsecond of arithmetic, so that most of the time is not spent on asking for it


@dataclass(frozen=True)
class Work:
    """What a regular message takes on top of what it takes anyway."""

    per_message_s: float = 0.0
    per_row_s: float = 0.0
    cpu: bool = False  # computing, not sleeping

    def seconds(self, payload: Any) -> float:
        return self.per_message_s + (self.per_row_s * rows_of(payload) if self.per_row_s else 0.0)

    def perform(self, payload: Any) -> None:
        """Let the time go by, on the thread that runs the operator."""
        seconds = self.seconds(payload)
        if self.cpu:
            compute(seconds)
        elif seconds > 0.0:
            sleep(seconds)


def compute(seconds: float) -> None:
    """Use the processor for so long, not counting the time in which others have it."""
    until = thread_time() + seconds
    while thread_time() < until:
        sum(_BETWEEN_LOOKS)


class Working:
    """A behaviour that does its emulated work before each regular message, so that results come after it."""

    __slots__ = ("_inner", "_work")

    def __init__(self, make: Callable[[States], Behaviour], work: Work, states: States) -> None:
        self._inner = make(states)
        self._work = work

    def on_message(self, context: Context, payload: Any) -> None:
        self._work.perform(payload)
        self._inner.on_message(context, payload)

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        self._inner.on_critical(context, critical)


def by_place(flow: Dataflow, planner: Planner) -> dict[str, Work]:
    """The work of each actor that has some. Refuses work for what has no messages of its own."""
    stages = {stage.name: stage for stage in planner.stages}
    works: dict[str, Work] = {}
    for node, work in flow.emulated.items():
        if node not in planner.nodes:
            raise FlowError(
                f"dataflow '{flow.name}': there is no work to emulate in '{node.name}', because it leads to no sink; "
                "end its stream with .sink(...)."
            )
        if node.name not in stages:
            runs_in = node
            while runs_in.name not in stages:
                (upstream,) = runs_in.inputs
                runs_in = upstream.node
            raise FlowError(
                f"dataflow '{flow.name}': '{node.name}' runs as part of '{runs_in.name}' and has no messages of its "
                f"own; emulate the work of '{runs_in.name}'."
            )
        if work.per_message_s or work.per_row_s:
            works.update(dict.fromkeys(stages[node.name].places, work))
    return works
