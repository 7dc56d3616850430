"""What users hand to the methods of streams, understood or refused with one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

import pyarrow as pa

from dirigo.flow.aggregates.base import Aggregate
from dirigo.flow.api.duration import milliseconds
from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.windows import PaneWindows, Sliding, Tumbling
from dirigo.flow.expressions.node import Alias, Column, Expression, as_expression
from dirigo.flow.rows.row import Row, batch_of
from dirigo.flow.rows.schema import SchemaLike, as_schema


def require_function(function: Any, name: str, of: str) -> None:
    """Refuse what cannot be called."""
    if not callable(function):
        raise FlowError(f"{name}: takes a function {of}, not {function!r}.")


def require_condition(condition: Any, name: str) -> Callable[[Row], Any]:
    """A condition that is no expression: a function of a row."""
    if not callable(condition):
        raise FlowError(f"{name}: takes an expression such as col('price') > 10, or a function of a row, not {condition!r}.")
    return condition  # type: ignore[no-any-return]


def named_columns(positional: Sequence[Any], named: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Columns by the name that they get: names stand for themselves, expressions have one or are given one."""
    columns: dict[str, Any] = {}
    for value in positional:
        if not isinstance(value, str | Expression):
            raise FlowError(f"{what}: takes names of columns and expressions, not {value!r}.")
        name = value if isinstance(value, str) else value.name
        if name is None:
            raise FlowError(f"{what}: '{value}' has no name; write ({value}).alias('...'), or name=...")
        if name in columns:
            raise FlowError(f"{what}: the column '{name}' is named twice; name it once.")
        columns[name] = value
    for name in set(columns) & set(named):
        raise FlowError(f"{what}: the column '{name}' is named twice; name it once.")
    return {**columns, **named}


def named_aggregates(positional: Sequence[Any], named: Mapping[str, Any], what: str) -> dict[str, Aggregate]:
    """Aggregates by the name of their column."""
    given: list[tuple[str, Any]] = []
    for each in positional:
        if isinstance(each, Mapping):
            given += each.items()
        elif isinstance(each, Aggregate) and each.name is not None:
            given.append((each.name, each))
        else:
            raise FlowError(f"{what}: {each!r} has no name; write {each!r}.alias('...'), or name=...")
    aggregates: dict[str, Aggregate] = {}
    for name, each in [*given, *named.items()]:
        if name in aggregates:
            raise FlowError(f"{what}: the column '{name}' is given twice; give it once.")
        aggregates[name] = each
    return aggregates


def as_column(value: Any) -> Expression | str:
    """A string names a column, and so does ``col``; anything else that is no expression is a constant."""
    source = value.operands[0] if isinstance(value, Alias) else value
    if isinstance(source, Column):
        return str(source)
    return value if isinstance(value, str) else as_expression(value)


def join_windows(window: Any, name: str) -> PaneWindows:
    """The windows that a join can work with."""
    if not isinstance(window, Tumbling | Sliding) or window.time != "event":
        raise FlowError(f"{name}: a join takes tumbling or sliding windows of event time, not {window}.")
    return window


def within_ms(within: Any, name: str) -> tuple[int, int]:
    """How long before and how long after, in milliseconds."""
    if isinstance(within, str) or not isinstance(within, Sequence) or len(within) != 2:
        raise FlowError(
            f"{name}: within takes two durations, how long before and how long after, such as ('5s', '10s'), not {within!r}."
        )
    before, after = (milliseconds(each, f"{name}: within") for each in within)
    return before, after


def key_pairs(on: Any, name: str) -> tuple[list[str], list[str]]:
    """The key columns on the left and on the right."""
    if isinstance(on, str):
        return [on], [on]
    if isinstance(on, Mapping):
        return list(on), list(on.values())
    if not isinstance(on, Sequence):
        raise FlowError(f"{name}: on= names the key columns, such as 'id' or {{'seller': 'id'}}, not {on!r}.")
    return list(on), list(on)


def returned_schema(function: Callable[[Row], Any], schema: SchemaLike | None, name: str) -> pa.Schema:
    """The columns of what a function returns: as they are given, or as it is annotated."""
    if schema is not None:
        return as_schema(schema, name)
    try:
        annotation = get_type_hints(function).get("return")
    except Exception:  # a function without usable annotations has none
        annotation = None
    if not isinstance(annotation, type) or not hasattr(annotation, "__annotations__"):
        raise FlowError(f"{name}: say which columns the function returns, for example schema={{'price': int}}.")
    return as_schema(annotation, name)


def table_as_batch(table: Any, name: str) -> pa.RecordBatch:
    """A bounded table as one batch."""
    if isinstance(table, pa.RecordBatch):
        return table
    if not isinstance(table, pa.Table):
        try:
            table = pa.Table.from_pylist([dict(row) for row in table])
        except Exception as error:
            raise FlowError(f"{name}: takes an Arrow table or a list of dicts ({type(error).__name__}: {error}).") from error
    if not table.num_columns:
        raise FlowError(f"{name}: the table has no columns; give an Arrow table if there may be no rows.")
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else batch_of([], table.schema)
