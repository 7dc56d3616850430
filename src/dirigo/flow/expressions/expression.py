"""Expressions over the columns of a stream: how to write them, and which type their values have."""

from __future__ import annotations

import re

import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.cases import Cases, when
from dirigo.flow.expressions.node import Alias, Call, Expression, as_expression, casts_of, col, lit
from dirigo.flow.expressions.udf import FunctionCall, udf
from dirigo.flow.rows.schema import require_columns

__all__ = ["Cases", "Expression", "as_expression", "casts_of", "col", "lit", "type_of", "udf", "when"]


def type_of(expression: Expression, schema: pa.Schema, what: str) -> pa.DataType:
    """The type of the expression's values for rows of that schema, found by computing it for no rows at all."""
    require_columns(schema, sorted(expression.columns), what)
    fields = [schema.field(name) for name in sorted(expression.columns)]
    batch = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in fields], schema=pa.schema(fields))
    try:
        return expression.evaluate(batch).type
    except FlowError as error:
        raise FlowError(f"{what}: {error}") from None
    except Exception as error:
        culprit = _innermost_failure(expression, batch)
        raise FlowError(f"{what}: '{culprit}' cannot be computed: {_reason(error)}.") from error


def _innermost_failure(expression: Expression, batch: pa.RecordBatch) -> Expression:
    """The smallest part of a failing expression that fails by itself."""
    if isinstance(expression, Alias | Call | FunctionCall):
        for operand in expression.operands:
            try:
                operand.evaluate(batch)
            except Exception:
                return _innermost_failure(operand, batch)
    return expression


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    if match := re.search(r"no kernel matching input types \((.*)\)", text):
        return f"this operation does not exist for {match[1]}"
    return text if isinstance(error, pa.ArrowException) else f"{type(error).__name__}: {text}"
