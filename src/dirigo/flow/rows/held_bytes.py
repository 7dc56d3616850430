"""About how much memory Python objects hold, for operators that keep what they know in sets, maps and lists.

The cost is bounded whatever the size: of a container a few items are looked at, its oldest and its newest, and the rest is
taken to be alike. What several containers share is counted in each of them. Objects of users are asked for their size, so
this may run their code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

import pyarrow as pa

_LOOKED_AT = 16  # items of a container from either end
_DEEPEST = 5  # containers in containers


def held_bytes(value: Any, depth: int = 0) -> int:
    """About how many bytes a value holds, with all that is in it."""
    if isinstance(value, pa.RecordBatch):
        return int(value.get_total_buffer_size())
    size = sys.getsizeof(value)
    if depth == _DEEPEST or isinstance(value, str | bytes | bytearray | int | float):
        return size
    if isinstance(value, dict):
        looked_at = [*_ends(value.items())]
        inside = sum(held_bytes(key, depth + 1) + held_bytes(item, depth + 1) for key, item in looked_at)
    elif isinstance(value, list | tuple | set | frozenset):
        looked_at = [*_ends(value)]
        inside = sum(held_bytes(item, depth + 1) for item in looked_at)
    else:
        names = (name for kind in type(value).__mro__ for name in _slots(kind))
        attributes = [getattr(value, "__dict__", None), *(getattr(value, name, None) for name in names)]
        return size + sum(held_bytes(each, depth + 1) for each in attributes if each is not None)
    return size + (inside * len(value) // len(looked_at) if looked_at else 0)


def _ends(items: Any) -> Iterable[Any]:
    """Some items from either end; all of a few. A set has no ends, and no order either."""
    if len(items) <= 2 * _LOOKED_AT:
        return list(items)
    if isinstance(items, set | frozenset):
        return islice(items, 2 * _LOOKED_AT)
    return chain(islice(items, _LOOKED_AT), islice(reversed(items), _LOOKED_AT))


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
