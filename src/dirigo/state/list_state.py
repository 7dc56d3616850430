"""Owns the state that is a list: its declaration and its cell.  Must not know other states or other instances."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, Self, TypeVar, cast, overload

from dirigo.state.contents import Holding
from dirigo.state.declaration import Declaration
from dirigo.state.values.copies import private_copy
from dirigo.state.values.frozen_form import freeze_value
from dirigo.state.values.missing import MISSING

T = TypeVar("T")


class ListState(Declaration, Generic[T]):
    """A list per instance; the whole is their concatenation.

    The items of one instance keep their order, but which instance's items come first is not defined: use it as a
    multiset, or put into the items what they have to be sorted by.
    """

    change_example = "append(...)"

    def __init__(self, type_: type[T], *, replicated: bool = False) -> None:
        self.type_ = type_
        self.replicated = replicated

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> "ListCell[T]": ...

    def __get__(self, instance: object | None, owner: type) -> "Self | ListCell[T]":
        return self if instance is None else cast("ListCell[T]", self._cell_of(instance))

    def identity(self) -> list[T]:
        return []

    def is_identity(self, value: Any) -> bool:
        return not value

    def check(self, holding: Holding, incoming: Any) -> None:
        """Nothing to check: concatenation with an empty list keeps the law."""

    def merge(self, holding: Holding, incoming: Any) -> None:
        holding.own.extend(self.copy(incoming))

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
        self._holding.own.append(item)

    def extend(self, items: Iterable[T]) -> None:
        """Add several items; they are handed over."""
        self._holding.own.extend(items)

    def clear(self) -> None:
        """Drop the items of this instance (what other instances hold stays)."""
        self._holding.own.clear()

    def read(self) -> list[T]:
        """A copy of the best known whole: the items of the replicated base, if there is one, then the own ones."""
        base = [] if self._holding.base is MISSING else self._holding.base
        return [*self._declaration.copy(base), *self._declaration.copy(self._holding.own)]

    def __iter__(self) -> Iterator[T]:
        return iter(self._holding.own)

    def __len__(self) -> int:
        return len(self._holding.own)

    def __repr__(self) -> str:
        return f"ListCell({self._holding.name!r}, {self._holding.own!r})"
