"""The exchange rate of q1 and q14."""

from __future__ import annotations

from decimal import Decimal

from dirigo import Expression, col

EUROS_PER_DOLLAR = Decimal("0.908")


def in_euros(column: str) -> Expression:
    """A whole number of dollars in euros, as an exact decimal with three places."""
    return col(column) * EUROS_PER_DOLLAR
