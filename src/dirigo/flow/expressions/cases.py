"""A value chosen by conditions: when(condition, value).when(condition, value).otherwise(value)."""

from __future__ import annotations

from typing import Any

from dirigo.flow.expressions import kernels
from dirigo.flow.expressions.node import Call, Expression, as_expression
from dirigo.flow.expressions.unfinished import Unfinished


class Cases(Unfinished):
    """Conditions and their values so far; `otherwise` makes them an expression."""

    __slots__ = ("_branches",)

    def __init__(self, branches: tuple[tuple[Expression, Expression], ...]) -> None:
        self._branches = branches

    def when(self, condition: Any, value: Any) -> Cases:
        """The value where this condition holds and none before did."""
        return Cases((*self._branches, (as_expression(condition), as_expression(value))))

    def otherwise(self, value: Any) -> Expression:
        """The value where no condition holds; unknown conditions do not hold."""
        conditions = [condition for condition, _ in self._branches]
        values = [chosen for _, chosen in self._branches]
        default = as_expression(value)
        return Call(kernels.choose, (*conditions, *values, default), text=f"{self._text()}.otherwise({default})")

    def __str__(self) -> str:
        return f"'{self._text()}' does not say what holds otherwise; end it with .otherwise(...)"

    def _text(self) -> str:
        return ".".join(f"when({condition}, {chosen})" for condition, chosen in self._branches)


def when(condition: Any, value: Any) -> Cases:
    """The value where the condition holds; go on with `.when(...)` and end with `.otherwise(...)`."""
    return Cases(()).when(condition, value)
