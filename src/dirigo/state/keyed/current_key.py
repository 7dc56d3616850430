"""Owns which key the states of an instance are those of, at the moment; must not know where keys come from."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Never

from dirigo.state.errors import StateError


class _NoKey:
    """Stands for the key while there is none. It has no hash, so that whoever looks something up with it gets the error."""

    def __hash__(self) -> int:
        raise StateError(
            "No key is current here: in on_batch use get_each(), set_each(), add_each() and the like, or "
            "context.at_row(position) before get() and set()."
        )

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return "no key"


NO_KEY = _NoKey()


def _no_rows(*_: Any) -> Never:
    raise StateError("There is no batch here whose rows have keys: use get_each() and the like in on_batch only.")


class CurrentKey:
    """The key whose states all cells of one instance show; the cells look here, so that a switch is one assignment."""

    __slots__ = ("_find_keys", "_find_numbers", "_listed", "key", "now")

    def __init__(self, key: Hashable = NO_KEY, axes: int = 0, listed: Callable[[Any], list[Any]] = list) -> None:
        """``listed`` makes a list of what user code hands over for the rows of a batch."""
        self.key = key
        self.now = [0] * axes  # where the caller is, on each axis that a lifetime is measured on: see Lifetime
        self._listed = listed
        self._find_keys: Callable[[], Sequence[Hashable]] = _no_rows
        self._find_numbers: Callable[[int], Sequence[int]] = _no_rows

    def begin_batch(self, keys: Callable[[], Sequence[Hashable]], numbers: Callable[[int], Sequence[int]]) -> None:
        """From now on there are rows: ``keys`` finds their keys, and ``numbers`` where they are on an axis."""
        self._find_keys, self._find_numbers = keys, numbers

    def end_batch(self) -> None:
        self._find_keys = self._find_numbers = _no_rows

    def row_keys(self) -> Sequence[Hashable]:
        """The key of each row of the batch."""
        return self._find_keys()

    def row_numbers(self, axis: int) -> Sequence[int]:
        """Where each row of the batch is on an axis."""
        return self._find_numbers(axis)

    def each(self, values: Any, what: str) -> tuple[Sequence[Hashable], list[Any]]:
        """The key of each row, and the value for it."""
        keys = self._find_keys()
        listed = values if type(values) is list else self._listed(values)
        if len(listed) != len(keys):
            raise StateError(f"{what} takes one value for each of the {len(keys)} rows of the batch, not {len(listed)}.")
        return keys, listed
