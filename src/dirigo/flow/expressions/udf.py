"""Plain Python functions of whole columns as expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.node import Binding, Expression, as_expression, broadcast


class FunctionCall(Expression):
    """A function of arrays. It is called once per batch and returns one value for each of its rows."""

    __slots__ = ("function", "operands", "text")

    def __init__(self, function: Callable[..., Any], operands: tuple[Expression, ...], name: str) -> None:
        self.function = function
        self.operands = operands
        self.name = name
        self.text = f"{name}({', '.join(map(str, operands))})"
        self.binding = Binding.ATOM
        self.columns = frozenset[str]().union(*(operand.columns for operand in operands))

    def value(self, batch: pa.RecordBatch) -> Any:
        result = self.function(*(operand.evaluate(batch) for operand in self.operands))
        if isinstance(result, pa.Scalar):
            return result
        array = broadcast(result, batch.num_rows) if isinstance(result, pa.Array | pa.ChunkedArray) else pa.array(result)
        if len(array) != batch.num_rows:
            raise FlowError(
                f"The function of '{self}' returned {len(array)} values for {batch.num_rows} rows; return one each."
            )
        return array

    def __str__(self) -> str:
        return self.text


def udf(fn: Callable[..., Any], *expressions: Any, name: str | None = None) -> Expression:
    """What `fn` returns for the values of the expressions: it gets pyarrow arrays and returns one, or a numpy array."""
    if not callable(fn):
        raise FlowError(f"function: {fn!r} cannot be called; give a function of arrays.")
    shown = name if name is not None else str(getattr(fn, "__name__", type(fn).__name__))
    return FunctionCall(fn, tuple(as_expression(expression) for expression in expressions), shown)
