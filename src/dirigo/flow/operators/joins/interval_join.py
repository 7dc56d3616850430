"""A join of two streams by nearness in time: a right row joins a left one if it happens within an interval around it.

Rows are kept until the watermark says that nothing can join them any more. A pair is emitted at the first watermark that has
passed both of its rows, so each pair comes once, whichever side was first and wherever its rows ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.api.duration import format_milliseconds
from dirigo.flow.event_time.time_column import TimeColumn, Times
from dirigo.flow.exchange.edge import ByTime, Exchange
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.exchange.shares import Share
from dirigo.flow.operators.joins.matching import JoinShape, Positions, pairs
from dirigo.flow.operators.operator import Operator, StateMoment
from dirigo.flow.operators.windows.partial_store import PartialKey, PartialStore

LEFT, RIGHT = 0, 1
Mask = npt.NDArray[np.bool_]

_NOWHERE: Positions = np.zeros(0, np.int64)


@dataclass(frozen=True)
class _Side:
    """What is kept of one side: its rows, and their times."""

    rows: pa.RecordBatch
    times: Times
    keys: tuple[str, ...]

    @classmethod
    def of(cls, rows: pa.RecordBatch | None, time: TimeColumn, keys: tuple[str, ...]) -> _Side | None:
        return None if rows is None else cls(rows, time.read(rows), keys)

    def keys_at(self, positions: Positions) -> list[pa.Array]:
        wanted = pa.array(positions)
        return [self.rows.column(key).take(wanted) for key in self.keys]


class IntervalJoin(Operator):
    """Pairs of rows with equal keys whose times differ by no less than ``before`` and no more than ``after``."""

    kind = "interval join"
    is_keyed = True

    def __init__(
        self, name: str, shape: JoinShape, times: tuple[TimeColumn, TimeColumn], lower_ms: int, upper_ms: int
    ) -> None:
        super().__init__(name, shape.schema, None)
        self._shape = shape
        self._times = times
        self._keys = (shape.left_on, shape.right_on)
        self._lower_ms = lower_ms  # right.time - left.time lies between these two
        self._upper_ms = upper_ms

    @property
    def watermark_grid_ms(self) -> int:
        return 1

    def describe(self) -> str:
        on = ", ".join(f"{one} = {other}" for one, other in zip(self._shape.left_on, self._shape.right_on, strict=True))
        return f"join on {on} within {_signed(self._lower_ms)} to {_signed(self._upper_ms)}"

    def exchange(self, port: int) -> Exchange:
        return ByTime(self.name, self._keys[port], self._times[port])

    def new_states(self) -> PartialStore:
        return PartialStore()

    @property
    def state_form(self) -> str:
        return f"rows of {self._shape.form}, within {self._lower_ms} to {self._upper_ms} ms"

    def restore_share(self, states: PartialStore, captures: Sequence[Any], share: Share) -> None:
        states.restore_share(captures, lambda side: self._keys[side], share)

    def state_schema(self) -> pa.Schema:
        return self._shape.kept_schema()

    def state_table(self, states: PartialStore, moment: StateMoment) -> pa.Table:
        """The rows of both sides that are kept."""
        kept = [states.partials.get(PartialKey(0, side)) for side in (LEFT, RIGHT)]
        return self._shape.kept_table(*(each.batches if each is not None else [] for each in kept))

    def on_rows(self, states: PartialStore, port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        states.add(PartialKey(0, port), batch)

    def on_watermark(self, states: PartialStore, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        sides = [_Side.of(states.pop(PartialKey(0, side)), self._times[side], keys) for side, keys in enumerate(self._keys)]
        left, right = sides
        if left is not None and right is not None:
            self._emit_pairs(left, right, before_ms, now_ms, emitter)
        # A left row still waits for right rows up to its time + upper; a right row for left rows up to its time - lower.
        for side, reach in ((LEFT, self._upper_ms), (RIGHT, -self._lower_ms)):
            kept = sides[side]
            if kept is not None:
                waits = kept.times + max(reach, 0) >= now_ms
                if waits.all():
                    states.add(PartialKey(0, side), kept.rows)
                elif waits.any():
                    states.add(PartialKey(0, side), kept.rows.filter(pa.array(waits)))

    def _emit_pairs(self, left: _Side, right: _Side, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        """The pairs whose later row lies in [before, now)."""
        left_ready, right_ready = left.times < now_ms, right.times < now_ms
        left_is_new, right_is_new = left.times >= before_ms, right.times >= before_ms
        # At least one row of a pair is new: the left one, or else only the right one.
        of_new_left = self._near(left, right, left_ready & left_is_new, right_ready)
        of_old_left = self._near(left, right, left_ready & ~left_is_new, right_ready & right_is_new)
        left_positions, right_positions = map(np.concatenate, zip(of_new_left, of_old_left, strict=True))
        if len(left_positions):
            emitter.rows(self._shape.assemble(left.rows, right.rows, left_positions, right_positions))

    def _near(self, left: _Side, right: _Side, left_mask: Mask, right_mask: Mask) -> tuple[Positions, Positions]:
        """The pairs of these rows that have equal keys and are near in time."""
        left_positions, right_positions = left_mask.nonzero()[0], right_mask.nonzero()[0]
        if not len(left_positions) or not len(right_positions):
            return _NOWHERE, _NOWHERE
        # Time is cut into stretches as long as the interval, so the right rows near a left one lie in at most two of them.
        # With the stretch as one more key, rows far apart do not even meet when time moves on by much.
        stretch_ms = self._upper_ms - self._lower_ms + 1
        first = (left.times[left_positions] + self._lower_ms) // stretch_ms
        left_positions = np.concatenate([left_positions, left_positions])
        left_stretches, right_stretches = np.concatenate([first, first + 1]), right.times[right_positions] // stretch_ms
        one, other = pairs(
            [*left.keys_at(left_positions), pa.array(left_stretches)],
            [*right.keys_at(right_positions), pa.array(right_stretches)],
        )
        left_positions, right_positions = left_positions[one], right_positions[other]
        apart = right.times[right_positions] - left.times[left_positions]
        keep = (apart >= self._lower_ms) & (apart <= self._upper_ms)
        return left_positions[keep], right_positions[keep]


def _signed(ms: int) -> str:
    return f"-{format_milliseconds(-ms)}" if ms < 0 else format_milliseconds(ms)
