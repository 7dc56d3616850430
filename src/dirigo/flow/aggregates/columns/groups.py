"""Owns the rows that one aggregate is to look at: which group each is in, once rows that do not count are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Codes = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class Groups:
    """Group numbers of rows. complete: whether every group is known to have at least one row."""

    __slots__ = ("codes", "complete", "count")

    def __init__(self, codes: Codes, count: int, complete: bool) -> None:
        self.codes = codes
        self.count = count
        self.complete = complete

    def keep(self, mask: Mask) -> Groups:
        """The groups of the rows where the mask is true."""
        return Groups(self.codes[mask], self.count, False)

    def without_nulls(self, values: pa.Array) -> tuple[pa.Array, Groups]:
        """The values that are there, and their groups."""
        if values.null_count == 0:
            return values, self
        valid = values.is_valid()
        return values.filter(valid), self.keep(valid.to_numpy(zero_copy_only=False))

    def sizes(self) -> npt.NDArray[np.int64]:
        """The number of rows of each group."""
        return np.bincount(self.codes, minlength=self.count)

    def missing(self) -> Mask | None:
        """True for each group without rows, in the form that pa.array takes as `mask`; None if there is no such group."""
        if self.complete:
            return None
        present = np.zeros(self.count, np.bool_)
        present[self.codes] = True
        return None if present.all() else ~present
