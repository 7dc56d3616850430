"""Random rows with nulls, and random ways to spread their aggregation: in batches, in any order, merged in between."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("name", pa.string()),
        ("x", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("ms", "UTC")),
        ("d", pa.decimal128(22, 2)),
        ("b", pa.bool_()),
        ("small", pa.uint8()),
    ]
)

_START = datetime(2024, 1, 1, tzinfo=UTC)

# Quarters are exact in floating point, so that the order of additions does not show.
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "key": st.integers(0, 3) | st.sampled_from([-(2**62), 2**62]),
    "name": st.sampled_from(["", "a", "b"]),
    "x": st.integers(-5, 5) | st.integers(-(2**50), 2**50),
    "f": st.integers(-20, 20).map(lambda n: n / 4),
    "s": st.sampled_from(["", "a", "aa", "b", "é", "z"]),
    "t": st.integers(-3, 3).map(lambda n: _START + timedelta(milliseconds=n)),
    "d": st.integers(-500, 500).map(lambda n: Decimal(n) / 100) | st.just(Decimal("12345678901234567890.12")),
    "b": st.booleans(),
    "small": st.integers(0, 255),
}

Row = dict[str, Any]


class Spreadable(Protocol):
    @property
    def slots(self) -> int: ...
    def partial_schema(self, slot: int) -> pa.Schema: ...
    def partial(self, batch: pa.RecordBatch, panes: Any) -> list[pa.RecordBatch]: ...
    def merge(self, slot: int, batch: pa.RecordBatch) -> pa.RecordBatch: ...
    def finish(self, partials: Sequence[pa.RecordBatch]) -> pa.RecordBatch: ...


def rows() -> st.SearchStrategy[list[Row]]:
    return st.lists(st.fixed_dictionaries({name: st.none() | strategy for name, strategy in _VALUES.items()}), max_size=40)


def batch_of(some: Sequence[Row], skipped: int = 0) -> pa.RecordBatch:
    """A batch that is a slice of a longer one: its arrays do not begin where their buffers do."""
    return pa.RecordBatch.from_pylist([*some[:skipped], *some, *some[:1]], schema=SCHEMA).slice(
        len(some[:skipped]), len(some)
    )


def spread(work: Spreadable, some: Sequence[Row], data: st.DataObject) -> pa.RecordBatch:
    """The result of `work` when batches, panes, order and merges are chosen at random."""
    tables: list[list[pa.RecordBatch]] = [[] for _ in range(work.slots)]
    shuffled = data.draw(st.permutations(some))
    while shuffled:
        size = data.draw(st.integers(1, len(shuffled)), "rows of the next batch")
        piece, shuffled = shuffled[:size], shuffled[size:]
        panes = data.draw(st.integers(-2, 2) | st.lists(st.integers(-2, 2), min_size=size, max_size=size), "panes")
        given = np.array(panes, np.int64) if isinstance(panes, list) else panes
        partials = work.partial(batch_of(piece, data.draw(st.integers(0, 2), "offset")), given)
        assert len(partials) == work.slots
        for slot, partial in enumerate(partials):
            assert partial.schema == work.partial_schema(slot)
            partial.validate(full=True)
            tables[slot].append(partial)
    return work.finish([_merged(work, slot, batches, data) for slot, batches in enumerate(tables)])


def _merged(work: Spreadable, slot: int, batches: list[pa.RecordBatch], data: st.DataObject) -> pa.RecordBatch:
    schema = work.partial_schema(slot)
    batches = data.draw(st.permutations(batches)) if batches else []
    while len(batches) > 1 and data.draw(st.booleans(), "merge some"):
        size = data.draw(st.integers(1, len(batches)), "how many")
        merged = work.merge(slot, pa.concat_batches(batches[:size]))
        merged.validate(full=True)
        assert merged.schema == schema
        batches = data.draw(st.permutations([merged, *batches[size:]]))
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=schema)
