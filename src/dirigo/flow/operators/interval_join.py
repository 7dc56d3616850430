"""A join of two streams by nearness in time: a right row joins a left one if it happens within an interval around it.

Rows are kept until the watermark says that nothing can join them any more. A pair is emitted at the first watermark that has
passed both of its rows, so each pair comes once, whichever side was first and wherever its rows ran.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dirigo.flow.duration import format_milliseconds
from dirigo.flow.emitter import Emitter
from dirigo.flow.intake import ByTime, Intake
from dirigo.flow.matching import JoinShape, pairs
from dirigo.flow.operators.operator import Operator
from dirigo.flow.piles import PileKey, Piles
from dirigo.flow.time_column import TimeColumn

LEFT, RIGHT = 0, 1


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
        self._lower_ms = lower_ms  # right.time - left.time lies between these two
        self._upper_ms = upper_ms

    @property
    def watermark_grid_ms(self) -> int:
        return 1

    def describe(self) -> str:
        on = ", ".join(f"{one} = {other}" for one, other in zip(self._shape.left_on, self._shape.right_on, strict=True))
        return f"join on {on} within {_signed(self._lower_ms)} to {_signed(self._upper_ms)}"

    def intake(self, port: int) -> Intake:
        keys = self._shape.left_on if port == LEFT else self._shape.right_on
        return ByTime(self.name, keys, self._times[port])

    def new_states(self) -> Piles:
        return Piles()

    def on_rows(self, states: Piles, port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        states.add(PileKey(0, port), batch)

    def on_watermark(self, states: Piles, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        left, right = states.pop(PileKey(0, LEFT)), states.pop(PileKey(0, RIGHT))
        if left is not None and right is not None:
            self._emit_pairs(left, right, before_ms, now_ms, emitter)
        # A left row still waits for right rows up to its time + upper; a right row for left rows up to its time - lower.
        for side, rows, reach in ((LEFT, left, self._upper_ms), (RIGHT, right, -self._lower_ms)):
            if rows is not None:
                waits = self._times[side].read(rows) + max(reach, 0) >= now_ms
                if waits.any():
                    states.add(PileKey(0, side), rows.filter(pa.array(waits)))

    def _emit_pairs(
        self, left: pa.RecordBatch, right: pa.RecordBatch, before_ms: int, now_ms: int, emitter: Emitter
    ) -> None:
        shape = self._shape
        left_positions, right_positions = pairs(
            [left.column(name) for name in shape.left_on], [right.column(name) for name in shape.right_on]
        )
        left_times = self._times[LEFT].read(left)[left_positions]
        right_times = self._times[RIGHT].read(right)[right_positions]
        apart = right_times - left_times
        later = np.maximum(left_times, right_times)
        keep = (apart >= self._lower_ms) & (apart <= self._upper_ms) & (later >= before_ms) & (later < now_ms)
        emitter.rows(shape.assemble(left, right, left_positions[keep], right_positions[keep]))


def _signed(ms: int) -> str:
    return f"-{format_milliseconds(-ms)}" if ms < 0 else format_milliseconds(ms)
