"""Owns the state that is one value: its declaration and its cell.  Must not know other states or other instances."""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload

from dirigo.state.contents import Holding
from dirigo.state.declaration import Declaration, Span
from dirigo.state.laws import check_default, check_identity, combining
from dirigo.state.values.copies import private_copy
from dirigo.state.values.equality import equal
from dirigo.state.values.frozen_form import freeze_value
from dirigo.state.values.missing import MISSING

if TYPE_CHECKING:
    from dirigo.state.keyed.cells import KeyedValueCell  # which is built on this

T = TypeVar("T")


class ValueState(Declaration, Generic[T]):
    """One value per instance; the whole is the combination of all of them.

    `default` is the identity of `combine` and the value every instance starts from.  `combine` may change and return
    its first argument; it gets copies wherever that would be seen elsewhere.  Without it the function must be ordered.
    """

    change_example = "set(...)"

    def __init__(
        self,
        type_: type[T],
        *,
        default: T,
        combine: Callable[[T, T], T] | None = None,
        replicated: bool = False,
        ttl: Span | None = None,
        ttl_time: str | None = None,
    ) -> None:
        combine = combining("ValueState", combine)
        check_default("ValueState", combine, default)
        self.type_ = type_
        self.default = private_copy(default)
        self.combine = combine
        self.replicated = replicated
        self.ttl, self.ttl_time = ttl, ttl_time

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> "KeyedValueCell[T]": ...

    def __get__(self, instance: object | None, owner: type) -> "Self | KeyedValueCell[T]":
        if instance is None:
            return self
        try:  # the usual way, which is taken several times per row
            return instance._dirigo_state_set.cells[self._attribute_name]  # type: ignore[attr-defined, no-any-return]
        except (AttributeError, KeyError):
            return self._cell_of(instance)  # type: ignore[no-any-return]

    def identity(self) -> T:
        return private_copy(self.default)

    def is_identity(self, value: Any) -> bool:
        # Compared, not flagged on set(): a mutable value may be changed in place through get().
        return equal(value, self.default)

    def check(self, holding: Holding, incoming: Any) -> None:
        if holding.spend_law_checks(1):
            check_identity(holding.name, self.combine, self.default, incoming)

    def merged(self, own: Any, incoming: Any) -> Any:
        return self.combine(own, private_copy(incoming))

    def copy(self, value: Any) -> Any:
        return private_copy(value)

    def freeze(self, value: Any) -> Hashable:
        return freeze_value(value)

    def new_cell(self, holding: Holding) -> "ValueCell[T]":
        return ValueCell(self, holding)


class ValueCell(Generic[T]):
    """The value as one instance sees it."""

    __slots__ = ("_declaration", "_holding")

    def __init__(self, declaration: ValueState[T], holding: Holding) -> None:
        self._declaration = declaration
        self._holding = holding

    def get(self) -> T:
        """The partial value of this instance alone; do not keep a mutable one beyond the current message."""
        return cast(T, self._holding.own)

    def set(self, value: T) -> None:
        """Replace the partial value of this instance (what other instances hold stays); `value` is handed over."""
        self._holding.own = value

    def clear(self) -> None:
        """Back to the default (what other instances hold stays)."""
        self._holding.own = self._declaration.identity()

    def add(self, value: T) -> None:
        """Combine `value` into the partial value of this instance; `value` is handed over."""
        holding = self._holding
        holding.own = self._declaration.combine(holding.own, value)
        # The result is checked, not the argument: max with default 0 is sound although it does not keep -5.
        if holding.law_checks_left:
            self._declaration.check(holding, holding.own)

    def read(self) -> T:
        """A copy of the best known whole: the replicated base, if there is one, combined with the partial value."""
        own = private_copy(self._holding.own)
        if self._holding.base is MISSING:
            return cast(T, own)
        return cast(T, self._declaration.combine(private_copy(self._holding.base), own))

    def __repr__(self) -> str:
        return f"ValueCell({self._holding.name!r}, {self._holding.own!r})"
