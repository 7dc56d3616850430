"""Which keys belong to a partition: what is asked when states that were kept in other partitions are divided anew."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.exchange.partitions import partition_of
from dirigo.flow.rows.keys import arrays_of_keys


@dataclass(frozen=True)
class Share:
    """The keys of one partition of so many."""

    partition: int
    partitions: int

    def mask(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """For each row of some key columns, whether it belongs here."""
        mask: npt.NDArray[np.bool_] = partition_of(columns, self.partitions) == self.partition
        return mask

    def rows(self, batch: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
        """The rows of a batch that belong here."""
        mask = self.mask([batch.column(key) for key in keys])
        return batch if mask.all() else batch.filter(pa.array(mask))

    def keys(self, keys: Collection[Any], kinds: Sequence[pa.DataType], *, as_tuples: bool) -> list[Hashable]:
        """Those of some keys, as operators hold them, that belong here. ``kinds``: the types of their columns.

        ``as_tuples``: whether a key of one column is a tuple, too.
        """
        listed = list(keys)
        if not listed:
            return []
        mask = self.mask(arrays_of_keys(listed, kinds, as_tuples=as_tuples))
        return [key for key, belongs in zip(listed, mask.tolist(), strict=True) if belongs]
