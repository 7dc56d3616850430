"""Rates as users write them: "200/s", "50k/s", "1.5M/s" or a number, and rows per second inside Dirigo."""

from __future__ import annotations

import math
import re
from typing import Final, TypeAlias

from dirigo.flow.errors import FlowError

Rate: TypeAlias = str | float

_RATE: Final = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([kKM]?)\s*/\s*s\s*", re.ASCII)
_FACTOR: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}


def rows_per_second(value: Rate, what: str) -> float:
    """The rows per second of a rate, perhaps zero; `what` names the setting in the error, for example "SLO throughput"."""
    rate = _read(value, what)
    if not 0 <= rate < math.inf:
        raise FlowError(f"{what}: {value!r} is not a rate that can be met; give one of zero or more.")
    return rate


def positive_rows_per_second(value: Rate, what: str) -> float:
    """As `rows_per_second`, for settings where no rows at all make no sense."""
    rate = _read(value, what)
    if not 0 < rate < math.inf:
        raise FlowError(f"{what}: {value!r} is not a rate that can be met; give one above zero.")
    return rate


def _read(value: Rate, what: str) -> float:
    if isinstance(value, str):
        match = _RATE.fullmatch(value)
        rate = float(match[1]) * _FACTOR[match[2]] if match else None
    else:
        rate = float(value) if is_number(value) else None
    if rate is None:
        raise FlowError(f"{what}: {value!r} is not a rate; write it like '200/s', '50k/s' or '1.5M/s'.")
    return rate


def is_number(value: object) -> bool:
    """Whether a user gave a number. A bool does not count as one."""
    return isinstance(value, int | float) and not isinstance(value, bool)
