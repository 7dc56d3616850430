"""The state of every operator that runs in parallel: piles of batches, put together by laying them on top of each other.

A pile belongs to a bucket (a pane, a side of a join) and a slot (a table of an aggregation). Adding a batch is constant
work; a pile that has doubled is made compact again, so the work per row stays constant too and the size that of the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pyarrow as pa

COMPACT_ROWS_LEAST = 32_768  # below this, making a pile compact costs more than it saves

Compact = Callable[[int, pa.RecordBatch], pa.RecordBatch]  # (slot, all rows of a pile) -> fewer rows with the same meaning


class PileKey(NamedTuple):
    """Which pile: rows that came after their window was emitted lie apart until they have been emitted too."""

    bucket: int
    slot: int
    is_late: bool = False


class Pile:
    """Batches of one schema, in any order."""

    __slots__ = ("batches", "compact_rows", "rows")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.compact_rows = 0  # how many there were when the pile was last made compact

    def whole(self) -> pa.RecordBatch:
        """All rows as one batch."""
        if len(self.batches) > 1:
            self.batches = [pa.concat_batches(self.batches)]
        return self.batches[0]


class Piles:
    """All piles of one instance."""

    __slots__ = ("_compact", "piles")

    def __init__(self, compact: Compact | None = None) -> None:
        self._compact = compact
        self.piles: dict[PileKey, Pile] = {}

    def add(self, key: PileKey, batch: pa.RecordBatch) -> None:
        pile = self._lay_on(key, batch)
        if pile.rows > COMPACT_ROWS_LEAST and pile.rows > 2 * pile.compact_rows:
            self._make_compact(key, pile)

    def _lay_on(self, key: PileKey, batch: pa.RecordBatch) -> Pile:
        pile = self.piles.get(key)
        if pile is None:
            pile = self.piles[key] = Pile()
        pile.batches.append(batch)
        pile.rows += batch.num_rows
        return pile

    def compact(self, key: PileKey) -> pa.RecordBatch | None:
        """All rows of a pile, as few as possible; None if there is no such pile."""
        pile = self.piles.get(key)
        if pile is None:
            return None
        if len(pile.batches) > 1:
            self._make_compact(key, pile)
        return pile.whole()

    def pop(self, key: PileKey) -> pa.RecordBatch | None:
        """Take a pile away."""
        pile = self.piles.pop(key, None)
        return None if pile is None else pile.whole()

    def drop(self, key: PileKey) -> None:
        self.piles.pop(key, None)

    def buckets(self) -> list[int]:
        return sorted({key.bucket for key in self.piles})

    def buckets_in(self, wanted: range) -> Iterable[int]:
        """Buckets of a range, at least those that exist: whatever takes fewer steps."""
        return wanted if len(wanted) <= len(self.piles) else [bucket for bucket in self.buckets() if bucket in wanted]

    def _make_compact(self, key: PileKey, pile: Pile) -> None:
        whole = pile.whole()
        if self._compact is not None:
            whole = self._compact(key.slot, whole)
        pile.batches = [whole]
        pile.rows = pile.compact_rows = whole.num_rows

    # --- as the kernel moves them --------------------------------------------------------------------------------------

    def take(self) -> dict[PileKey, list[pa.RecordBatch]]:
        taken = {key: pile.batches for key, pile in self.piles.items()}
        self.piles = {}
        return taken

    def merge(self, partial: dict[PileKey, list[pa.RecordBatch]]) -> None:
        """Only laid on top: making piles compact may run user code, and this may be done on any thread of a worker."""
        for key, batches in partial.items():
            for batch in batches:
                self._lay_on(key, batch)

    def is_identity(self) -> bool:
        return not self.piles

    def size_bytes(self) -> int:
        # Not `nbytes`, which takes a hundred times longer; rows that stay have their own memory, so this is the same.
        return sum(batch.get_total_buffer_size() for pile in self.piles.values() for batch in pile.batches)

    def held_bytes(self) -> int:
        return self.size_bytes()

    def view(self) -> Any:
        return None

    def install_view(self, view: Any) -> None:
        """Nothing of a pile is read elsewhere."""
