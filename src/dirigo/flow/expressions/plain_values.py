"""Checks of the plain values that users hand to expressions, and how those are shown."""

from __future__ import annotations

import numbers
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.errors import FlowError


def literal_type(value: Any) -> pa.DataType | None:
    """Milliseconds where they are exact, so that a literal does not change the type of a column of milliseconds."""
    if isinstance(value, datetime) and value.microsecond % 1_000 == 0:
        return pa.timestamp("ms", None if value.tzinfo is None else "UTC")
    if isinstance(value, timedelta) and value.microseconds % 1_000 == 0:
        return pa.duration("ms")
    return None


def literal_text(value: Any) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, numbers.Number | timedelta) else repr(value)


def text_argument(value: Any, method: str) -> str:
    if not isinstance(value, str):
        raise FlowError(f"{method}: {value!r} is not a text; give a str.")
    return value


def check_index(value: Any, method: str, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FlowError(f"{method}: the {what} {value!r} is not a number from 0 on.")


def check_pattern(pattern: Any, method: str) -> None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern=text_argument(pattern, method))
    except pa.ArrowInvalid as error:
        raise FlowError(f"{method}: {pattern!r} is not a regular expression that RE2 accepts ({error}).") from None
