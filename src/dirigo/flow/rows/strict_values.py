"""Python values as Arrow arrays without guessing: no text for numbers, no fractions cut off, no times without their zone."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

_NONE: Final = type(None)
# Classes whose instances also are instances of an accepted class, but mean something else.
_IMPOSTORS: Final[dict[type, type]] = {bool: int, datetime: date}
_CONVERSION_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


def strict_array(values: Sequence[Any], field: pa.Field) -> pa.Array | None:
    """The values as an array of the field's type; None if one of them does not fit."""
    kind = field.type
    kinds = set(map(type, values))
    if not field.nullable and _NONE in kinds:
        return None
    if not all(_accepts(kind, given) for given in kinds):
        return None
    if types.is_timestamp(kind) and not _zones_fit(values, kind):
        return None
    try:
        array = pa.array(values, kind)
    except _CONVERSION_ERRORS:
        return None
    return array if isinstance(array, pa.Array) else None


def misfit(value: Any, field: pa.Field) -> str | None:
    """Why a value does not fit a column, or None if it does."""
    if strict_array([value], field) is not None:
        return None
    if value is None:
        return f"the field {field.name!r} is None, but the column allows no nulls."
    kind = field.type
    if types.is_timestamp(kind) and isinstance(value, datetime):
        advice = "must have a time zone, for example tzinfo=UTC" if kind.tz else "must not have a time zone"
        return f"the field {field.name!r} is {value.isoformat()}, but times of this column {advice}."
    return f"the field {field.name!r} is {reprlib.repr(value)} ({type(value).__name__}), but the column is {kind}."


@lru_cache(maxsize=4096)
def _accepts(kind: pa.DataType, given: type) -> bool:
    if given is _NONE:
        return True
    accepted = _accepted_classes(kind)
    if accepted is None:
        return True  # Nested and rare types: Arrow's own judgement has to do.
    if any(issubclass(given, impostor) and original in accepted for impostor, original in _IMPOSTORS.items()):
        return False
    return issubclass(given, accepted)


def _accepted_classes(kind: pa.DataType) -> tuple[type, ...] | None:
    if types.is_dictionary(kind):
        return _accepted_classes(kind.value_type)
    if types.is_integer(kind):
        return (int, np.integer)
    if types.is_floating(kind):
        return (float, int, np.floating, np.integer)
    if types.is_decimal(kind):
        return (Decimal, int)
    if types.is_boolean(kind):
        return (bool, np.bool_)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return (str,)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return (bytes, bytearray, memoryview)
    return _accepted_time_classes(kind)


def _accepted_time_classes(kind: pa.DataType) -> tuple[type, ...] | None:
    if types.is_timestamp(kind):
        return (datetime,)
    if types.is_date(kind):
        return (date,)
    if types.is_time(kind):
        return (time,)
    if types.is_duration(kind):
        return (timedelta,)
    return None


def _zones_fit(values: Sequence[Any], kind: pa.DataType) -> bool:
    if kind.tz is None:
        return all(value is None or value.tzinfo is None for value in values)
    return all(value is None or value.tzinfo is not None for value in values)
