"""Owns the states of one instance whose values belong to keys: moving them out, combining them in, and letting them expire.

It is to many keys what StateSet is to one. Must not know which instance it is, nor where keys and numbers come from.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from dirigo.state.captures import capture_of, restored
from dirigo.state.contents import Holding
from dirigo.state.declaration import Declaration
from dirigo.state.errors import StateError
from dirigo.state.keyed.cells import KeyedListCell, KeyedMapCell, KeyedValueCell
from dirigo.state.keyed.current_key import CurrentKey
from dirigo.state.keyed.lifetime import Lifetime
from dirigo.state.list_state import ListState
from dirigo.state.map_state import MapState
from dirigo.state.partial import StateView
from dirigo.state.values.codec import is_plain
from dirigo.state.values.missing import MISSING
from dirigo.state.values.sizes import estimated_size

# With more keys, looking whether all values are plain takes longer than to take them for what they may be.
_LOOKED_AT_MOST = 64

KeyedCell = KeyedValueCell[Any] | KeyedListCell[Any] | KeyedMapCell[Any, Any]


@dataclass(frozen=True, slots=True)
class KeyedPartial:
    """What one instance holds: by state, the value of each key, and when each was written if that matters."""

    values: Mapping[str, dict[Hashable, Any]]
    written: Mapping[str, dict[Hashable, int]] = field(default_factory=dict)


class KeyedCapture(NamedTuple):
    """What a snapshot keeps: each state's values by key, and when each was written, with the newest of all numbers."""

    values: dict[str, Any]
    written: dict[str, tuple[Any, int]]


