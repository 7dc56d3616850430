"""Bids that fall due one after the other at a steady rate of real time, whether or not anybody is ready for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dirigo.nexmark.generator import Generator
from dirigo.nexmark.schemas import BID, TIME


@dataclass(frozen=True)
class PacedBids:
    """Nexmark's bids: number `i` is to be sent `i / rate_per_s` seconds after the start, and that is its `date_time`."""

    rate_per_s: int
    start_ms: int  # since 1970

    def __post_init__(self) -> None:
        if self.rate_per_s < 1:
            raise ValueError(f"{self.rate_per_s} bids per second are none: ask for 1 or more")

    def due(self, now_ms: float) -> int:
        """How many bids have fallen due: the first one does at the start."""
        passed_us = int((now_ms - self.start_ms) * 1000)
        return 0 if passed_us < 0 else passed_us * self.rate_per_s // 1_000_000 + 1

    def rows(self, first: int, last: int, columns: Sequence[str]) -> pa.RecordBatch:
        """The bids from number `first` up to, not including, `last`."""
        generator = Generator()
        generated = generator.bids(*generator.bid_range(first, last - first), columns)
        times = pa.array(self.start_ms + np.arange(first, last, dtype=np.int64) * 1000 // self.rate_per_s).cast(TIME)
        return pa.RecordBatch.from_arrays(
            [times if name == "date_time" else generated[name] for name in columns],
            schema=pa.schema([BID.field(name) for name in columns]),
        )
