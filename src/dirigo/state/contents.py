"""Owns the record of what one instance holds of one state; must not know how values are combined or shown."""

from dataclasses import dataclass
from typing import Any

from dirigo.state.values.missing import MISSING

# Checking the identity law doubles the cost of a combine, and a wrong default shows at the first few values.
LAW_CHECKS_PER_STATE = 16


@dataclass(slots=True)
class Holding:
    """The partial value of one state at one instance, and the base it may read but never sends back."""

    name: str
    own: Any
    base: Any = MISSING
    law_checks_left: int = LAW_CHECKS_PER_STATE

    def spend_law_checks(self, wanted: int) -> int:
        """How many of the wanted checks may still be made; they count as made."""
        granted = min(wanted, self.law_checks_left)
        self.law_checks_left -= granted
        return granted
