"""Owns what user code works with where states belong to keys: cells that show the state of the current key.

Must not know how a key becomes the current one. Only what is not the identity is kept: a state that is empty again takes no
room. The identity of a mutable value is found late, when the keys are listed.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar, cast

from dirigo.state.contents import Holding
from dirigo.state.declaration import Declaration
from dirigo.state.keyed.current_key import CurrentKey
from dirigo.state.keyed.lifetime import Lifetime, WrittenAt
from dirigo.state.list_state import ListCell
from dirigo.state.map_state import MapCell
from dirigo.state.value_state import ValueCell
from dirigo.state.values.copies import private_copy
from dirigo.state.values.missing import MISSING
from dirigo.state.values.scalars import SCALAR_TYPES

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Expiring:
    """The part of a cell that forgets what was not written for long."""

    __slots__ = ()  # those of the classes below, which have another base with slots

    _current: CurrentKey
    _holding: Holding  # its own and base are dicts from keys to values
    _lifetime: Lifetime | None
    _written: WrittenAt | None

    def _install(self, holding: Holding, current: CurrentKey, lifetime: Lifetime | None) -> None:
        self._holding = holding  # type: ignore[misc]  # the slots are those of the classes below
        self._current = current  # type: ignore[misc]
        self._lifetime = lifetime  # type: ignore[misc]
        self._written = None if lifetime is None else WrittenAt(lifetime)  # type: ignore[misc]

    @property
    def written(self) -> WrittenAt | None:
        return self._written

    @property
    def lifetime(self) -> Lifetime | None:
        return self._lifetime

    def _wrote(self, written: WrittenAt) -> None:
        current = self._current
        written.note(current.key, current.now[cast(Lifetime, self._lifetime).axis])

    def expire_current(self) -> None:
        """Forget the current key's value if its time is over."""
        written = self._written
        if written is not None:
            key = self._current.key
            if written.has_expired(key, self._current.now[cast(Lifetime, self._lifetime).axis]):
                self.drop(key)

    def drop(self, key: Hashable) -> None:
        """Let a key hold nothing."""
        own = self._holding.own
        if key in own:  # not pop, which does not mind what the key is where nothing is held
            del own[key]
        if self._written is not None:
            self._written.forget(key)

    def _row_by_row(self, do: Callable[[int], T]) -> list[T]:
        """Do something for each row of the batch, with its key and its time."""
        current, lifetime = self._current, cast(Lifetime, self._lifetime)
        keys, numbers = current.row_keys(), current.row_numbers(lifetime.axis)
        key_before, number_before = current.key, current.now[lifetime.axis]
        results = []
        try:
            for position, (key, number) in enumerate(zip(keys, numbers, strict=True)):
                current.key = key
                current.now[lifetime.axis] = number
                if lifetime.is_exact:
                    self.expire_current()
                results.append(do(position))
        finally:
            current.key, current.now[lifetime.axis] = key_before, number_before
        return results


