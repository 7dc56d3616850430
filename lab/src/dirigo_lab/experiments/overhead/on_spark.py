"""What a barrier costs on real workers: the function, messages and barriers of ``overhead`` as a job on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from dirigo import Dataflow, Function, FunctionContext, to_nothing
from dirigo.runtime.folders import OwnFolder
from dirigo.state import ValueState
from dirigo_lab.experiments.experiment import Labels, Outcome, Size
from dirigo_lab.experiments.overhead.barrier import WARM_UP_ROUNDS, Setting, outcome
from dirigo_lab.experiments.overhead.barrier_clock import read_marks, timed_rounds
from dirigo_lab.experiments.overhead.forwarding_in_turn import ForwardingInTurn
from dirigo_lab.experiments.window_jobs.scheduled_rows import Entry, ScheduledRows

ROUNDS_ON_SPARK = {Size.FULL: 300, Size.QUICK: 100, Size.TINY: 20}
HOLDER = "holder"
_TIMEOUT_S = 1_200.0
_BARRIER_AFTER = 0.7  # of the time between two barriers, from the messages before one: they should be done by then
_BYTES_PER_S = 40e6  # what two cores surely move, so that a barrier is over before the next one's messages come


class Holder(Function):
    """Writes its state with every message, and gives it up at a barrier."""

    scope = "partition"
    held = ValueState(bytes, default=b"", combine=max)

    def __init__(self, state_bytes: int) -> None:
        self._state_bytes = state_bytes

    def on_batch(self, context: FunctionContext, batch: pa.RecordBatch) -> None:  # noqa: ARG002
        self.held.set(b"\1" * self._state_bytes)

    def on_watermark(self, context: FunctionContext, time_ms: int) -> None:  # noqa: ARG002
        self.held.set(b"")


def run_on_spark(cluster: Any, setting: Setting, rounds: int, labels: Labels, seed: int) -> Outcome:
    """Hold so many barriers on a cluster of this machine, with at least one worker more than lessees."""
    with OwnFolder("barriers") as folder:
        strategy = ForwardingInTurn(HOLDER, setting.lessees, folder)
        flow = flow_of(partial(_schedule, setting, rounds + WARM_UP_ROUNDS), setting.state_bytes)
        cluster.submit(flow, strategy=strategy).wait(_TIMEOUT_S)
        return outcome(timed_rounds(read_marks(folder)), setting, labels, seed)


def flow_of(schedule: Callable[[], Iterator[Entry]], state_bytes: int) -> Dataflow:
    """One function that holds a state of this size, and what comes to it."""
    flow = Dataflow("overhead", watermark_every="1ms")
    flow.source(ScheduledRows(schedule)).process(Holder(state_bytes), {"value": int}, name=HOLDER).sink(to_nothing())
    return flow


def every_s(setting: Setting) -> float:
    """From one barrier to the next: time enough for all messages and states in between, on two cores."""
    return 0.1 + 0.01 * setting.lessees + setting.lessees * setting.state_bytes / _BYTES_PER_S


def _schedule(setting: Setting, rounds: int) -> Iterator[Entry]:
    between_s = every_s(setting)
    for number in range(rounds + 1):
        for _ in range(setting.lessees):
            yield Entry(number * between_s, number)
        if number < rounds:  # the last messages are there to have the last barrier's times written down
            yield Entry((number + _BARRIER_AFTER) * between_s, number)
            yield Entry((number + _BARRIER_AFTER) * between_s, None)


def assumptions_on_spark(size: Size) -> list[str]:
    """What both experiments assume."""
    barriers = (
        f"{ROUNDS_ON_SPARK[size]:,} barriers, far enough apart that each lessee is done with the one message that it gets "
        "before each of them: from 0.1 s for one lessee on, and longer for more lessees and larger states."
    )
    machine = (
        "All workers share the cores of one machine, so that everything that is done at several workers at once is done one "
        "after the other; times are by the clock of the system, which all processes share."
    )
    return [barriers, machine]
