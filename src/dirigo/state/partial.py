"""Owns the container of a partial state on its way from a lessee to the lessor, and of a view on its way back.

Must not know how values are combined, encoded or sent.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from dirigo.state.values.frozen_form import freeze_pairs


@dataclass(frozen=True, slots=True, eq=False)
class NamedValues:
    """Values by the name of their state; to be read only, by contract."""

    values: Mapping[str, Any]

    def freeze(self) -> Hashable:
        """The canonical hashable form."""
        return freeze_pairs(self.values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.freeze() == other.freeze()

    def __hash__(self) -> int:
        return hash(self.freeze())

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Partial(NamedValues):
    """What one instance added since its last take(): only the states that are not at their identity."""


@dataclass(frozen=True, slots=True, eq=False)
class StateView(NamedValues):
    """The consolidated values of the replicated states at the lessor, for its lessees to read."""
