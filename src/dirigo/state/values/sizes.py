"""Owns the size estimate of a value; must not know about states or encodings in detail.

The estimate approximates the encoded size.  Its cost is bounded whatever the size of the value: a container is
measured on a few of its items and scaled by its length, to a small depth.  It is therefore right to within a few
bytes per item for uniform contents, and may be far off where a few items are much larger than the others.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any

SAMPLED_ITEMS = 8
DEEPEST_LEVEL = 3
FLOAT_BYTES = 9
TEXT_HEADER_BYTES = 2
HEADER_BYTES = 5


def estimated_size(value: object, level: int = 0) -> int:
    """About how many bytes `value` takes when encoded."""
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, int):
        return 1 + value.bit_length() // 8
    if isinstance(value, float):
        return FLOAT_BYTES
    if isinstance(value, (str, bytes, bytearray)):
        return TEXT_HEADER_BYTES + len(value)
    array_bytes = getattr(value, "nbytes", None)
    if isinstance(array_bytes, int):
        return HEADER_BYTES + array_bytes
    if level >= DEEPEST_LEVEL:
        return sys.getsizeof(value)
    if isinstance(value, (Mapping, Sequence, Set)):
        return HEADER_BYTES + _scaled_size(value, level + 1)
    return sys.getsizeof(value) + _scaled_size(getattr(value, "__dict__", {}), level + 1)


def _scaled_size(items: Any, level: int) -> int:
    if not items:
        return 0
    sample = _sample(items)
    if isinstance(items, Mapping):
        sampled_bytes = sum(estimated_size(key, level) + estimated_size(value, level) for key, value in sample)
    else:
        sampled_bytes = sum(estimated_size(item, level) for item in sample)
    return sampled_bytes * len(items) // len(sample)


def _sample(items: Any) -> list[Any]:
    if isinstance(items, (list, tuple)):
        return list(items[:: -(-len(items) // SAMPLED_ITEMS)])  # spread over the whole, since it costs nothing more
    return list(itertools.islice(items.items() if isinstance(items, Mapping) else items, SAMPLED_ITEMS))
