"""The state of every operator that runs in parallel: partial results as lists of batches, merged by concatenation.

A list belongs to a bucket (a pane, a side of a join) and a slot (a table of an aggregation). Adding a batch is constant
work. A list that has doubled is compacted, so the work per row stays constant and the size that of the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from dirigo.flow.exchange.shares import Share
from dirigo.flow.rows.captured_batches import captured_batches, restored_batches

COMPACT_ROWS_LEAST = 32_768  # below this, compacting costs more than it saves

Compact = Callable[[int, pa.RecordBatch], pa.RecordBatch]  # (slot, all rows of a list) -> fewer rows with the same meaning


class PartialKey(NamedTuple):
    """Which list: rows that came after their window was emitted are kept apart until they have been emitted too."""

    bucket: int
    slot: int
    is_late: bool = False


class PartialBatches:
    """Batches of one schema, in any order."""

    __slots__ = ("batches", "compact_rows", "rows")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.compact_rows = 0  # how many there were after the last compaction

    def whole(self) -> pa.RecordBatch:
        """All rows as one batch."""
        if len(self.batches) > 1:
            self.batches = [pa.concat_batches(self.batches)]
        return self.batches[0]


class PartialStore:
    """The partial results of one instance."""

    __slots__ = ("_compact", "partials")

    def __init__(self, compact: Compact | None = None) -> None:
        self._compact = compact
        self.partials: dict[PartialKey, PartialBatches] = {}

    def add(self, key: PartialKey, batch: pa.RecordBatch) -> None:
        kept = self._append(key, batch)
        if kept.rows > COMPACT_ROWS_LEAST and kept.rows > 2 * kept.compact_rows:
            self._compact_list(key, kept)

    def _append(self, key: PartialKey, batch: pa.RecordBatch) -> PartialBatches:
        kept = self.partials.get(key)
        if kept is None:
            kept = self.partials[key] = PartialBatches()
        kept.batches.append(batch)
        kept.rows += batch.num_rows
        return kept

    def compact(self, key: PartialKey) -> pa.RecordBatch | None:
        """All rows of a list, compacted; None if there is none."""
        kept = self.partials.get(key)
        if kept is None:
            return None
        if len(kept.batches) > 1:
            self._compact_list(key, kept)
        return kept.whole()

    def pop(self, key: PartialKey) -> pa.RecordBatch | None:
        """Remove a list, and return its rows."""
        kept = self.partials.pop(key, None)
        return None if kept is None else kept.whole()

    def drop(self, key: PartialKey) -> None:
        self.partials.pop(key, None)

    def buckets(self) -> list[int]:
        return sorted({key.bucket for key in self.partials})

    def buckets_in(self, wanted: range) -> Iterable[int]:
        """Buckets of a range, at least those that exist: whatever takes fewer steps."""
        return wanted if len(wanted) <= len(self.partials) else [bucket for bucket in self.buckets() if bucket in wanted]

    def _compact_list(self, key: PartialKey, kept: PartialBatches) -> None:
        whole = kept.whole()
        if self._compact is not None:
            whole = self._compact(key.slot, whole)
        kept.batches = [whole]
        kept.rows = kept.compact_rows = whole.num_rows

    # --- as the kernel moves them --------------------------------------------------------------------------------------

    def take(self) -> dict[PartialKey, list[pa.RecordBatch]]:
        taken = {key: kept.batches for key, kept in self.partials.items()}
        self.partials = {}
        return taken

    def merge(self, partial: dict[PartialKey, list[pa.RecordBatch]]) -> None:
        """Only appends: compacting may run user code, and this may be done on any thread of a worker."""
        for key, batches in partial.items():
            for batch in batches:
                self._append(key, batch)

    def is_identity(self) -> bool:
        return not self.partials

    def size_bytes(self) -> int:
        # Not `nbytes`, which takes a hundred times longer; rows that stay have their own memory, so this is the same.
        return sum(batch.get_total_buffer_size() for kept in self.partials.values() for batch in kept.batches)

    def held_bytes(self) -> int:
        return self.size_bytes()

    def capture(self) -> Any:
        """The batches themselves, and when each list was compacted: the last digits of sums of floats depend on it."""
        if not self.partials:
            return None
        return {tuple(key): (captured_batches(kept.batches), kept.compact_rows) for key, kept in self.partials.items()}

    def restore(self, captured: Any) -> None:
        for key, (batches, compact_rows) in captured.items():
            kept = self.partials[PartialKey(*key)] = PartialBatches()
            kept.batches = restored_batches(batches)
            kept.rows = sum(batch.num_rows for batch in kept.batches)
            kept.compact_rows = compact_rows

    def restore_share(self, captures: Sequence[Any], keys: Callable[[int], Sequence[str]], share: Share) -> None:
        """Hold those rows of what other partitions have held whose keys belong here. ``keys``: their columns, by slot."""
        for captured in captures:
            for key, (batches, _) in captured.items():
                where = PartialKey(*key)
                for batch in restored_batches(batches):
                    rows = share.rows(batch, keys(where.slot))
                    if rows.num_rows:
                        self._append(where, rows)

    def view(self) -> Any:
        return None

    def install_view(self, view: Any) -> None:
        """Nothing of it is read elsewhere."""
