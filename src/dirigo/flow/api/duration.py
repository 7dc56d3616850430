"""Lengths of time as users write them: "200ms", "10s", "1h30m" or a timedelta, and whole milliseconds inside Dirigo."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import Final, TypeAlias

from dirigo.flow.errors import FlowError

Duration: TypeAlias = str | timedelta

_UNIT_MS: Final[dict[str, int | Fraction]] = {
    "us": Fraction(1, 1_000),
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(us|ms|min|s|m|h|d)(?![a-z])", re.ASCII)
_COMPACT_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def milliseconds(value: Duration, what: str) -> int:
    """The whole milliseconds of a duration; `what` names the setting in the error, for example "window size"."""
    exact = _exact_ms(value, what)
    if exact.denominator != 1:
        raise FlowError(f"{what}: {_shown(value)} is not a whole number of milliseconds; round it, for example to '1ms'.")
    return int(exact)


def seconds(value: Duration, what: str) -> float:
    """As `milliseconds`, for settings that may be shorter than that: "50us" is 0.00005."""
    return float(_exact_ms(value, what) / 1_000)


def positive_milliseconds(value: Duration, what: str) -> int:
    """As `milliseconds`, for settings where no time at all makes no sense."""
    result = milliseconds(value, what)
    if result == 0:
        raise FlowError(f"{what}: {_shown(value)} is no time at all; give a duration above zero, for example '10s'.")
    return result


def format_milliseconds(ms: int) -> str:
    """The shortest text that `milliseconds` reads back as `ms`: 5400000 is "1h30m"."""
    if ms < 0:
        return "-" + format_milliseconds(-ms)
    parts = []
    rest = ms
    for unit, size in _COMPACT_UNITS:
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0s"


def _exact_ms(value: Duration, what: str) -> Fraction:
    if isinstance(value, timedelta):
        exact = Fraction(value // timedelta(microseconds=1), 1_000)
    elif isinstance(value, str):
        exact = _parse(value, what)
    else:
        raise FlowError(f"{what}: {value!r} is not a duration; say the unit, for example '10s'.")
    if exact < 0:
        raise FlowError(f"{what}: {_shown(value)} is negative; give a duration of zero or more.")
    return exact


def _parse(text: str, what: str) -> Fraction:
    stripped = text.strip()
    negative = stripped.startswith("-")
    body = stripped.removeprefix("-").lower()
    total = Fraction(0)
    position = 0
    while match := _PART.match(body, position):
        total += Fraction(match[1]) * _UNIT_MS[match[2]]
        position = match.end()
    if position == 0 or position != len(body):
        hint = "say the unit, for example '10s'" if _is_number(body) else "write it like '200ms', '10s', '1.5h' or '1h30m'"
        raise FlowError(f"{what}: {text!r} is not a duration; {hint}.")
    return -total if negative else total


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*", text, re.ASCII) is not None


def _shown(value: Duration) -> str:
    return repr(value) if isinstance(value, str) else str(value)