class KeyedStateSet:
    """The partial states of one instance of a function, by key; at first there is nothing for any key."""

    __slots__ = ("_declarations", "_expiring", "_holdings", "cells", "current")

    def __init__(
        self, declarations: Mapping[str, Declaration], current: CurrentKey, lifetimes: Mapping[str, Lifetime] | None = None
    ) -> None:
        self.current = current
        self._declarations = dict(declarations)
        self._holdings = {name: Holding(name, {}) for name in declarations}
        self.cells = {
            name: _new_cell(declaration, self._holdings[name], current, (lifetimes or {}).get(name))
            for name, declaration in declarations.items()
        }
        self._expiring = {name: cell for name, cell in self.cells.items() if cell.lifetime is not None}

    def __contains__(self, name: str) -> bool:
        return name in self._holdings

    def cell(self, name: str) -> Any:
        """The cell of a state, which shows the current key; the same object for the life of this set."""
        return self.cells[name]

    # --- keys ---

    def keys(self) -> set[Hashable]:
        """All keys that hold something. Values that are the identity again are dropped on this occasion."""
        held: set[Hashable] = set()
        for name, declaration in self._declarations.items():
            own = self._holdings[name].own
            for key in [key for key, value in own.items() if declaration.is_identity(value)]:
                self.cells[name].drop(key)
            held.update(own)
        return held

    def shown(self, keys: Iterable[Hashable]) -> dict[Hashable, dict[str, Any]]:
        """A copy of every state of some keys."""
        return {
            key: {
                name: declaration.copy(own[key]) if key in (own := self._holdings[name].own) else declaration.identity()
                for name, declaration in self._declarations.items()
            }
            for key in keys
        }

    def values_of(self, name: str, keys: Iterable[Hashable]) -> list[Any]:
        """What some keys hold of a state, themselves: to be looked at only."""
        own, identity = self._holdings[name].own, self._declarations[name].identity()
        return [own.get(key, identity) for key in keys]

    # --- expiry ---

    @property
    def expires(self) -> bool:
        return bool(self._expiring)

    def expire_current(self, *, exact_only: bool = False) -> None:
        """Forget what the current key has held for too long, as of the numbers in ``current.now``."""
        for cell in self._expiring.values():
            if not exact_only or cell.lifetime.is_exact:  # type: ignore[union-attr]
                cell.expire_current()

    def expire(self, axis: int, now: int) -> None:
        """Forget, for all keys, what has expired on an axis."""
        for name, cell in self._expiring.items():
            written = cell.written
            if written is not None and cell.lifetime is not None and cell.lifetime.axis == axis:
                for key in written.take_expired(now):
                    self._holdings[name].own.pop(key, None)

    def next_expiry(self, axis: int) -> int | None:
        """Nothing expires on an axis before this number; None if there is nothing that can."""
        dues = (cell.written.next_due() for cell in self._on_axis(axis) if cell.written is not None)
        return min((due for due in dues if due is not None), default=None)

    def newest(self, axis: int) -> int | None:
        """The highest number at which something was written on an axis; None if nothing was."""
        numbers = (cell.written.newest for cell in self._on_axis(axis) if cell.written is not None)
        return max((number for number in numbers if number is not None), default=None)

    def _on_axis(self, axis: int) -> Iterable[KeyedCell]:
        return (cell for cell in self._expiring.values() if cell.lifetime is not None and cell.lifetime.axis == axis)

    # --- moving partial states ---

    def peek(self) -> KeyedPartial:
        """What take() would move, left where it is: to be read only."""
        values = {name: holding.own for name, holding in self._holdings.items() if holding.own}
        written = {name: cell.written.numbers for name, cell in self._expiring.items() if cell.written is not None}
        return KeyedPartial(values, written)

    def take(self) -> KeyedPartial:
        """Move all partial values out; afterwards no key holds anything. The base stays."""
        partial = self.peek()
        for name in partial.values:
            self._holdings[name].own = {}
        return KeyedPartial(
            partial.values, {name: cell.written.take() for name, cell in self._expiring.items() if cell.written is not None}
        )

    def merge(self, partial: KeyedPartial) -> None:
        """Combine a partial state into the own one, key by key; the partial is neither changed nor shared."""
        self._refuse_unknown(partial.values)
        for name, incoming in partial.values.items():
            holding, declaration = self._holdings[name], self._declarations[name]
            for value in islice(incoming.values(), holding.law_checks_left):
                declaration.check(holding, value)
        for name, incoming in partial.values.items():
            own, declaration = self._holdings[name].own, self._declarations[name]
            for key, value in incoming.items():
                own[key] = declaration.merged(own[key], value) if key in own else declaration.copy(value)
        for name, numbers in partial.written.items():
            written = self.cells[name].written
            if written is not None:
                written.merge(numbers)

    def is_identity(self) -> bool:
        """Whether take() would move nothing; the base does not count."""
        return not any(holding.own for holding in self._holdings.values())

    def size_bytes(self) -> int:
        """About how many bytes take() moves; containers are measured on a few items."""
        return sum(
            estimated_size(name) + estimated_size(holding.own) for name, holding in self._holdings.items() if holding.own
        )

    def values(self) -> list[Any]:
        """All that is held here, in no form but its own: to be looked at only."""
        held = [value for holding in self._holdings.values() for value in (holding.own, holding.base)]
        return [value for value in held if value is not MISSING] + [
            cell.written.numbers for cell in self._expiring.values() if cell.written is not None
        ]

    def is_plain(self) -> bool:
        """Whether no value here can have code of a user's; that is said of few keys only."""
        return all(
            len(self._holdings[name].own) <= _LOOKED_AT_MOST
            and all(map(is_plain, self._holdings[name].own.values()))
            and (default is MISSING or is_plain(default))
            for name, declaration in self._declarations.items()
            for default in (getattr(declaration, "default", MISSING),)
        )

    # --- snapshots ---

    def capture(self) -> KeyedCapture | None:
        """What is held, so that no later change touches it: see captures.py. None if there is nothing."""
        values = {name: capture_of(holding.own) for name, holding in self._holdings.items() if holding.own}
        written = {
            name: (capture_of(cell.written.numbers), cell.written.newest)
            for name, cell in self._expiring.items()
            if cell.written is not None and cell.written.newest is not None
        }
        return KeyedCapture(values, written) if values or written else None

    def restore(self, captured: KeyedCapture | None) -> None:
        """Hold what was captured; nothing is held so far."""
        if captured is None:
            return
        self._refuse_unknown(captured.values)
        for name, values in captured.values.items():
            self._holdings[name].own = restored(values)
        for name, (numbers, newest) in captured.written.items():
            written = self.cells[name].written
            if written is not None:
                written.restore(restored(numbers), newest)

    def restore_share(
        self, captured: KeyedCapture | None, belongs: Callable[[Collection[Hashable]], Iterable[Hashable]]
    ) -> None:
        """Add what was captured elsewhere of the keys that belong here, and are not held so far."""
        if captured is None:
            return
        self._refuse_unknown(captured.values)
        for name, values in captured.values.items():
            held = restored(values)
            self._holdings[name].own.update({key: held[key] for key in belongs(held)})
        for name, (numbers, newest) in captured.written.items():
            written = self.cells[name].written
            if written is not None:
                all_numbers = restored(numbers)
                own_numbers = {key: all_numbers[key] for key in belongs(all_numbers)}
                written.restore(own_numbers, max(newest, newest if written.newest is None else written.newest))

    # --- replicated states ---

    def is_replicated(self) -> bool:
        """Whether view() shows anything."""
        return any(declaration.replicated for declaration in self._declarations.values())

    def view(self) -> StateView | None:
        """A copy of the own values of the replicated states (the whole, at a lessor), or None without any."""
        values = {
            name: {key: declaration.copy(value) for key, value in self._holdings[name].own.items()}
            for name, declaration in self._declarations.items()
            if declaration.replicated
        }
        return StateView(values) if values else None

    def install_view(self, view: StateView | None) -> None:
        """Make `view` the base that replicated states read, in place of the former one. A base is never changed."""
        values = {} if view is None else view.values
        self._refuse_unknown(values)
        for name, holding in self._holdings.items():
            holding.base = values.get(name, MISSING)

    def __repr__(self) -> str:
        return f"KeyedStateSet({ {name: holding.own for name, holding in self._holdings.items()} })"

    def _refuse_unknown(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._holdings:
                raise StateError(
                    f"Values came for state '{name}', which is not declared here; run the same code everywhere."
                )


def _new_cell(declaration: Declaration, holding: Holding, current: CurrentKey, lifetime: Lifetime | None) -> KeyedCell:
    if isinstance(declaration, ListState):
        return KeyedListCell(declaration, holding, current, lifetime)
    if isinstance(declaration, MapState):
        return KeyedMapCell(declaration, holding, current, lifetime)
    return KeyedValueCell(declaration, holding, current, lifetime)
