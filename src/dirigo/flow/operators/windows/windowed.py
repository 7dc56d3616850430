"""Tumbling and sliding windows over a summary: rows are laid into panes wherever they run, windows are put together at the
watermark (or, for windows of processing time, at a timer), alone and with the whole state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa

from dirigo.flow.event_time.time_column import TimeColumn, Times
from dirigo.flow.event_time.watermark import END
from dirigo.flow.event_time.windows import PaneWindows, Span, Tumbling, WholeStream
from dirigo.flow.exchange.edge import ByKey, ByTime, Edge, Exchange, timed
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.exchange.shares import Share
from dirigo.flow.operators.operator import Operator, StateMoment
from dirigo.flow.operators.windows.partial_store import PartialKey, PartialStore
from dirigo.flow.operators.windows.summary import (
    ALL_SLOTS,
    RAW_ROWS,
    WINDOW_END,
    WINDOW_START,
    Summary,
    finished,
    form_of,
    shown,
    shown_schema,
    spread_slots,
    summable,
)
from dirigo.flow.rows.grouping import Grouping
from dirigo.flow.rows.own_memory import cut

_PROCESSING_TIME = pa.timestamp("ms", tz="UTC")


class WindowState(PartialStore):
    """Partial results per pane; for processing time also how far windows have been emitted, which lessees must know."""

    __slots__ = ("closed_ms",)

    def __init__(self, summary: Summary) -> None:
        super().__init__(summary.merge)
        self.closed_ms = 0

    def view(self) -> int:
        return self.closed_ms

    def install_view(self, view: int) -> None:
        self.closed_ms = view

    def capture(self) -> Any:
        batches = super().capture()
        return (self.closed_ms, batches) if self.closed_ms or batches is not None else None

    def restore(self, captured: Any) -> None:
        self.closed_ms, batches = captured
        if batches is not None:
            super().restore(batches)


class IntoWindows(ByTime):
    """The half that runs at the sender: rows are summarised per pane and key before they leave, unless told otherwise."""

    def __init__(
        self,
        operator: str,
        keys: tuple[str, ...],
        time: TimeColumn | None,
        windows: PaneWindows,
        lateness_ms: int,
        summary: Summary,
        combines_early: bool = True,
    ) -> None:
        ByKey.__init__(self, operator, keys)
        self.column = time if windows.time == "event" else None  # None: the receiver's clock decides
        self.windows = windows
        self.lateness_ms = lateness_ms
        self.summary = summary
        self.combines_early = combines_early

    def send(self, batch: pa.RecordBatch, edge: Edge, emitter: Emitter) -> None:
        batch = self.with_keys(batch, emitter)
        if not batch.num_rows:
            return
        panes: Times | int = 0
        if self.column is not None:
            batch, times = timed(batch, self.column, self.operator, emitter)
            if batch.num_rows:
                batch, panes = self._in_panes(batch, times, edge, emitter)
            if not batch.num_rows:
                return
        if not self.combines_early:
            self.spread(batch, edge, RAW_ROWS, emitter)
            return
        try:
            partials = self.summary.partial(batch, panes)
        except Exception as error:  # an expression inside an aggregate may fail on any value
            self.send(summable(batch, self.summary, self.operator, error, emitter), edge, emitter)
            return
        spread_slots(self, partials, edge, emitter)

    def _in_panes(
        self, batch: pa.RecordBatch, times: Times, edge: Edge, emitter: Emitter
    ) -> tuple[pa.RecordBatch, Times | int]:
        windows = self.windows
        closed = emitter.watermark - self.lateness_ms
        panes = windows.panes(times)
        if isinstance(panes, int):
            if windows.last_end(panes) > closed:
                return batch, panes
            edge.push_late(batch, emitter)
            return batch.slice(0, 0), panes
        return self.in_time(batch, panes, windows.last_ends(panes) <= closed, edge, emitter)


class Windowed(Operator):
    """A summary per window and key."""

    kind = "window"
    is_keyed = True
    has_late_rows = True

    def __init__(
        self,
        name: str,
        input_time: TimeColumn | None,
        keys: tuple[str, ...],
        windows: PaneWindows,
        summary: Summary,
        *,
        lateness_ms: int = 0,
        window_columns: bool = True,
        emits_updates: bool = False,
        combines_early: bool = True,
        described: str = "",
    ) -> None:
        self.keys = keys
        self.is_single = not keys
        self.is_keyed = bool(keys)
        self.windows = windows
        self.has_late_rows = not isinstance(windows, WholeStream) and windows.time == "event"
        self.summary = summary
        self.lateness_ms = lateness_ms
        self.emits_updates = emits_updates  # what changed at every watermark, before a window has closed
        self._combines_early = combines_early  # at the sender of its input
        self._described = described
        self._input_time = input_time
        self._by_clock = windows.time == "processing"
        self._span_time: TimeColumn | None = None
        schema, time = summary.output_schema, None
        kind = _PROCESSING_TIME if self._by_clock or input_time is None else input_time.bounds_type
        self._bounds = None if isinstance(windows, WholeStream) else TimeColumn(WINDOW_END, kind)
        if window_columns and self._bounds is not None:
            schema = schema.append(pa.field(WINDOW_START, kind)).append(pa.field(WINDOW_END, kind))
            self._span_time = self._bounds
            time = None if self._by_clock else TimeColumn(WINDOW_END, kind, offset_ms=-1)
        super().__init__(name, schema, time)

    def describe(self) -> str:
        keys = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"{self._described or self.kind}, {self.windows}{keys}"

    @property
    def watermark_grid_ms(self) -> int:
        if self.emits_updates:
            return 1
        if self._by_clock or isinstance(self.windows, WholeStream):
            return 0
        return gcd(self.windows.pane_ms, self.windows.offset_ms, self.lateness_ms)

    def exchange(self, port: int) -> Exchange:
        windows, combines_early = self.windows, self._combines_early
        return IntoWindows(self.name, self.keys, self._input_time, windows, self.lateness_ms, self.summary, combines_early)

    def new_states(self) -> WindowState:
        return WindowState(self.summary)

    @property
    def state_form(self) -> str:
        return f"{self.windows!r}, {self.lateness_ms} ms late at most, of {form_of(self.summary)}"

    @property
    def can_be_divided(self) -> bool:
        """By the clock, each partition closes windows on its own; only of those side by side nothing is left then."""
        return self.is_keyed and (not self._by_clock or isinstance(self.windows, Tumbling))

    def restore_share(self, states: WindowState, captures: Sequence[Any], share: Share) -> None:
        # The furthest behind: what was closed elsewhere is gone there, and nothing is left open for ever.
        states.closed_ms = min(closed_ms for closed_ms, _ in captures)
        tables = [batches for _, batches in captures if batches is not None]
        PartialStore.restore_share(states, tables, lambda _: self.keys, share)

    # --- as a table that can be read -----------------------------------------------------------------------------------

    def state_schema(self) -> pa.Schema:
        return shown_schema(self.summary, self.keys, None if self._bounds is None else self._bounds.type)

    def state_table(self, states: WindowState, moment: StateMoment) -> pa.Table:
        """What each window that may still be emitted has come to so far."""
        schema = self.state_schema()
        closed_ms = states.closed_ms if self._by_clock else moment.watermark_ms - self.lateness_ms
        spans = {span for pane in states.buckets() for span in self.windows.spans(pane) if span.end_ms > closed_ms}
        batches = []
        for span in sorted(spans, key=lambda span: span.end_ms):
            rows = self.summary.finish([self._gather(states, span, slot) for slot in range(self.summary.slots)])
            ends = () if self._bounds is None else (span.start_ms, span.end_ms)
            bounds = [self._bounds.array(np.full(rows.num_rows, end)) for end in ends] if self._bounds is not None else []
            batches.append(shown(rows, bounds, schema))
        return pa.Table.from_batches(batches, schema)

    # --- rows ----------------------------------------------------------------------------------------------------------

    def on_rows(self, states: WindowState, port: int, batch: Any, emitter: Emitter) -> None:
        if port == ALL_SLOTS:
            for slot, part in batch:
                self._on_slot(states, slot, part, emitter)
        elif port == RAW_ROWS:
            self._on_raw(states, batch, emitter)
        else:
            self._on_slot(states, port, batch, emitter)

    def _on_raw(self, states: WindowState, batch: pa.RecordBatch, emitter: Emitter) -> None:
        """Rows that are to be summarised here. Their sender has seen that they have keys and times and are not late."""
        panes: Times | int = 0
        if not self._by_clock and self._input_time is not None:
            panes = self.windows.panes(self._input_time.read(batch))
        try:
            partials = self.summary.partial(batch, panes)
        except Exception as error:  # an expression inside an aggregate may fail on any value
            good = summable(batch, self.summary, self.name, error, emitter)
            if good.num_rows:
                self._on_raw(states, good, emitter)
            return
        for slot, partial in enumerate(partials):
            if partial.num_rows:
                self._on_slot(states, slot, partial, emitter)

    def _on_slot(self, states: WindowState, port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        if self._by_clock:
            self._add_now(states, port, batch, emitter)
            return
        panes = batch.column(0).to_numpy()
        first = int(panes[0])
        if panes[0] == panes[-1] and (panes == first).all():
            self._add(states, first, port, batch, emitter)
            return
        grouping = Grouping.of([batch.column(0)], batch.num_rows)
        order = np.argsort(grouping.codes, kind="stable")
        ordered = batch.take(pa.array(order))
        ends = np.cumsum(np.bincount(grouping.codes))
        start = 0
        for number, end in enumerate(ends.tolist()):
            pane = int(panes[grouping.firsts[number]])
            self._add(states, pane, port, cut(ordered, start, end - start), emitter)
            start = end

    def _add(self, states: WindowState, pane: int, slot: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        watermark = emitter.watermark + self.holds_back_ms
        if self.windows.last_end(pane) + self.lateness_ms <= watermark:
            # Not late on its own channel, but a channel that was idle meanwhile did not hold the others back.
            emitter.drop_late(batch.num_rows, self.name)
            return
        states.add(PartialKey(pane, slot, self._is_late(pane, watermark)), batch)

    def _is_late(self, pane: int, watermark: int) -> bool:
        """Whether a window that a pane belongs to has been emitted already, so that it must be emitted again."""
        if self.emits_updates:
            return True
        return self.lateness_ms > 0 and next(iter(self.windows.spans(pane))).end_ms <= watermark

    def _add_now(self, states: WindowState, slot: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        now_ms = max(int(emitter.context.now * 1000), states.closed_ms)  # a clock that is behind must not reopen a window
        pane = self.windows.pane_of(now_ms)
        key = PartialKey(pane, slot)
        if key not in states.partials:
            for span in self.windows.spans(pane):
                if span.end_ms > states.closed_ms:
                    emitter.set_timer(span.end_ms / 1000, span.end_ms)
        states.add(key, batch)

    # --- time ----------------------------------------------------------------------------------------------------------

    def on_watermark(self, states: WindowState, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        if self._by_clock:
            if now_ms >= END:
                self._close(states, states.closed_ms, END, emitter)
            return
        self._emit_again(states, before_ms, now_ms, emitter)
        self._close(states, before_ms, now_ms, emitter)

    def on_alone(self, states: WindowState, payload: int, emitter: Emitter) -> None:
        """The timer at the end of a window of processing time."""
        if payload > states.closed_ms:
            self._close(states, states.closed_ms, payload, emitter)
            states.closed_ms = payload

    def _close(self, states: WindowState, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        """Emit the windows that end in (before, now], and drop the panes that no window needs any more."""
        if not (self.emits_updates and isinstance(self.windows, WholeStream)):
            for span in self.windows.closing(states.buckets(), before_ms, now_ms):
                self._emit(states, span, emitter)
        for key in [key for key in states.partials if self.windows.last_end(key.bucket) + self.lateness_ms <= now_ms]:
            states.drop(key)

    def _emit(self, states: WindowState, span: Span, emitter: Emitter) -> None:
        partials = [self._gather(states, span, slot) for slot in range(self.summary.slots)]
        self._emit_finished(partials, span, emitter)

    def _emit_finished(self, partials: list[pa.RecordBatch], span: Span, emitter: Emitter) -> None:
        if partials[0].num_rows:
            emitter.rows(self._with_span(finished(self.summary, partials, span, self.name, emitter), span))

    def _gather(self, states: WindowState, span: Span, slot: int) -> pa.RecordBatch:
        """One slot of all panes of a window."""
        found = [
            batch
            for pane in states.buckets_in(self.windows.panes_of(span))
            for is_late in (False, True)
            if (batch := states.compact(PartialKey(pane, slot, is_late))) is not None
        ]
        return _together(found, self.summary, slot)

    def _with_span(self, batch: pa.RecordBatch, span: Span) -> pa.RecordBatch:
        if self._span_time is None:
            return batch
        times = (np.full(batch.num_rows, span.start_ms), np.full(batch.num_rows, span.end_ms))
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *(self._span_time.array(each) for each in times)], schema=self.schema
        )

    # --- late rows, and updates ----------------------------------------------------------------------------------------

    def _emit_again(self, states: WindowState, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        """Windows that were emitted and got rows since: their results again, for the keys that changed."""
        late = [key for key in states.partials if key.is_late]
        if not late:
            return
        spans = {span for key in late for span in self.windows.spans(key.bucket)}
        whole_stream = isinstance(self.windows, WholeStream)
        for span in sorted(spans, key=lambda span: span.end_ms):
            was_emitted = span.end_ms <= before_ms or self.emits_updates
            is_kept = span.end_ms + self.lateness_ms > before_ms
            will_be_emitted = before_ms < span.end_ms <= now_ms and not whole_stream
            if was_emitted and is_kept and not will_be_emitted:
                self._emit_changed(states, span, emitter)
        for key in late:
            batch = states.pop(key)
            states.add(PartialKey(key.bucket, key.slot), batch)

    def _emit_changed(self, states: WindowState, span: Span, emitter: Emitter) -> None:
        changed = [
            states.compact(key)
            for key in states.partials
            if key.is_late and key.slot == 0 and span.start_ms <= key.bucket < span.end_ms
        ]
        if not changed:
            return
        partials = [_of_keys(self._gather(states, span, slot), changed, self.keys) for slot in range(self.summary.slots)]
        self._emit_finished(partials, span, emitter)


def _together(batches: list[Any], summary: Summary, slot: int) -> pa.RecordBatch:
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=summary.partial_schema(slot))
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _of_keys(batch: pa.RecordBatch, changed: Iterable[pa.RecordBatch], keys: tuple[str, ...]) -> pa.RecordBatch:
    """The rows of a batch whose keys occur in other batches."""
    if not keys or not batch.num_rows:
        return batch
    wanted = pa.concat_batches([each.select(list(keys)) for each in changed])
    columns = [pa.concat_arrays([batch.column(key), wanted.column(key)]) for key in keys]
    grouping = Grouping.of(columns, batch.num_rows + wanted.num_rows)
    is_wanted = np.zeros(grouping.count, dtype=bool)
    is_wanted[grouping.codes[batch.num_rows :]] = True
    return batch.filter(pa.array(is_wanted[grouping.codes[: batch.num_rows]]))