class KeyedValueCell(Expiring, ValueCell[T], Generic[T]):
    """The current key's value as one instance sees it."""

    __slots__ = ("_combine", "_current", "_default", "_is_immutable", "_lifetime", "_scalar", "_written")

    def __init__(self, declaration: Declaration, holding: Holding, current: CurrentKey, lifetime: Lifetime | None) -> None:
        self._declaration = cast(Any, declaration)
        self._install(holding, current, lifetime)
        self._default = self._declaration.default
        self._combine = self._declaration.combine
        self._is_immutable = private_copy(self._default) is self._default
        self._scalar = type(self._default) if type(self._default) in SCALAR_TYPES else None

    def get(self) -> T:
        """The partial value of this key at this instance; do not keep a mutable one beyond the current message."""
        value = self._holding.own.get(self._current.key, MISSING)
        return self._initial() if value is MISSING else value

    def _initial(self) -> T:
        if self._is_immutable:
            return self._default
        value = self._holding.own[self._current.key] = private_copy(self._default)  # may be changed in place
        if self._written is not None:
            self._wrote(self._written)
        return value

    def set(self, value: T) -> None:
        """Replace the partial value of this key (what other instances hold stays); `value` is handed over."""
        if value is self._default or (type(value) is self._scalar and value == self._default):
            self.drop(self._current.key)
            return
        self._holding.own[self._current.key] = value
        if self._written is not None:
            self._wrote(self._written)

    def clear(self) -> None:
        """Back to the default (what other instances hold stays)."""
        self.drop(self._current.key)

    def add(self, value: T) -> None:
        """Combine `value` into the partial value of this key; `value` is handed over."""
        holding = self._holding
        before = holding.own.get(self._current.key, MISSING)
        after = self._combine(private_copy(self._default) if before is MISSING else before, value)
        self.set(after)
        if holding.law_checks_left:
            self._declaration.check(holding, after)

    def read(self) -> T:
        """A copy of the best known whole: the replicated base, if there is one, combined with the partial value."""
        key = self._current.key
        parts = [part[key] for part in (self._holding.base, self._holding.own) if part is not MISSING and key in part]
        if not parts:
            return private_copy(self._default)
        first = private_copy(parts[0])
        return cast(T, first if len(parts) == 1 else self._combine(first, private_copy(parts[1])))

    # --- for all rows of a batch at once ---

    def get_each(self) -> list[T]:
        """For each row of the batch the partial value of its key, to be looked at."""
        if self._lifetime is not None and self._lifetime.is_exact:
            return self._row_by_row(lambda _: self.get())
        find, default = self._holding.own.get, self._default
        if self._is_immutable:
            return [find(key, default) for key in self._current.row_keys()]
        values = [find(key, MISSING) for key in self._current.row_keys()]
        return [private_copy(default) if value is MISSING else value for value in values]

    def set_each(self, values: Iterable[T]) -> None:
        """Replace the partial value of each row's key by the value for that row; the last row of a key counts."""
        keys, listed = self._current.each(values, "set_each()")
        if self._lifetime is not None:
            self._row_by_row(lambda position: self.set(listed[position]))
            return
        self._holding.own.update(zip(keys, listed, strict=True))
        self._drop_defaults(keys, listed)

    def add_each(self, values: Iterable[T]) -> list[T]:
        """Combine the value for each row into the partial value of its key, row by row; returns each row's result."""
        keys, listed = self._current.each(values, "add_each()")
        if self._lifetime is not None:
            return self._row_by_row(lambda position: self._added(listed[position]))
        own, combine, default = self._holding.own, self._combine, self._default
        find, results = own.get, []
        if self._is_immutable:
            for key, value in zip(keys, listed, strict=True):
                own[key] = after = combine(find(key, default), value)
                results.append(after)
        else:
            for key, value in zip(keys, listed, strict=True):
                before = find(key, MISSING)
                own[key] = after = combine(private_copy(default) if before is MISSING else before, value)
                results.append(after)
        for after in results[: self._holding.law_checks_left]:
            self._declaration.check(self._holding, after)
        self._drop_defaults(keys, results)
        return results

    def _drop_defaults(self, keys: Sequence[Hashable], values: list[T]) -> None:
        """After values were set without a look at them."""
        own, scalar, default = self._holding.own, self._scalar, self._default
        if scalar is not None:
            for key in {key for key, value in zip(keys, values, strict=True) if type(value) is scalar and value == default}:
                if own[key] == default:
                    del own[key]

    def _added(self, value: T) -> T:
        self.add(value)
        return self.get()

    def __repr__(self) -> str:
        return f"KeyedValueCell({self._holding.name!r}, {self._holding.own!r})"


