"""What every operator with an actor of its own has: how its input gets to it, what it keeps, and what it does when.

An operator is a description without state, shared by all its instances and all workers. What an instance keeps is handed in
as ``states``; what it emits goes to ``emitter``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.exchange.edge import Exchange, Onward
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.exchange.shares import Share
from dirigo.flow.plan.states import Nothing, OperatorStates


class StateMoment(NamedTuple):
    """Whose state a table is made of, and of when."""

    partition: int
    watermark_ms: int  # as far as the operator had heard
    clock_ms: int


class Operator:
    """Override what differs. By default: stateless, one partition for each of its input's, rows pass."""

    kind = "pass"  # one word for drawings
    is_ordered = False  # rows run at one instance, in the order of each channel
    needs_order = False  # what it emits depends on the order of its input, so whatever is before it keeps that order too
    is_keyed = False  # as many partitions as the flow says; otherwise as many as its input has
    is_single = False  # exactly one partition
    has_late_rows = False  # offers an output with the rows that came too late
    finds_late_rows = False  # itself, not the sender of its input
    holds_back_ms = 0  # how much older than the watermark its results may be
    emits_per_row = False  # what it emits for a row goes at once, and in the order of the rows
    keeps_users_objects = False  # so that handling or measuring its states may run user code
    runs_alone = True  # emits at barriers, so only cheap steps are fused to it

    def __init__(self, name: str, schema: pa.Schema, time: TimeColumn | None) -> None:
        self.name = name
        self.schema = schema  # of its main output
        self.time = time

    @property
    def watermark_grid_ms(self) -> int:
        """Only watermarks that pass a multiple of this change anything here; 0: only the end of the input does."""
        return 0

    def describe(self) -> str:
        """A few words for drawings."""
        return self.kind

    def exchange(self, port: int) -> Exchange:
        """The half of the operator that runs at the sender of its input number ``port``."""
        return Onward()

    def new_states(self) -> OperatorStates:
        return Nothing()

    def state_schema(self) -> pa.Schema | None:
        """The columns of what it keeps, where that can be read as a table; they do not depend on what is kept."""
        return None

    def state_table(self, states: Any, moment: StateMoment) -> pa.Table:
        """What one partition keeps, as a table of these columns. The states are the caller's own, and not used again."""
        raise NotImplementedError

    def on_rows(self, states: Any, port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        emitter.rows(batch)

    def on_watermark(self, states: Any, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        """Event time has moved; the operator is alone with its whole state."""

    def on_alone(self, states: Any, payload: Any, emitter: Emitter) -> None:
        """A timer of the operator's own, or something that it asked to run alone."""

    def on_critical(self, states: Any, payload: Any, emitter: Emitter) -> bool:
        """A critical message of a user's function upstream; False has it passed on to everybody downstream."""
        return False

    # --- savepoints ----------------------------------------------------------------------------------------------------

    @property
    def state_form(self) -> str:
        """What a capture of its states consists of, as a text: where it is another, that capture cannot be restored.

        Empty if it keeps nothing.
        """
        return ""

    @property
    def can_be_divided(self) -> bool:
        """Whether its states can be restored in another number of partitions than they were captured in."""
        return self.is_keyed or not self.state_form

    def restore_share(self, states: Any, captures: Sequence[Any], share: Share) -> None:
        """Hold that part of what all partitions of another job have held whose keys belong here now.

        ``captures`` are not changed: other partitions get theirs of them. An operator that ``can_be_divided`` has this.
        """
        raise FlowError(
            f"the states of operator '{self.name}' ({self.describe()}) cannot be divided anew; resume with as many "
            "partitions as before."
        )

    def share_of_timers(self, payloads: Sequence[Any], share: Share) -> list[bool]:
        """Which timers of other partitions this one needs; what one means to nobody does no harm."""
        return [True] * len(payloads)


def told_schema(schema: pa.Schema) -> str:
    """The columns of a schema in a line."""
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
