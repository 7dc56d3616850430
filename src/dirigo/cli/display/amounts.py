"""Amounts as people read and write them on a terminal: bytes, counts, lengths of time."""

from __future__ import annotations

import re

from dirigo.runtime.errors import ControlError

NOTHING = "-"
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?i?)b?", re.IGNORECASE | re.ASCII)
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_TIMES = (("y", 365 * 86_400), ("d", 86_400), ("h", 3_600), ("m", 60))


def bytes_of(text: str, option: str) -> int:
    """The bytes of "64MB", "1.5 GiB" or "4096"."""
    match = _BYTES.fullmatch(text.strip())
    if match is None or match[2].lower() not in _SIZES:
        raise ControlError(f"{option}: '{text}' is no amount of memory; write it like 64MB or 1GiB.")
    number = int(float(match[1]) * _SIZES[match[2].lower()])
    if number < 1:
        raise ControlError(f"{option}: '{text}' lets nothing run; give 1kB or more.")
    return number


def shown_bytes(number: float) -> str:
    """At most 7 characters."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 99.95 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def shown_count(number: float | None) -> str:
    """At most 5 characters."""
    if number is None:
        return NOTHING
    if number < 10 and number != int(number):
        return f"{number:.1f}"
    for unit in ("", "k", "M", "G"):
        if number < 999.5:
            return f"{number:.0f}{unit}" if not unit or number >= 99.95 else f"{number:.1f}{unit}"
        number /= 1000
    return f"{number:.1f}T"


def shown_seconds(seconds: float | None) -> str:
    """At most 6 characters: two units, the smaller one left out where it does not matter."""
    if seconds is None:
        return NOTHING
    if seconds < 0:
        return f"-{shown_seconds(-seconds)}"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    rest = round(seconds)
    for number, (unit, size) in enumerate(_TIMES):
        if rest >= size:
            whole, rest = divmod(rest, size)
            smaller, smaller_size = _TIMES[number + 1] if number + 1 < len(_TIMES) else ("s", 1)
            part = rest // smaller_size
            return f"{whole}{unit}{part:02d}{smaller}" if unit in ("h", "m") else f"{whole}{unit}"
    return f"{rest}s"


def shown_latency(milliseconds: float | None) -> str:
    """At most 6 characters."""
    if milliseconds is None:
        return NOTHING
    if milliseconds < 9.95:
        return f"{milliseconds:.1f}ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f}ms"
    return shown_seconds(milliseconds / 1000)