class KeyedListCell(Expiring, ListCell[T], Generic[T]):
    """The current key's list as one instance sees it."""

    __slots__ = ("_current", "_lifetime", "_written")

    def __init__(self, declaration: Declaration, holding: Holding, current: CurrentKey, lifetime: Lifetime | None) -> None:
        self._declaration = cast(Any, declaration)
        self._install(holding, current, lifetime)

    def _held(self) -> Sequence[T]:
        return self._holding.own.get(self._current.key, ())  # type: ignore[no-any-return]

    def _kept(self) -> list[T]:
        own, key = self._holding.own, self._current.key
        items = own.get(key)
        if items is None:
            items = own[key] = []
        if self._written is not None:
            self._wrote(self._written)
        return cast("list[T]", items)

    def _based(self) -> Sequence[T]:
        base = self._holding.base
        return () if base is MISSING else base.get(self._current.key, ())

    def extend(self, items: Iterable[T]) -> None:
        """Add several items; they are handed over."""
        if items := list(items):
            self._kept().extend(items)

    def clear(self) -> None:
        """Drop the items of this key at this instance (what other instances hold stays)."""
        self.drop(self._current.key)

    def append_each(self, items: Iterable[T]) -> None:
        """Add the item for each row of the batch to the list of its key."""
        keys, listed = self._current.each(items, "append_each()")
        if self._lifetime is not None:
            self._row_by_row(lambda position: self.append(listed[position]))
            return
        own = self._holding.own
        for key, item in zip(keys, listed, strict=True):
            if key in own:
                own[key].append(item)
            else:
                own[key] = [item]

    def read_each(self) -> list[list[T]]:
        """For each row of the batch a copy of the best known list of its key."""
        current = self._current
        if self._lifetime is not None and self._lifetime.is_exact:
            return self._row_by_row(lambda _: self.read())
        before, lists = current.key, []
        try:
            for key in current.row_keys():
                current.key = key
                lists.append(self.read())
        finally:
            current.key = before
        return lists


class KeyedMapCell(Expiring, MapCell[K, V], Generic[K, V]):
    """The current key's map as one instance sees it."""

    __slots__ = ("_current", "_lifetime", "_written")

    def __init__(self, declaration: Declaration, holding: Holding, current: CurrentKey, lifetime: Lifetime | None) -> None:
        self._declaration = cast(Any, declaration)
        self._install(holding, current, lifetime)

    def _held(self) -> dict[K, V]:
        return self._holding.own.get(self._current.key) or {}

    def _kept(self) -> dict[K, V]:
        own, key = self._holding.own, self._current.key
        entries = own.get(key)
        if entries is None:
            entries = own[key] = {}
        if self._written is not None:
            self._wrote(self._written)
        return cast("dict[K, V]", entries)

    def _based(self) -> dict[K, V]:
        base = self._holding.base
        return {} if base is MISSING else base.get(self._current.key, {})

    def __delitem__(self, key: K) -> None:
        """Drop the own value (what other instances hold stays)."""
        entries = self._held()
        del entries[key]
        if not entries:
            self.drop(self._current.key)

    def clear(self) -> None:
        """Drop the entries of this key at this instance (what other instances hold stays)."""
        self.drop(self._current.key)

    def add_each(self, entries: Iterable[K], values: Iterable[V]) -> None:
        """For each row of the batch combine a value into an entry of the map of the row's key."""
        keys, names = self._current.each(entries, "add_each()")
        _, listed = self._current.each(values, "add_each()")
        if self._lifetime is not None:
            self._row_by_row(lambda position: self.add(names[position], listed[position]))
            return
        current, before = self._current, self._current.key
        try:
            for current.key, name, value in zip(keys, names, listed, strict=True):
                self.add(name, value)
        finally:
            current.key = before

    def get_each(self, entries: Iterable[K], fallback: Any = None) -> list[Any]:
        """For each row of the batch the own value of an entry of the map of the row's key, or ``fallback``."""
        keys, names = self._current.each(entries, "get_each()")
        if self._lifetime is not None and self._lifetime.is_exact:
            return self._row_by_row(lambda position: self.get(names[position], fallback))
        own, nothing = self._holding.own, cast("dict[K, V]", {})
        return [own.get(key, nothing).get(name, fallback) for key, name in zip(keys, names, strict=True)]
