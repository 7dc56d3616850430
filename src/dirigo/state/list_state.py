"""Owns the state that is a list: its declaration and its cell.  Must not know other states or other instances."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload

from dirigo.state.contents import Holding
from dirigo.state.declaration import Declaration, Span
from dirigo.state.values.copies import private_copy
from dirigo.state.values.frozen_form import freeze_value
from dirigo.state.values.missing import MISSING

if TYPE_CHECKING:
    from dirigo.state.keyed.cells import KeyedListCell  # which is built on this

T = TypeVar("T")


class ListState(Declaration, Generic[T]):
    """A list per instance; the whole is their concatenation.

    The items of one instance keep their order, but which instance's items come first is not defined: use it as a
    multiset, or put into the items what they have to be sorted by.
    """

    change_example = "append(...)"

    def __init__(
        self, type_: type[T], *, replicated: bool = False, ttl: Span | None = None, ttl_time: str | None = None
    ) -> None:
        self.type_ = type_
        self.replicated = replicated
        self.ttl, self.ttl_time = ttl, ttl_time

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> "KeyedListCell[T]": ...

    def __get__(self, instance: object | None, owner: type) -> "Self | KeyedListCell[T]":
        if instance is None:
            return self
        try:  # the usual way, which is taken several times per row
            return instance._dirigo_state_set.cells[self._attribute_name]  # type: ignore[attr-defined, no-any-return]
        except (AttributeError, KeyError):
            return self._cell_of(instance)  # type: ignore[no-any-return]

    def identity(self) -> list[T]:
        return []

    def is_identity(self, value: Any) -> bool:
        return not value

    def check(self, holding: Holding, incoming: Any) -> None:
        """Nothing to check: concatenation with an empty list keeps the law."""

    def merged(self, own: Any, incoming: Any) -> Any:
        own.extend(self.copy(incoming))
        return own

    def copy(self, value: Any) -> list[T]:
        return [private_copy(item) for item in value]

    def freeze(self, value: Any) -> Hashable:
        return tuple(freeze_value(item) for item in value)

    def new_cell(self, holding: Holding) -> "ListCell[T]":
        return ListCell(self, holding)


class ListCell(Generic[T]):
    """The list as one instance sees it; everything but read() is about the items of this instance alone."""

    __slots__ = ("_declaration", "_holding")

    def __init__(self, declaration: ListState[T], holding: Holding) -> None:
        self._declaration = declaration
        self._holding = holding

    def append(self, item: T) -> None:
        """Add one item; it is handed over."""
        self._kept().append(item)

    def extend(self, items: Iterable[T]) -> None:
        """Add several items; they are handed over."""
        self._kept().extend(items)

    def clear(self) -> None:
        """Drop the items of this instance (what other instances hold stays)."""
        self._holding.own.clear()

    def read(self) -> list[T]:
        """A copy of the best known whole: the items of the replicated base, if there is one, then the own ones."""
        return [*self._declaration.copy(self._based()), *self._declaration.copy(self._held())]

    def __iter__(self) -> Iterator[T]:
        return iter(self._held())

    def __len__(self) -> int:
        return len(self._held())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._holding.name!r}, {self._holding.own!r})"

    def _held(self) -> Sequence[T]:
        """The own items, to be looked at."""
        return cast("list[T]", self._holding.own)

    def _kept(self) -> list[T]:
        """The own items, to be changed."""
        return cast("list[T]", self._holding.own)

    def _based(self) -> Sequence[T]:
        return () if self._holding.base is MISSING else self._holding.base
