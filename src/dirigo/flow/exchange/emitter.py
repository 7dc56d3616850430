"""Where an operator's outputs go: through the stateless steps that were fused to it, and over the edges to other actors.

The tree of branches is part of the plan and shared by all instances of a stage; the emitter is an instance's own, and knows
the message that is running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from dirigo.flow.exchange.payloads import Own
from dirigo.flow.rows.bad_rows import ERRORS, BadRows, OnError, described, raise_for, shown
from dirigo.kernel import Address, Context

MAIN = "main"
LATE = "late"
ERRORS_OUTPUT = "errors"


class Branch(Protocol):
    """One way on for a batch."""

    def push(self, batch: pa.RecordBatch, emitter: Emitter) -> None: ...


class Emitter:
    """The outputs of one instance."""

    __slots__ = ("_late_rows_dropped", "_on_error", "_outlets", "context", "downstreams", "partition", "watermark")

    def __init__(
        self,
        context: Context,
        partition: int,
        outlets: Mapping[str, Sequence[Branch]],
        downstreams: Sequence[Address],
        on_error: OnError,
        late_rows_dropped: Counter[str],
    ) -> None:
        self.context = context
        self.partition = partition
        self.downstreams = downstreams
        self.watermark = 0  # the instance's, set before each message
        self._outlets = outlets
        self._on_error = on_error
        self._late_rows_dropped = late_rows_dropped

    def rows(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        """Emit rows on one of the operator's outputs. Nobody need be listening."""
        if batch.num_rows:
            for branch in self._outlets.get(output, ()):
                branch.push(batch, self)

    def late(self, batch: pa.RecordBatch, operator: str, branches: Sequence[Branch] | None = None) -> None:
        """Rows that came too late for an operator: to whoever takes them, or into a count."""
        branches = self._outlets.get(LATE, ()) if branches is None else branches
        if not branches:
            self.drop_late(batch.num_rows, operator)
        elif batch.num_rows:
            for branch in branches:
                branch.push(batch, self)

    def drop_late(self, rows: int, operator: str) -> None:
        self._late_rows_dropped[operator] += rows

    def send(self, to: Address, port: int, content: Any) -> None:
        """Send a message to another actor: a batch, or whatever the port of the receiver takes."""
        self.context.emit(to, (port, content))

    def run_alone(self, payload: Any) -> None:
        """Have ``on_alone`` of the operator called as soon as its whole state is together."""
        self.context.run_alone(Own(payload))

    def set_timer(self, due_s: float, payload: Any) -> None:
        """Have ``on_alone`` of the operator called once the host's clock has reached ``due_s``."""
        self.context.set_timer(due_s, Own(payload))

    def bad(self, rows: BadRows, operator: str) -> None:
        """Rows that an operator could not handle: they fail the job, or go to the stream of errors."""
        if not rows:
            return
        if self._on_error == "fail":
            raise_for(rows[0], operator)
        self.rows(
            pa.RecordBatch.from_arrays(
                [
                    pa.array([operator] * len(rows), pa.string()),
                    pa.array([described(row.error) for row in rows], pa.string()),
                    pa.array([shown(row.row) for row in rows], pa.string()),
                ],
                schema=ERRORS,
            ),
            ERRORS_OUTPUT,
        )
