"""Session windows: stretches of activity per key, which grow and melt together as rows come in.

Every batch is cut into short sessions, as a rule where it is produced; a piece of a session is an interval with a partial
summary. Pieces are laid together wherever they run, and joined at the watermark, where all of them are known. Only there can
one say whether a row is late: an old row that touches a session still open belongs to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dirigo.flow.aggregates.columns.panes import PANE
from dirigo.flow.event_time.time_column import TimeColumn, Times
from dirigo.flow.event_time.windows import Session, Span
from dirigo.flow.exchange.edge import ByTime, Edge, Exchange, timed
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.exchange.shares import Share
from dirigo.flow.operators.operator import Operator, StateMoment
from dirigo.flow.operators.windows.partial_store import PartialKey, PartialStore
from dirigo.flow.operators.windows.row_functions import Applied
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

_START, _END = "__start", "__end"
_ALL = 0  # sessions have no panes: one bucket


class IntoSessions(ByTime):
    """Rows as pieces of sessions. Rows that may be late travel whole, on the port after the last slot."""

    def __init__(
        self,
        operator: str,
        keys: tuple[str, ...],
        time: TimeColumn,
        window: Session,
        lateness_ms: int,
        summary: Summary,
        combines_early: bool,
    ) -> None:
        super().__init__(operator, keys, time)
        self.gap_ms = window.gap_ms
        self.lateness_ms = lateness_ms
        self.summary = summary
        self.combines_early = combines_early

    def send(self, batch: pa.RecordBatch, edge: Edge, emitter: Emitter) -> None:
        batch, times = timed(self.with_keys(batch, emitter), self.time, self.operator, emitter)
        doubtful = times + self.gap_ms + self.lateness_ms < emitter.watermark
        if doubtful.any():
            self.spread(batch.filter(pa.array(doubtful)), edge, self.summary.slots, emitter)
            batch, times = batch.filter(pa.array(~doubtful)), times[~doubtful]
        if not batch.num_rows:
            return
        if not self.combines_early:
            self.spread(batch, edge, RAW_ROWS, emitter)
            return
        try:
            pieces = pieces_of(batch, times, self.keys, self.gap_ms, self.summary)
        except Exception as error:  # an expression inside an aggregate may fail on any value
            self.send(summable(batch, self.summary, self.operator, error, emitter), edge, emitter)
            return
        spread_slots(self, pieces, edge, emitter)


class Sessions(Operator):
    """A summary per session and key."""

    kind = "session window"
    has_late_rows = True
    finds_late_rows = True

    def __init__(
        self,
        name: str,
        input_time: TimeColumn,
        keys: tuple[str, ...],
        window: Session,
        summary: Summary,
        lateness_ms: int,
        window_columns: bool = True,
        combines_early: bool = True,
    ) -> None:
        kind, schema, time = input_time.bounds_type, summary.output_schema, None
        if window_columns:
            schema = schema.append(pa.field(WINDOW_START, kind)).append(pa.field(WINDOW_END, kind))
            time = TimeColumn(WINDOW_END, kind, offset_ms=-1)
        super().__init__(name, schema, time)
        self._window_columns = window_columns
        self._combines_early = combines_early  # at the sender of its input
        self.keys = keys
        self.is_keyed = bool(keys)
        self.is_single = not keys
        self.window = window
        self.summary = summary
        self.lateness_ms = lateness_ms
        self.holds_back_ms = lateness_ms + 1
        self._input_time = input_time
        self._bounds = TimeColumn(WINDOW_END, kind)

    @property
    def watermark_grid_ms(self) -> int:
        return 1

    def describe(self) -> str:
        return f"{self.window} by {', '.join(self.keys)}" if self.keys else str(self.window)

    def exchange(self, port: int) -> Exchange:
        window, combines_early = self.window, self._combines_early
        return IntoSessions(self.name, self.keys, self._input_time, window, self.lateness_ms, self.summary, combines_early)

    def new_states(self) -> PartialStore:
        return PartialStore(self._compact)

    @property
    def state_form(self) -> str:
        return f"{self.window!r}, {self.lateness_ms} ms late at most, of {form_of(self.summary)}"

    def restore_share(self, states: PartialStore, captures: Sequence[Any], share: Share) -> None:
        states.restore_share(captures, lambda _: self.keys, share)

    def state_schema(self) -> pa.Schema:
        return shown_schema(self.summary, self.keys, self._bounds.type)

    def state_table(self, states: PartialStore, moment: StateMoment) -> pa.Table:
        """What each open session has come to so far. Rows of which nobody can say yet whether they are late are left out."""
        schema = self.state_schema()
        pieces = [states.pop(PartialKey(_ALL, slot)) for slot in range(self.summary.slots)]
        present = [slot for slot, piece in enumerate(pieces) if piece is not None]
        if not present or pieces[0] is None:
            return schema.empty_table()
        numbers, starts, ends = _sessions([pieces[slot] for slot in present], self.keys)
        tables = [
            pa.RecordBatch.from_pylist([], schema=self.summary.partial_schema(slot)) for slot in range(self.summary.slots)
        ]
        for slot, number in zip(present, numbers, strict=True):
            tables[slot] = _with_panes(self.summary, slot, pieces[slot], number)
        if isinstance(self.summary, Applied):
            outcomes = [(self.summary.finish(tables), numbers[0])]
        else:
            results = [(self.summary.finish(each), each) for each in self._in_turn(tables, len(starts))]
            outcomes = [(rows, self._sessions_of(rows, each)) for rows, each in results]
        batches = [
            shown(rows, [self._bounds.array(each[sessions]) for each in (starts, ends)], schema)
            for rows, sessions in outcomes
        ]
        return pa.Table.from_batches(batches, schema)

    def _compact(self, slot: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Pieces that touch are one; what a single slot shows of that is safe to use, the rest is found at the watermark."""
        if slot == self.summary.slots:
            return batch
        numbers, starts, ends = _sessions([batch], self.keys)
        return _merged(self.summary, slot, batch, numbers[0], starts, ends)

    def on_rows(self, states: PartialStore, port: int, batch: Any, emitter: Emitter) -> None:
        if port == RAW_ROWS:
            batch = [(slot, piece) for slot, piece in enumerate(self._pieces(batch, emitter)) if piece.num_rows]
        elif port != ALL_SLOTS:
            batch = [(port, batch)]
        for slot, part in batch:
            states.add(PartialKey(_ALL, slot), part)

    def _pieces(self, batch: pa.RecordBatch, emitter: Emitter) -> list[pa.RecordBatch]:
        """Rows that came whole as pieces of sessions, one table per slot; none if all of them are bad."""
        if not batch.num_rows:
            return []
        try:
            return pieces_of(batch, self._input_time.read(batch), self.keys, self.window.gap_ms, self.summary)
        except Exception as error:  # an expression inside an aggregate may fail on any value
            return self._pieces(summable(batch, self.summary, self.name, error, emitter), emitter)

    def on_watermark(self, states: PartialStore, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        if not self._anything_to_do(states, now_ms):
            return
        pieces = [states.pop(PartialKey(_ALL, slot)) for slot in range(self.summary.slots)]
        doubtful = states.pop(PartialKey(_ALL, self.summary.slots))
        if doubtful is not None:
            pieces = self._with_doubtful(pieces, doubtful, emitter)
        present = [slot for slot, piece in enumerate(pieces) if piece is not None]
        if not present:
            return
        numbers, starts, ends = _sessions([pieces[slot] for slot in present], self.keys)
        # A row just at the end of a session still touches it, so time must have passed the end.
        is_over = ends + self.lateness_ms < now_ms
        finished: list[pa.RecordBatch] = [
            pa.RecordBatch.from_pylist([], schema=self.summary.partial_schema(slot)) for slot in range(self.summary.slots)
        ]
        for slot, number in zip(present, numbers, strict=True):
            over = is_over[number]
            piece = pieces[slot]
            assert piece is not None
            if not over.all():
                open_ones = pa.array(~over)
                rest = _merged(self.summary, slot, piece.filter(open_ones), number[~over], starts, ends)
                states.add(PartialKey(_ALL, slot), rest)
            finished[slot] = _with_panes(self.summary, slot, piece.filter(pa.array(over)), number[over])
        self._emit(finished, starts, ends, emitter)

    def _anything_to_do(self, states: PartialStore, now_ms: int) -> bool:
        """Whether a session may be over, or old rows are to be judged. A session ends no earlier than any of its pieces."""
        if PartialKey(_ALL, self.summary.slots) in states.partials:
            return True
        pile = states.partials.get(PartialKey(_ALL, 0))
        batches = [] if pile is None else pile.batches
        return any(int(batch.column(_END).to_numpy().min()) + self.lateness_ms < now_ms for batch in batches)

    def _emit(self, finished: list[pa.RecordBatch], starts: Times, ends: Times, emitter: Emitter) -> None:
        """One result per session: the summary groups by key, so sessions of one key go through it one after the other."""
        if isinstance(self.summary, Applied):
            self._apply_each(self.summary, finished[0], starts, ends, emitter)
            return
        if not finished[0].num_rows:
            return
        for tables in self._in_turn(finished, len(starts)):
            self._emit_chosen(tables, starts, ends, emitter)

    def _in_turn(self, finished: list[pa.RecordBatch], sessions: int) -> Iterator[list[pa.RecordBatch]]:
        """The tables of all slots with one session of each key, then with the next ones."""
        places = self._places_within_key(finished[0], sessions)
        by_place = [_by_place(table, places) for table in finished]
        for place in range(int(places.max()) + 1):
            yield [tables[place] for tables in by_place]

    def _places_within_key(self, table: pa.RecordBatch, sessions: int) -> Times:
        """For each session its place among those of its key, from 0."""
        panes = table.column(PANE).to_numpy()
        grouping = Grouping.of([table.column(key) for key in self.keys], table.num_rows)
        # Sessions of one key have consecutive numbers, and the least of them is its first.
        first_of_key = np.full(grouping.count, np.iinfo(np.int64).max)
        np.minimum.at(first_of_key, grouping.codes, panes)
        places = np.zeros(sessions, dtype=np.int64)
        places[panes] = panes - first_of_key[grouping.codes]
        return places

    def _apply_each(self, summary: Applied, table: pa.RecordBatch, starts: Times, ends: Times, emitter: Emitter) -> None:
        panes = table.column(PANE).to_numpy()
        order = np.argsort(panes, kind="stable")
        ordered = table.take(pa.array(order))
        sessions, firsts, counts = np.unique(panes[order], return_index=True, return_counts=True)
        for session, first, count in zip(sessions.tolist(), firsts.tolist(), counts.tolist(), strict=True):
            span = Span(int(starts[session]), int(ends[session]))
            result = finished(summary, [ordered.slice(first, count)], span, self.name, emitter)
            start, end = (np.full(result.num_rows, each[session]) for each in (starts, ends))
            self._emit_rows(result, start, end, emitter)

    def _emit_chosen(self, tables: list[pa.RecordBatch], starts: Times, ends: Times, emitter: Emitter) -> None:
        result = finished(self.summary, tables, None, self.name, emitter)
        sessions = self._sessions_of(result, tables)
        self._emit_rows(result, starts[sessions], ends[sessions], emitter)

    def _sessions_of(self, result: pa.RecordBatch, tables: list[pa.RecordBatch]) -> Times:
        # Each key has one session here, so a result's session is that of any of the key's pieces.
        columns = [pa.concat_arrays([result.column(key), tables[0].column(key)]) for key in self.keys]
        grouping = Grouping.of(columns, result.num_rows + tables[0].num_rows)
        session_of = np.empty(grouping.count, dtype=np.int64)
        session_of[grouping.codes[result.num_rows :]] = tables[0].column(PANE).to_numpy()
        return session_of[grouping.codes[: result.num_rows]]

    def _emit_rows(self, result: pa.RecordBatch, starts: Times, ends: Times, emitter: Emitter) -> None:
        times = [self._bounds.array(each) for each in (starts, ends)] if self._window_columns else []
        emitter.rows(pa.RecordBatch.from_arrays([*result.columns, *times], schema=self.schema))

    def _with_doubtful(
        self, pieces: list[pa.RecordBatch | None], doubtful: pa.RecordBatch, emitter: Emitter
    ) -> list[pa.RecordBatch | None]:
        """Add the old rows that touch an open session; the others are late."""
        times = self._input_time.read(doubtful)
        order = [slot for slot, piece in enumerate(pieces) if piece is not None]
        interval = pa.RecordBatch.from_arrays(
            [pa.array(times), pa.array(times + self.window.gap_ms), *(doubtful.column(key) for key in self.keys)],
            [_START, _END, *self.keys],
        )
        numbers, starts, _ = _sessions([*(pieces[slot] for slot in order), interval], self.keys)
        is_open = np.zeros(len(starts), dtype=bool)
        for number in numbers[:-1]:
            is_open[number] = True
        belongs = is_open[numbers[-1]]
        emitter.late(doubtful.filter(pa.array(~belongs)), self.name)
        more = self._pieces(doubtful.filter(pa.array(belongs)), emitter)
        if not more:
            return pieces
        return [
            new if old is None else pa.concat_batches([old, new]) if new.num_rows else old
            for old, new in zip(pieces, more, strict=True)
        ]


def _by_place(table: pa.RecordBatch, places: Times) -> list[pa.RecordBatch]:
    """The rows of a table cut by the places of their sessions."""
    of_row = places[table.column(PANE).to_numpy()]
    ordered = table.take(pa.array(np.argsort(of_row, kind="stable")))
    cuts = np.concatenate([[0], np.cumsum(np.bincount(of_row, minlength=int(places.max()) + 1))]).tolist()
    return [ordered.slice(start, end - start) for start, end in itertools.pairwise(cuts)]


def pieces_of(
    batch: pa.RecordBatch, times: Times, keys: Sequence[str], gap_ms: int, summary: Summary
) -> list[pa.RecordBatch]:
    """The rows of a batch as pieces of sessions, one table per slot."""
    interval = pa.RecordBatch.from_arrays(
        [pa.array(times), pa.array(times + gap_ms), *(batch.column(key) for key in keys)], [_START, _END, *keys]
    )
    (numbers,), starts, ends = _sessions([interval], keys)
    return [_with_interval(partial, starts, ends) for partial in summary.partial(batch, numbers)]


def _sessions(tables: Sequence[pa.RecordBatch], keys: Sequence[str]) -> tuple[list[Times], Times, Times]:
    """Number the sessions that intervals form: the number of each row of each table, and start and end of each session."""
    starts = np.concatenate([table.column(_START).to_numpy() for table in tables])
    ends = np.concatenate([table.column(_END).to_numpy() for table in tables])
    grouping = Grouping.of([pa.concat_arrays([table.column(key) for table in tables]) for key in keys], len(starts))
    order = np.lexsort((starts, grouping.codes))
    codes, starts, ends = grouping.codes[order], starts[order], ends[order]
    # The furthest end so far, per key: keys are kept apart by adding to each a multiple of what no time exceeds. Times are
    # replaced by their ranks, of which there are few enough that nothing overflows.
    ranks = np.unique(np.concatenate([starts, ends]), return_inverse=True)[1].astype(np.int64)
    apart = codes.astype(np.int64) * (2 * len(order))
    start_ranks, end_ranks = ranks[: len(order)] + apart, ranks[len(order) :] + apart
    reach = np.maximum.accumulate(end_ranks)
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (codes[1:] != codes[:-1]) | (start_ranks[1:] > reach[:-1])
    ordered_numbers = np.cumsum(is_first) - 1
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = ordered_numbers
    at = np.flatnonzero(is_first)
    session_ends = np.maximum.reduceat(ends, at) if len(at) else ends
    cuts = np.cumsum([table.num_rows for table in tables])[:-1]
    return np.split(numbers, cuts), starts[at], session_ends


def _with_interval(partial: pa.RecordBatch, starts: Times, ends: Times) -> pa.RecordBatch:
    """Replace the number of the session by its start and end."""
    numbers = partial.column(PANE).to_numpy()
    rest = partial.schema.names[1:]
    return pa.RecordBatch.from_arrays(
        [pa.array(starts[numbers]), pa.array(ends[numbers]), *partial.columns[1:]], [_START, _END, *rest]
    )


def _with_panes(summary: Summary, slot: int, piece: pa.RecordBatch, numbers: Times) -> pa.RecordBatch:
    """The other way round: what the summary understands."""
    return pa.RecordBatch.from_arrays([pa.array(numbers), *piece.columns[2:]], schema=summary.partial_schema(slot))


def _merged(
    summary: Summary, slot: int, piece: pa.RecordBatch, numbers: Times, starts: Times, ends: Times
) -> pa.RecordBatch:
    return _with_interval(summary.merge(slot, _with_panes(summary, slot, piece, numbers)), starts, ends)
