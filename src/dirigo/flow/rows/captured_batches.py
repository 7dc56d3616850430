"""Batches as a snapshot keeps them: by reference, since they never change.

Types that a user has made are the exception: pickling a batch of them would need their class, so it is done at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dirigo.state import Pickled, pickled


def captured_batches(batches: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, ...] | Pickled:
    """A list of batches of one schema."""
    if batches and any(_is_users(field.type) for field in batches[0].schema):
        return pickled([*batches])
    return tuple(batches)


def restored_batches(captured: Any) -> list[pa.RecordBatch]:
    """The list that was captured."""
    return captured.open() if isinstance(captured, Pickled) else [*captured]


def _is_users(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.ExtensionType):  # those of Arrow's own have another base
        return True
    if pa.types.is_dictionary(kind):
        return _is_users(kind.value_type)
    return any(_is_users(kind.field(number).type) for number in range(kind.num_fields))
