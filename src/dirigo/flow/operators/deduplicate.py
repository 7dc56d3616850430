"""The first row of every key: it answers at once from what it has seen, so it is ordered."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pyarrow as pa

from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.exchange.edge import ByKey, ByTime, Exchange
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.exchange.shares import Share
from dirigo.flow.operators.operator import Operator, StateMoment, told_schema
from dirigo.flow.plan.states import WholeState
from dirigo.flow.rows.grouping import Grouping
from dirigo.flow.rows.held_bytes import held_bytes
from dirigo.flow.rows.keys import column_of_forms, forms_of, keeps_text_only, type_of_forms
from dirigo.flow.rows.schema import apart
from dirigo.state import capture_of, restored


class _AnyKey(ByKey):
    """Rows with the same key go to the same partition; nulls are values like any other, and equal each other."""

    def with_keys(self, batch: pa.RecordBatch, emitter: Emitter) -> pa.RecordBatch:  # nothing is bad
        return batch


class _AnyKeyByTime(_AnyKey, ByTime):
    """The same for rows that must have a time."""


@dataclass
class Passed:
    """The rows that were let through and may have duplicates. Each is put in once, and taken out once."""

    times_of: dict[Any, list[int]] = field(default_factory=dict)  # key -> when its rows happened, ascending
    keys_at: dict[int, list[Any]] = field(default_factory=dict)  # when rows happened -> their keys
    times: list[int] = field(default_factory=list)  # all that are in keys_at, as a heap

    def capture(self) -> Any:
        return capture_of(self.times_of) if self.times_of else None

    @classmethod
    def restored(cls, captured: Any) -> Passed:
        """The rest follows from when the rows of each key happened."""
        passed = cls(restored(captured))
        for key, times in passed.times_of.items():
            for time_ms in times:
                passed._note(key, time_ms)
        return passed

    def _note(self, key: Any, time_ms: int) -> None:
        keys = self.keys_at.get(time_ms)
        if keys is None:
            keys = self.keys_at[time_ms] = []
            heappush(self.times, time_ms)
        keys.append(key)

    def admit(self, key: Any, time_ms: int, within_ms: int) -> bool:
        """Whether no row of this key happened so near; if so, this row is noted."""
        times = self.times_of.setdefault(key, [])
        at = bisect_left(times, time_ms)
        if at < len(times) and times[at] - time_ms < within_ms:
            return False
        if at and time_ms - times[at - 1] < within_ms:
            return False
        times.insert(at, time_ms)
        self._note(key, time_ms)
        return True

    def forget(self, until_ms: int) -> None:
        """Take out what happened up to a time, which is included."""
        while self.times and self.times[0] <= until_ms:
            for key in self.keys_at.pop(heappop(self.times)):
                times = self.times_of[key]
                del times[0]  # its earliest, because all times go in their order
                if not times:
                    del self.times_of[key]


class Deduplicate(Operator):
    """Rows whose key was not seen before; with ``within_ms``, not seen in that stretch of event time."""

    kind = "deduplicate"
    is_keyed = True
    is_ordered = True
    needs_order = True

    def __init__(
        self, name: str, schema: pa.Schema, time: TimeColumn | None, keys: tuple[str, ...], within_ms: int | None
    ) -> None:
        super().__init__(name, schema, time)
        self.keys = keys
        self.has_late_rows = within_ms is not None
        self._within_ms = within_ms

    @property
    def watermark_grid_ms(self) -> int:
        return 0 if self._within_ms is None else 1

    def describe(self) -> str:
        return f"deduplicate by {', '.join(self.keys)}"

    def exchange(self, port: int) -> Exchange:
        if self._within_ms is None or self.time is None:
            return _AnyKey(self.name, self.keys)
        return _AnyKeyByTime(self.name, self.keys, self.time)

    def new_states(self) -> WholeState[Any]:
        """A set of the keys that were seen; with ``within_ms``, what else has to be known of them."""
        return (
            WholeState(set) if self._within_ms is None else WholeState(Passed, held_bytes, Passed.capture, Passed.restored)
        )

    @property
    def state_form(self) -> str:
        what = "keys" if self._within_ms is None else "keys and their times"
        return f"{what}: {told_schema(pa.schema([self.schema.field(key) for key in self.keys]))}"

    @property
    def can_be_divided(self) -> bool:
        """Of lists and structs, only the text is kept, which does not say where their rows go."""
        return not any(keeps_text_only(self.schema.field(key).type) for key in self.keys)

    def restore_share(self, states: WholeState[Any], captures: Sequence[Any], share: Share) -> None:
        kinds = [self.schema.field(key).type for key in self.keys]
        if self._within_ms is None:
            for captured in captures:
                states.value |= set(share.keys(restored(captured), kinds, as_tuples=False))
            return
        times_of: dict[Any, list[int]] = {}
        for captured in captures:
            held = restored(captured)
            times_of |= {key: held[key] for key in share.keys(held, kinds, as_tuples=False)}
        states.value = Passed.restored(times_of)

    def state_schema(self) -> pa.Schema:
        """The keys that were seen; with ``within``, each with the times of the rows that were let through."""
        fields = [pa.field(key, type_of_forms(self.schema.field(key).type)) for key in self.keys]
        if self._within_ms is not None and self.time is not None:
            fields.append(pa.field(apart(self.time.name, self.keys), self.time.bounds_type))
        return pa.schema(fields)

    def state_table(self, states: WholeState[Any], moment: StateMoment) -> pa.Table:
        passed = states.value
        if self._within_ms is None or self.time is None:
            return self._table([*passed], [])
        seen = [(key, time_ms) for key, times in passed.times_of.items() for time_ms in times]
        times = replace(self.time, type=self.time.bounds_type).array(np.array([at for _, at in seen], np.int64))
        return self._table([key for key, _ in seen], [times])

    def _table(self, seen: list[Any], more: list[pa.Array]) -> pa.Table:
        parts = [seen] if len(self.keys) == 1 else [[key[number] for key in seen] for number in range(len(self.keys))]
        columns = [column_of_forms(forms, self.schema.field(key).type) for key, forms in zip(self.keys, parts, strict=True)]
        return pa.Table.from_arrays([*columns, *more], schema=self.state_schema())

    def on_rows(self, states: WholeState[Any], port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        if self._within_ms is None or self.time is None:
            emitter.rows(self._first(states.value, batch))
        else:
            emitter.rows(self._first_within(states.value, batch, self.time, self._within_ms))

    def _first(self, seen: set[Any], batch: pa.RecordBatch) -> pa.RecordBatch:
        grouping = Grouping.of([batch.column(key) for key in self.keys], batch.num_rows)
        firsts = batch.take(pa.array(grouping.firsts))
        is_new = []
        for key in forms_of(firsts, self.keys):
            is_new.append(key not in seen)
            seen.add(key)
        return firsts.filter(pa.array(is_new, pa.bool_()))

    def _first_within(self, passed: Passed, batch: pa.RecordBatch, time: TimeColumn, within_ms: int) -> pa.RecordBatch:
        times = time.read(batch).tolist()
        is_new = [passed.admit(key, at, within_ms) for key, at in zip(forms_of(batch, self.keys), times, strict=True)]
        return batch.filter(pa.array(is_new, pa.bool_()))

    def on_watermark(self, states: WholeState[Any], before_ms: int, now_ms: int, emitter: Emitter) -> None:
        if self._within_ms is not None:
            states.value.forget(now_ms - self._within_ms)
