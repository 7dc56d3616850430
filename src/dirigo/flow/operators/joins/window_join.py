"""A join of two streams within windows: rows of both sides are kept per pane, and joined when their window closes."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa

from dirigo.flow.aggregates.columns.panes import PANE
from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.event_time.windows import PaneWindows, Span
from dirigo.flow.exchange.edge import Exchange
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.exchange.shares import Share
from dirigo.flow.operators.joins.matching import JoinShape
from dirigo.flow.operators.operator import Operator, StateMoment
from dirigo.flow.operators.windows.aggregation import Rows
from dirigo.flow.operators.windows.partial_store import PartialKey, PartialStore
from dirigo.flow.operators.windows.summary import WINDOW_END, WINDOW_START
from dirigo.flow.operators.windows.windowed import IntoWindows

LEFT, RIGHT = 0, 1


class _Side(IntoWindows):
    """Rows of one side, with their panes; the receiver's port is the side."""

    def __init__(
        self,
        operator: str,
        keys: tuple[str, ...],
        time: TimeColumn,
        windows: PaneWindows,
        rows: Rows,
        takes_nulls: bool,
    ) -> None:
        super().__init__(operator, keys, time, windows, 0, rows)
        self._takes_nulls = takes_nulls

    def with_keys(self, batch: pa.RecordBatch, emitter: Emitter) -> pa.RecordBatch:
        return batch if self._takes_nulls else super().with_keys(batch, emitter)

    def spread(self, batch: pa.RecordBatch, edge: object, port: int, emitter: Emitter) -> None:
        super().spread(batch, edge, edge.port, emitter)  # type: ignore[attr-defined, arg-type]


class WindowJoin(Operator):
    """Pairs of rows with equal keys in the same window."""

    kind = "window join"
    is_keyed = True
    has_late_rows = False

    def __init__(
        self,
        name: str,
        shape: JoinShape,
        windows: PaneWindows,
        sides: tuple[tuple[pa.Schema, TimeColumn], tuple[pa.Schema, TimeColumn]],
    ) -> None:
        kind = sides[LEFT][1].bounds_type
        schema = shape.schema.append(pa.field(WINDOW_START, kind)).append(pa.field(WINDOW_END, kind))
        super().__init__(name, schema, TimeColumn(WINDOW_END, kind, offset_ms=-1))
        self.windows = windows
        self._shape = shape
        self._span_time = TimeColumn(WINDOW_END, kind)
        self._keys = (shape.left_on, shape.right_on)
        self._times = tuple(time for _, time in sides)
        self._rows = tuple(Rows(schema, self._keys[side]) for side, (schema, _) in enumerate(sides))

    @property
    def watermark_grid_ms(self) -> int:
        return gcd(self.windows.pane_ms, self.windows.offset_ms)

    def describe(self) -> str:
        on = ", ".join(f"{one} = {other}" for one, other in zip(self._shape.left_on, self._shape.right_on, strict=True))
        return f"{self._shape.how} join on {on}, {self.windows}"

    def exchange(self, port: int) -> Exchange:
        # Only an inner join has no place for a row whose key is null; in the others it is one without a partner.
        takes_nulls = self._shape.how != "inner"
        return _Side(self.name, self._keys[port], self._times[port], self.windows, self._rows[port], takes_nulls)

    def new_states(self) -> PartialStore:
        return PartialStore()

    @property
    def state_form(self) -> str:
        return f"{self.windows!r} of {self._shape.form}"

    def restore_share(self, states: PartialStore, captures: Sequence[Any], share: Share) -> None:
        states.restore_share(captures, lambda side: self._keys[side], share)

    def state_schema(self) -> pa.Schema:
        return self._shape.kept_schema()

    def state_table(self, states: PartialStore, moment: StateMoment) -> pa.Table:
        """The rows of both sides that are kept."""
        sides = [
            [self._rows[side].finish([states.partials[key].whole()]) for key in sorted(states.partials) if key.slot == side]
            for side in (LEFT, RIGHT)
        ]
        return self._shape.kept_table(*sides)

    def on_rows(self, states: PartialStore, port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        panes = batch.column(PANE).to_numpy()
        for pane in np.unique(panes).tolist():
            mask = panes == pane
            if self.windows.last_end(pane) <= emitter.watermark:  # of a channel that was idle while time went on
                emitter.drop_late(int(mask.sum()), self.name)
                continue
            states.add(PartialKey(pane, port), batch if mask.all() else batch.filter(pa.array(mask)))

    def on_watermark(self, states: PartialStore, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        for span in self.windows.closing(states.buckets(), before_ms, now_ms):
            joined = self._shape.join(self._gather(states, span, LEFT), self._gather(states, span, RIGHT))
            times = (np.full(joined.num_rows, span.start_ms), np.full(joined.num_rows, span.end_ms))
            columns = [*joined.columns, *(self._span_time.array(each) for each in times)]
            emitter.rows(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        for key in [key for key in states.partials if self.windows.last_end(key.bucket) <= now_ms]:
            states.drop(key)

    def _gather(self, states: PartialStore, span: Span, side: int) -> pa.RecordBatch:
        found = [
            batch
            for pane in states.buckets_in(self.windows.panes_of(span))
            if (batch := states.compact(PartialKey(pane, side))) is not None
        ]
        if not found:
            return pa.RecordBatch.from_pylist([], schema=self._rows[side].output_schema)
        return self._rows[side].finish([pa.concat_batches(found)])
