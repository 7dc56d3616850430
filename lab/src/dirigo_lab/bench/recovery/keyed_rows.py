"""A job with as much state as is wanted, whose results tell whether each row was counted once and how long it took.

First each key gets its bytes; from then on rows fall due at a steady rate, and each replaces the bytes of its key and tells
how often that was done. The keys come in turn, so what each row must say is known beforehand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import gcd

import numpy as np
import pyarrow as pa

from dirigo import Dataflow, Function, FunctionContext, Row, ValueState, to_callback
from dirigo.flow.sources.source import Source, SourceBatch, Split

_ROWS = pa.schema([("number", pa.int64()), ("key", pa.int64()), ("due_ms", pa.int64())])
_TOLD = pa.schema([("number", pa.int64()), ("due_ms", pa.int64()), ("made_ms", pa.float64()), ("times", pa.int64())])
_LOADED_AT_ONCE = 256


@dataclass(frozen=True)
class StateShape:
    """How much is kept, and how fast it changes."""

    keys: int
    bytes_per_key: int
    rows_per_s: int
    changing: int | None = None  # so many keys change, in turn; None: all
    partitions: int = 4

    @property
    def total_bytes(self) -> int:
        return self.keys * self.bytes_per_key

    @property
    def turns(self) -> int:
        return self.keys if self.changing is None else self.changing


def step_between_keys(turns: int) -> int:
    """From the key of a row to that of the next, so that all come in turn and neighbours do not follow each other."""
    return next(step for step in range(turns // 3 + 1, 10**9) if gcd(step, turns) == 1)


class KeyedRows(Source):
    """A row of each key as fast as possible, and then rows in real time, without end."""

    def __init__(self, shape: StateShape, start_ms: int) -> None:
        super().__init__(_ROWS, name="rows", is_bounded=False, time="due_ms")
        self.shape = shape
        self.start_ms = start_ms

    @property
    def is_replayable(self) -> bool:
        return True

    def splits(self, wanted: int) -> Sequence[Split]:  # noqa: ARG002 - one reader is enough for paced rows
        return [_KeyedSplit(self)]


class _KeyedSplit(Split):
    def __init__(self, source: KeyedRows) -> None:
        self._shape = source.shape
        self._start_ms = source.start_ms
        self._next = 0
        self._step = step_between_keys(source.shape.turns)

    def read(self, rows_max: int) -> SourceBatch | None:
        shape, first = self._shape, self._next
        if first < shape.keys:
            self._next = min(shape.keys, first + min(rows_max, _LOADED_AT_ONCE))
            numbers = np.arange(first, self._next)
            return self._batch(numbers, numbers, np.full(len(numbers), self._start_ms))
        passed_ms = time.time() * 1000 - self._start_ms
        due = min(shape.keys + int(passed_ms * shape.rows_per_s / 1000) + 1, first + rows_max) if passed_ms >= 0 else first
        if due <= first:
            return None
        self._next = due
        live = np.arange(first, due) - shape.keys
        due_ms = self._start_ms + live * 1000 // shape.rows_per_s
        return self._batch(live + shape.keys, live * self._step % shape.turns, due_ms)

    def _batch(self, numbers: np.ndarray, keys: np.ndarray, due_ms: np.ndarray) -> SourceBatch:
        columns = [pa.array(column, pa.int64()) for column in (numbers, keys, due_ms)]
        return SourceBatch(pa.RecordBatch.from_arrays(columns, schema=_ROWS))

    def position(self) -> int:
        return self._next

    def seek(self, position: int) -> None:
        self._next = position

    def close(self) -> None:
        self.ended = True


class KeepBytes(Function):
    """Keeps some bytes per key, which begin with the number of times that they were replaced."""

    ordered = True
    kept = ValueState(bytes, default=b"")

    def __init__(self, keys: int, bytes_per_key: int) -> None:
        self._keys = keys
        self._filler = b"\x5a" * (bytes_per_key - 8)

    def on_message(self, context: FunctionContext, row: Row) -> None:
        times = int.from_bytes(self.kept.get()[:8], "big") + 1
        self.kept.set(times.to_bytes(8, "big") + self._filler)
        if row.number >= self._keys:
            made_ms = time.time() * 1000
            context.emit({"number": row.number, "due_ms": row.due_ms, "made_ms": made_ms, "times": times})

    def on_timer(self, context: FunctionContext, payload: object) -> None:
        """None are set; but whoever may set some hears of each step of time, as most functions do."""


@dataclass(frozen=True)
class KeyedRowsTold:
    """Results that came together."""

    came_ms: float
    number: np.ndarray
    due_ms: np.ndarray
    made_ms: np.ndarray


class KeyedResults:
    """What came of the job at the client, checked row by row: each once, in the order of its key, with the right count."""

    def __init__(self, shape: StateShape) -> None:
        self._shape = shape
        self._lock = threading.Lock()
        self._told: list[KeyedRowsTold] = []
        self._seen: set[int] = set()
        self.wrong: list[str] = []

    def take(self, batch: pa.RecordBatch) -> None:
        came_ms = time.time() * 1000
        number, due_ms, made_ms, times = (column.to_numpy() for column in batch.columns)
        expected = 2 + (number - self._shape.keys) // self._shape.turns
        if (times != expected).any():
            self.wrong.append(f"{int((times != expected).sum())} rows with a wrong count")
        rows = set(number.tolist())
        with self._lock:
            if twice := rows & self._seen:
                self.wrong.append(f"{len(twice)} rows twice")
            self._seen |= rows
            self._told.append(KeyedRowsTold(came_ms, number, due_ms, made_ms))

    def all(self) -> list[KeyedRowsTold]:
        with self._lock:
            return list(self._told)

    def first_due_after(self, moment_ms: float) -> tuple[float, float] | None:
        """When the first row that fell due after a moment was made, and when one was at the client."""
        with self._lock:  # those that came before are not looked at: this is asked all the time, beside the controller
            later = takewhile(lambda told: told.came_ms > moment_ms, reversed(self._told))
            found = [told for told in later if told.due_ms.max() > moment_ms]
        if not found:
            return None
        made_ms = min(float(told.made_ms[told.due_ms > moment_ms].min()) for told in found)
        return made_ms, min(told.came_ms for told in found)

    def late_ms(self, first_ms: float, last_ms: float) -> np.ndarray:
        """How long rows that fell due in this time took until their results were made."""
        parts = [(told.made_ms - told.due_ms)[(told.due_ms >= first_ms) & (told.due_ms < last_ms)] for told in self.all()]
        return np.concatenate([np.empty(0), *parts])

    def missing(self) -> int:
        """Rows that are not there although later ones are; not so near the end that they may still come."""
        with self._lock:
            seen = self._seen
            last = max(seen, default=self._shape.keys) - 5 * self._shape.rows_per_s
            return sum(number not in seen for number in range(self._shape.keys, last))


def keyed_flow(shape: StateShape, name: str, load_s: float) -> tuple[Dataflow, KeyedResults]:
    """The job, and what collects its results; rows in real time begin after `load_s`."""
    flow = Dataflow(name, splits=1, partitions=shape.partitions)
    rows = flow.source(KeyedRows(shape, int((time.time() + load_s) * 1000)))
    results = KeyedResults(shape)
    kept = rows.key_by("key").process(lambda: KeepBytes(shape.keys, shape.bytes_per_key), _TOLD, name="keep")
    kept.sink(to_callback(results.take, batches=True))
    return flow, results
