"""The first row of every key: it answers at once from what it has seen, so it is ordered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dirigo.flow.emitter import Emitter
from dirigo.flow.grouping import Grouping
from dirigo.flow.intake import ByKey, ByTime, Intake
from dirigo.flow.operators.operator import Operator
from dirigo.flow.states import Kept
from dirigo.flow.time_column import TimeColumn


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

    def intake(self, port: int) -> Intake:
        if self._within_ms is None or self.time is None:
            return ByKey(self.name, self.keys)
        return ByTime(self.name, self.keys, self.time)

    def new_states(self) -> Kept[dict[Any, list[int]]]:
        return Kept(dict)  # key -> event times of the rows that were let through and may have duplicates

    def on_rows(self, states: Kept[dict[Any, list[int]]], port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        if self._within_ms is not None and self.time is not None:
            emitter.rows(batch.filter(pa.array(self._first_within(states.value, batch, self.time.read(batch).tolist()))))
            return
        grouping = Grouping.of([batch.column(key) for key in self.keys], batch.num_rows)
        seen = states.value
        firsts = batch.take(pa.array(grouping.firsts))
        new = []
        for position, key in enumerate(_keys_of(firsts, self.keys)):
            if key not in seen:
                seen[key] = []
                new.append(grouping.firsts[position])
        emitter.rows(batch.take(pa.array(np.sort(np.array(new, dtype=np.int64)))))

    def _first_within(self, seen: dict[Any, list[int]], batch: pa.RecordBatch, times: list[int]) -> list[bool]:
        assert self._within_ms is not None
        keep = []
        for key, time in zip(_keys_of(batch, self.keys), times, strict=True):
            passed = seen.setdefault(key, [])  # a few: they lie apart, and go when the watermark has passed them
            is_new = all(abs(time - each) >= self._within_ms for each in passed)
            if is_new:
                passed.append(time)
            keep.append(is_new)
        return keep

    def on_watermark(self, states: Kept[dict[Any, list[int]]], before_ms: int, now_ms: int, emitter: Emitter) -> None:
        if self._within_ms is not None:
            oldest = now_ms - self._within_ms
            states.value = {
                key: kept for key, times in states.value.items() if (kept := [time for time in times if time > oldest])
            }


def _keys_of(batch: pa.RecordBatch, names: tuple[str, ...]) -> list[Any]:
    columns = [batch.column(name).to_pylist() for name in names]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
