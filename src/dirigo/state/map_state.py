"""Owns the state that is a map: its declaration and its cell.  Must not know other states or other instances."""

import itertools
from collections.abc import Callable, Hashable, ItemsView, Iterator, KeysView, ValuesView
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload

from dirigo.state.contents import Holding
from dirigo.state.declaration import Declaration, Span
from dirigo.state.laws import check_default, check_identity, combining
from dirigo.state.values.copies import private_copy
from dirigo.state.values.frozen_form import freeze_pairs
from dirigo.state.values.missing import MISSING, Missing

if TYPE_CHECKING:
    from dirigo.state.keyed.cells import KeyedMapCell  # which is built on this

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F")


class MapState(Declaration, Generic[K, V]):
    """A map per instance; in the whole, the values that several instances hold for one key are combined.

    The identity is the empty map.  If `default` is given it has to be the identity of `combine`.  Keys must be
    immutable, as for any dict.
    """

    change_example = "add(key, value)"

    def __init__(
        self,
        key_type: type[K],
        value_type: type[V],
        *,
        combine: Callable[[V, V], V] | None = None,
        default: V | Missing = MISSING,
        replicated: bool = False,
        ttl: Span | None = None,
        ttl_time: str | None = None,
    ) -> None:
        combine = combining("MapState", combine)
        if default is not MISSING:
            check_default("MapState", combine, default)
        self.key_type = key_type
        self.value_type = value_type
        self.combine = combine
        self.default = private_copy(default)
        self.replicated = replicated
        self.ttl, self.ttl_time = ttl, ttl_time

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> "KeyedMapCell[K, V]": ...

    def __get__(self, instance: object | None, owner: type) -> "Self | KeyedMapCell[K, V]":
        if instance is None:
            return self
        try:  # the usual way, which is taken several times per row
            return instance._dirigo_state_set.cells[self._attribute_name]  # type: ignore[attr-defined, no-any-return]
        except (AttributeError, KeyError):
            return self._cell_of(instance)  # type: ignore[no-any-return]

    def identity(self) -> dict[K, V]:
        return {}

    def is_identity(self, value: Any) -> bool:
        return not value

    def check(self, holding: Holding, incoming: Any) -> None:
        if self.default is MISSING:
            return
        granted = holding.spend_law_checks(len(incoming))
        for value in itertools.islice(incoming.values(), granted):
            check_identity(holding.name, self.combine, self.default, value)

    def merged(self, own: Any, incoming: Any) -> Any:
        self._combine_into(own, incoming)
        return own

    def combined(self, base: dict[K, V], own: dict[K, V]) -> dict[K, V]:
        """A new map of both."""
        whole = self.copy(base)
        self._combine_into(whole, own)
        return whole

    def _combine_into(self, target: dict[K, V], incoming: dict[K, V]) -> None:
        for key, value in incoming.items():
            private = private_copy(value)
            target[key] = self.combine(target[key], private) if key in target else private

    def copy(self, value: Any) -> dict[K, V]:
        return {key: private_copy(item) for key, item in value.items()}

    def freeze(self, value: Any) -> Hashable:
        return freeze_pairs(value)

    def new_cell(self, holding: Holding) -> "MapCell[K, V]":
        return MapCell(self, holding)


class MapCell(Generic[K, V]):
    """The map as one instance sees it; everything but the two reads is about the entries of this instance alone."""

    __slots__ = ("_declaration", "_holding")

    def __init__(self, declaration: MapState[K, V], holding: Holding) -> None:
        self._declaration = declaration
        self._holding = holding

    def __getitem__(self, key: K) -> V:
        """The own value; for an absent key a copy of the declared default, which is not stored."""
        own = self._held()
        return own[key] if key in own else self._default_for(key)

    @overload
    def get(self, key: K) -> V | None: ...

    @overload
    def get(self, key: K, fallback: F) -> V | F: ...

    def get(self, key: K, fallback: object = None) -> object:
        """The own value, or `fallback` for an absent key (as in a dict, the declared default plays no part)."""
        return self._held().get(key, fallback)

    def __setitem__(self, key: K, value: V) -> None:
        """Replace the own value (what other instances hold stays); `value` is handed over."""
        self._kept()[key] = value

    def __delitem__(self, key: K) -> None:
        """Drop the own value (what other instances hold stays)."""
        del self._holding.own[key]

    def add(self, key: K, value: V) -> None:
        """Combine `value` into the own value; an absent key starts from the declared default, if there is one."""
        declaration, own = self._declaration, self._kept()
        if key in own:
            own[key] = declaration.combine(own[key], value)
        elif declaration.default is MISSING:
            own[key] = value
        else:
            own[key] = declaration.combine(private_copy(declaration.default), value)
        if self._holding.law_checks_left:
            declaration.check(self._holding, {key: own[key]})

    def clear(self) -> None:
        """Drop the entries of this instance (what other instances hold stays)."""
        self._holding.own.clear()

    def read(self) -> dict[K, V]:
        """A copy of the best known whole: the replicated base, if there is one, combined with the own entries."""
        return self._declaration.combined(self._based(), self._held())

    def read_key(self, key: K) -> V:
        """What read()[key] would give, without copying the whole map; an absent key gives the declared default."""
        parts = [private_copy(part[key]) for part in (self._based(), self._held()) if key in part]
        if not parts:
            return self._default_for(key)
        return cast(V, parts[0] if len(parts) == 1 else self._declaration.combine(*parts))

    def items(self) -> ItemsView[K, V]:
        return self._held().items()

    def keys(self) -> KeysView[K]:
        return self._held().keys()

    def values(self) -> ValuesView[V]:
        return self._held().values()

    def __contains__(self, key: object) -> bool:
        return key in self._held()

    def __iter__(self) -> Iterator[K]:
        return iter(self._held())

    def __len__(self) -> int:
        return len(self._held())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._holding.name!r}, {self._holding.own!r})"

    def _default_for(self, key: K) -> V:
        default = self._declaration.default
        if isinstance(default, Missing):
            raise KeyError(key)
        return private_copy(default)

    def _held(self) -> dict[K, V]:
        """The own entries, to be looked at."""
        return cast("dict[K, V]", self._holding.own)

    def _kept(self) -> dict[K, V]:
        """The own entries, to be changed."""
        return cast("dict[K, V]", self._holding.own)

    def _based(self) -> dict[K, V]:
        return {} if self._holding.base is MISSING else self._holding.base
