"""Owns when two values count as the same; must not know about states or combining.

`==` alone does not do: array-like values answer it element by element, NaN differs from itself, and objects
without `__eq__` compare by address, which a copy never survives.
"""

import math
from typing import Any

from dirigo.state.values.frozen_form import freeze_value

ROUNDING_TOLERANCE = 1e-9


def equal(left: Any, right: Any) -> bool:
    """Whether two values are the same."""
    if left is right:
        return True
    kind: Any = type(left)
    if kind.__eq__ is object.__eq__:
        return freeze_value(left) == freeze_value(right)
    try:
        verdict = left == right
        if isinstance(verdict, bool):
            return verdict or (_is_nan(left) and _is_nan(right))
        same_shape = getattr(left, "shape", None) == getattr(right, "shape", None)
        return same_shape and bool(verdict.all())
    except (ValueError, AttributeError):  # arrays of different shape, or arrays inside a container
        return freeze_value(left) == freeze_value(right)


def agree(left: Any, right: Any) -> bool:
    """Whether two values are the same up to floating-point rounding, also inside sequences and maps."""
    if isinstance(left, float) and isinstance(right, (int, float)):
        return equal(left, right) or math.isclose(left, right, rel_tol=ROUNDING_TOLERANCE)
    if type(left) is type(right) and isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(agree, left, right))
    if type(left) is type(right) and isinstance(left, dict):
        return left.keys() == right.keys() and all(agree(value, right[key]) for key, value in left.items())
    return equal(left, right)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
