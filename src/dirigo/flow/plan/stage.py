"""A stage: an operator with the stateless steps that were fused to it, as the kernel runs it.

It translates between the kernel's messages and the operator's calls, and it keeps time: watermarks come in per channel, the
operator hears of their minimum, and the minimum goes on to everybody downstream, after what the operator emitted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import Any

import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.errors import CaptureFailure, failure_of, note_place
from dirigo.flow.event_time.watermark import END, Watermark, passes
from dirigo.flow.exchange.emitter import Branch, Emitter
from dirigo.flow.exchange.payloads import Own
from dirigo.flow.operators.operator import Operator, StateMoment
from dirigo.flow.plan.snapshot_barrier import SnapshotBarrier
from dirigo.flow.plan.states import StageCapture, StageStates
from dirigo.flow.rows.bad_rows import OnError
from dirigo.kernel import Address, Context, CriticalRun, Granularity, actor_address


@dataclass
class Stage:
    """One operator of the physical plan. Its partitions are the actors."""

    operator: Operator
    partitions: int
    on_error: OnError
    late_rows_dropped: Counter[str] = field(default_factory=Counter)  # of the whole plan
    steps: list[str] = field(default_factory=list)  # the names of what was fused to it
    outlets: dict[str, list[Branch]] = field(default_factory=dict)
    upstreams: list[set[str]] = field(default_factory=list)  # places, by partition
    downstreams: list[set[str]] = field(default_factory=list)
    keeps_order: bool = False  # for the sake of an operator downstream
    lessees_max: int | None = None  # the tightest of what was said of its nodes, if anything was
    told_grid_ms: int = 0  # what downstream needs to hear of time: see Operator.watermark_grid_ms
    addresses: tuple[Address, ...] = ()  # of its actors, once it belongs to a job
    _job: str = ""

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def is_ordered(self) -> bool:
        return self.operator.is_ordered or self.keeps_order

    @property
    def heard_grid_ms(self) -> int:
        """Which watermarks this stage needs, for itself and for those downstream."""
        return gcd(self.operator.watermark_grid_ms, self.told_grid_ms)

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Its actors, as all jobs of the flow have them: addresses without the job."""
        return tuple(f"{self.name}/{partition}" for partition in range(self.partitions))

    def bind(self, job: str) -> None:
        """Become a stage of a job."""
        self._job = job
        self.addresses = tuple(actor_address(job, self.name, partition) for partition in range(self.partitions))

    def upstreams_of(self, partition: int) -> list[Address]:
        return sorted(f"{self._job}/{place}" for place in self.upstreams[partition])

    def downstreams_of(self, partition: int) -> list[Address]:
        return sorted(f"{self._job}/{place}" for place in self.downstreams[partition])

    def new_states(self, partition: int) -> StageStates:
        return StageStates(self.upstreams_of(partition), self.operator.new_states(), self.name)

    def state_table(self, partition: int, captured: StageCapture, clock_ms: int) -> pa.Table:
        """What a snapshot keeps of a partition, as a table with the columns of the operator's ``state_schema``."""
        states = self.operator.new_states()
        if captured.own is not None:
            states.restore(captured.own)
        return self.operator.state_table(states, StateMoment(partition, captured.head.watermark, clock_ms))


@dataclass(frozen=True)
class StageLink:
    """One connection between stages, for drawings."""

    sender: Stage
    receiver: Stage
    output: str
    exchange: str  # "onward" or the keys


class StageBehaviour:
    """One instance of a stage. It keeps nothing but what can be made again."""

    __slots__ = ("_downstreams", "_emitter", "_operator", "_partition", "_stage", "_states", "_told_grid_ms")

    def __init__(self, stage: Stage, partition: int, states: StageStates) -> None:
        self._stage = stage
        self._operator = stage.operator
        self._downstreams = stage.downstreams_of(partition)
        self._told_grid_ms = stage.told_grid_ms
        self._partition = partition
        self._states = states
        self._emitter: Emitter | None = None

    def on_message(self, context: Context, payload: tuple[int, pa.RecordBatch]) -> None:
        emitter = self._emitter or self._new_emitter(context)
        emitter.watermark = self._states.watermark - self._operator.holds_back_ms
        try:
            self._operator.on_rows(self._states.own, payload[0], payload[1], emitter)
        except DirigoError:
            raise
        except Exception as error:
            raise failure_of(self._operator.name, error) from error
        except BaseException as error:
            note_place(error, self._operator.name)
            raise

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        try:
            self._on_critical(context, critical)
        except DirigoError:
            raise
        except Exception as error:
            raise failure_of(self._operator.name, error) from error
        except BaseException as error:
            note_place(error, self._operator.name)
            raise

    def _on_snapshot(self, context: Context, critical: CriticalRun) -> None:
        """Leave the capture in the context, or why there is none, and pass the barrier on. Operators do not hear of it."""
        is_void = critical.is_void or any(payload.is_void for _, _, payload in critical.parts)
        if not is_void:
            try:
                context.captured = self._states.capture()
            except CaptureFailure as failure:
                context.captured, is_void = failure, True
        self._pass_on(SnapshotBarrier(critical.payload.number, is_void), critical, context)

    def _on_critical(self, context: Context, critical: CriticalRun) -> None:
        if critical.granularity is Granularity.SNAPSHOT:
            self._on_snapshot(context, critical)
            return
        emitter = self._emitter or self._new_emitter(context)
        states = self._states
        emitter.watermark = states.watermark - self._operator.holds_back_ms
        was_idle = states.progress.is_idle
        moved = False
        passed_on: list[Any] = []
        for upstream, _, payload in critical.parts:
            if upstream == context.address:
                # Nothing may follow the end, so a timer that is due later has no effect. A barrier that a strategy started
                # has put the state together, and that is all that it is for.
                if isinstance(payload, Own) and not states.progress.has_ended:
                    self._operator.on_alone(states.own, payload.payload, emitter)
            elif isinstance(payload, Watermark):
                moved |= states.progress.note(upstream, payload)
            elif not self._operator.on_critical(states.own, payload, emitter):
                passed_on.append(payload)
        if passed_on:
            self._pass_on(passed_on[0], critical, context)  # a barrier of several upstreams goes on as one
        is_idle = states.progress.is_idle
        if (moved and self._move_time(emitter)) or is_idle != was_idle:
            held_back = 0 if states.progress.has_ended else self._operator.holds_back_ms
            self._tell(context, Watermark(states.watermark - held_back, is_idle), states.progress.has_ended)

    def _move_time(self, emitter: Emitter) -> bool:
        """Event time has moved: returns whether those downstream have to know."""
        states = self._states
        before, now = states.watermark, states.progress.watermark
        # What the operator emits now precedes the new watermark, so it is measured against the old one.
        if not states.is_over:
            self._operator.on_watermark(states.own, before, now, emitter)
        states.watermark = now
        held_back = self._operator.holds_back_ms
        return now >= END or passes(before - held_back, now - held_back, self._told_grid_ms)

    def _tell(self, context: Context, watermark: Watermark, final: bool) -> None:
        for downstream in self._downstreams:
            context.emit_critical(downstream, watermark, final=final)

    def _pass_on(self, payload: Any, critical: CriticalRun, context: Context) -> None:
        for downstream in self._downstreams:
            context.emit_critical(downstream, payload, granularity=critical.granularity)

    def _new_emitter(self, context: Context) -> Emitter:
        stage = self._stage
        emitter = self._emitter = Emitter(
            context, self._partition, stage.outlets, self._downstreams, stage.on_error, stage.late_rows_dropped
        )
        return emitter
