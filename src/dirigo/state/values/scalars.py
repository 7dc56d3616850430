"""Owns the list of built-in immutable scalar types; must not know what is done with them.

They are compared by exact type everywhere: a subclass (an enum, a numpy scalar) may carry more than its value.
"""

from collections.abc import Iterable

SCALAR_TYPES: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes})


def all_scalars(values: Iterable[object]) -> bool:
    """Whether every value is exactly of a scalar type (runs at C speed, so it is cheap on long lists)."""
    return set(map(type, values)) <= SCALAR_TYPES
