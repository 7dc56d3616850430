"""Owns ready-made combine functions; must not know states or cells.

All are associative and commutative (`add` for numbers, and up to rounding for floats).  Unlike lambdas they can be
pickled.  The identity that belongs to each is named with it.
"""

from typing import Any, Protocol, TypeVar


class Addable(Protocol):
    """Numbers and vectors."""

    def __add__(self, other: Any, /) -> Any: ...


class Ordered(Protocol):
    """Anything with a total order."""

    def __lt__(self, other: Any, /) -> bool: ...


A = TypeVar("A", bound=Addable)
R = TypeVar("R", bound=Ordered)
E = TypeVar("E")


def add(left: A, right: A) -> A:
    """The sum; identity 0.  Not for texts and lists, whose sum depends on the order: use a ListState."""
    total: A = left + right
    return total


def maximum(left: R | None, right: R | None) -> R | None:
    """The larger one; identity None, which stands for "nothing seen yet" so that no type needs a lowest value."""
    if left is None or right is None:
        return right if left is None else left
    return max(left, right)


def minimum(left: R | None, right: R | None) -> R | None:
    """The smaller one; identity None, which stands for "nothing seen yet"."""
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def union(left: frozenset[E], right: frozenset[E]) -> frozenset[E]:
    """All elements of both; identity frozenset()."""
    return left | right


def merge_average(left: tuple[float, int], right: tuple[float, int]) -> tuple[float, int]:
    """Averages as (sum, count) pairs, because averages themselves do not add up; identity (0.0, 0)."""
    return (left[0] + right[0], left[1] + right[1])
