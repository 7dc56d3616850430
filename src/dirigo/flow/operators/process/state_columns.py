"""States of a user's function as columns. Their types are those that were declared, so they do not depend on what is held.

A type that Arrow has no column for (a plain ``list``, ``dict`` or ``tuple``, a class of the user's) is shown as text.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.schema import as_type
from dirigo.flow.rows.strict_values import strict_array
from dirigo.state import Declaration, ListState, MapState, ValueState

_FINER: Final[dict[Any, pa.DataType]] = {datetime: pa.timestamp("us", "UTC"), timedelta: pa.duration("us")}


def type_of_state(declaration: Declaration) -> pa.DataType:
    """The type of the column of a state."""
    if isinstance(declaration, MapState):
        return pa.map_(_type_of(declaration.key_type)[0], _type_of(declaration.value_type)[0])
    if isinstance(declaration, ListState):
        return pa.list_(_type_of(declaration.type_)[0])
    assert isinstance(declaration, ValueState)
    return _type_of(declaration.type_)[0]


def told_state(declaration: Declaration) -> str:
    """What a state holds, in a line."""
    if isinstance(declaration, MapState):
        kinds: tuple[Any, ...] = (declaration.key_type, declaration.value_type)
    else:
        assert isinstance(declaration, ListState | ValueState)
        kinds = (declaration.type_,)
    types = ", ".join(kind.__name__ if isinstance(kind, type) else str(kind) for kind in kinds)
    return f"{type(declaration).__name__}({types})"


def column_of_state(declaration: Declaration, values: Sequence[Any], what: str) -> pa.Array:
    """Values of a state as a column; ``what`` names the state where they are none."""
    kind, shown = type_of_state(declaration), _shown_values(declaration, values)
    column = _column(shown, kind)
    if column is not None:
        return column
    misfit = next(value for value, each in zip(values, shown, strict=True) if _column([each], kind) is None)
    raise FlowError(
        f"{what} holds {reprlib.repr(misfit)}, which does not fit its declaration, that is {kind}; declare the type of its "
        "values, or object to read them as text."
    )


def _column(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """The values as a column; None if one does not fit. Items of lists and maps are looked at: Arrow cuts fractions off."""
    if pa.types.is_map(kind):
        pairs = [pair for value in values for pair in value]
        parts = [([key for key, _ in pairs], kind.key_type), ([item for _, item in pairs], kind.item_type)]
    else:
        parts = (
            [([item for value in values if isinstance(value, list | tuple) for item in value], kind.value_type)]
            if pa.types.is_list(kind)
            else []
        )
    if any(strict_array(items, pa.field("item", each)) is None for items, each in parts):
        return None
    return strict_array(values, pa.field("state", kind))


def _shown_values(declaration: Declaration, values: Sequence[Any]) -> list[Any]:
    if isinstance(declaration, MapState):
        keys_are_text, items_are_text = _type_of(declaration.key_type)[1], _type_of(declaration.value_type)[1]
        return [
            [(_shown(key, keys_are_text), _shown(item, items_are_text)) for key, item in value.items()] for value in values
        ]
    assert isinstance(declaration, ListState | ValueState)
    is_text = _type_of(declaration.type_)[1]
    if isinstance(declaration, ListState):
        return [[_shown(item, is_text) for item in value] for value in values]
    return [_shown(value, is_text) for value in values]


def _type_of(like: Any) -> tuple[pa.DataType, bool]:
    """The type of a column, and whether values become text for it."""
    try:
        return _FINER.get(like) or as_type(like, "a state"), False
    except (FlowError, TypeError):  # the latter of what has no hash
        return pa.string(), True


def _shown(value: Any, is_text: bool) -> Any:
    if value is None:
        return None
    if is_text:
        return repr(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value
