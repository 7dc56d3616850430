"""Owns how a value is made private to one instance; must not know about states, cells or combining."""

import copy
from typing import TypeVar, cast

from dirigo.state.values.scalars import SCALAR_TYPES, all_scalars

T = TypeVar("T")


def private_copy(value: T) -> T:
    """A value that shares nothing mutable with `value`; immutable values are returned as they are.

    The short cuts matter: nearly all states hold scalars, or flat containers of them, and deepcopy is slow there.
    """
    kind = type(value)
    if kind in SCALAR_TYPES:
        return value
    if kind in (tuple, frozenset):
        return value if all_scalars(cast("tuple[object, ...]", value)) else copy.deepcopy(value)
    if kind in (list, set) and all_scalars(cast("list[object]", value)):
        return cast(T, cast("list[object]", value).copy())
    return copy.deepcopy(value)
