"""Owns what every state declaration can do: combine, copy and freeze its values, and act as a descriptor.

Must not know how many instances exist, when partial states move, or how they are encoded.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from datetime import timedelta
from typing import Any, Never, Self, TypeAlias

from dirigo.state.contents import Holding
from dirigo.state.errors import StateError
from dirigo.state.laws import uncombinable

BOUND_ATTRIBUTE = "_dirigo_state_set"

Span: TypeAlias = str | timedelta


class Declaration(ABC):
    """What one state is: its identity and how two partial values of it become one.

    A declaration is never changed after the class that declares it is made, and is shared by all instances.
    """

    replicated: bool
    ttl: Span | None  # how long a value lives that is not written any more; in the words of whoever keeps the time
    ttl_time: str | None  # and by which of its times
    combine: Any = None  # lists have none: they are appended
    _attribute_name: str | None = None

    # --- the algebra of the values, used by StateSet ---

    @abstractmethod
    def identity(self) -> Any:
        """A fresh value that changes nothing when combined; never the same mutable object twice."""

    @abstractmethod
    def is_identity(self, value: Any) -> bool:
        """Whether `value` may stay behind when the partial state moves."""

    @abstractmethod
    def check(self, holding: Holding, incoming: Any) -> None:
        """Raise CombineError if `incoming` shows that the declaration breaks the identity law."""

    @abstractmethod
    def merged(self, own: Any, incoming: Any) -> Any:
        """Both combined; `own` may be changed for it, `incoming` is neither changed nor shared."""

    def merge(self, holding: Holding, incoming: Any) -> None:
        """Combine `incoming` into what is held."""
        holding.own = self.merged(holding.own, incoming)

    @abstractmethod
    def copy(self, value: Any) -> Any:
        """A copy of `value` that shares nothing mutable with it."""

    @abstractmethod
    def freeze(self, value: Any) -> Hashable:
        """The canonical hashable form of `value`."""

    @abstractmethod
    def new_cell(self, holding: Holding) -> Any:
        """What user code works with."""

    @property
    def combines(self) -> bool:
        """Whether partial values of several instances can be put together."""
        return self.combine is not uncombinable

    # --- the descriptor, used by classes that declare states as attributes ---

    def __set_name__(self, owner: type, name: str) -> None:
        if self._attribute_name not in (None, name):
            raise StateError(
                f"State '{name}' of {owner.__name__} is the same declaration as state '{self._attribute_name}'; "
                f"write a declaration of its own for each state."
            )
        self._attribute_name = name

    def __set__(self, instance: object, value: Never) -> None:
        raise StateError(
            f"State '{self._attribute_name}' cannot be assigned; change it through its methods, "
            f"for example self.{self._attribute_name}.{self.change_example}."
        )

    change_example: str = "clear()"

    def _cell_of(self, instance: object) -> Any:
        """The cell in an object, or the error that says why there is none."""
        name = self._attribute_name
        state_set = getattr(instance, BOUND_ATTRIBUTE, None)
        if state_set is None or name is None:
            raise StateError(
                f"State '{name}' of this {type(instance).__name__} is not available yet; "
                f"call bind(obj, state_set) before using it."
            )
        return state_set.cell(name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copied instance still has the states that its class declares
