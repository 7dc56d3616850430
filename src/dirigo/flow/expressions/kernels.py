"""What each operator and method of an expression computes, for Arrow arrays.

At least one argument of every kernel is an array; the others may be scalars. Kernels are plain functions of a module, so
that an expression can be sent to another process.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

# Scalars are made with their type, once: to infer one, Arrow looks for pandas again at every call, which takes 0.1 ms.
_NO_SEPARATOR: Final = pa.scalar("", pa.string())
_UNKNOWN: Final = pa.scalar(None, pa.bool_())
_FIRST: Final = pa.scalar(0, pa.int64())

# The coarsest clock unit that still gives the same text: times that share it need to be formatted only once.
_DAY_DIRECTIVES: Final = frozenset("aAbBCdDeFgGhjmuUVwWxyY")
_HOUR_DIRECTIVES: Final = _DAY_DIRECTIVES | frozenset("HIpzZ")
_MINUTE_DIRECTIVES: Final = _HOUR_DIRECTIVES | frozenset("MR")


def _is_text(value: Any) -> bool:
    kind = value.type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _plain(value: Any) -> Any:
    """Text kernels of Arrow do not read dictionary-encoded arrays."""
    return value.dictionary_decode() if types.is_dictionary(value.type) else value


def _as_double(value: Any) -> Any:
    # Not safe: an integer beyond 2**53 becomes the nearest double, as in Python.
    return value if types.is_float64(value.type) else pc.cast(value, pa.float64(), safe=False)


def add(left: Any, right: Any) -> Any:
    left, right = _plain(left), _plain(right)
    if _is_text(left) and _is_text(right):
        if left.type == right.type == pa.string():
            return pc.binary_join_element_wise(left, right, _NO_SEPARATOR)
        # Arrow joins text of one type only; the literal beside a large text is a small one.
        large = (pc.cast(part, pa.large_string()) for part in (left, right, _NO_SEPARATOR))
        return pc.binary_join_element_wise(*large)
    return pc.add_checked(left, right)


def subtract(left: Any, right: Any) -> Any:
    return pc.subtract_checked(left, right)


def multiply(left: Any, right: Any) -> Any:
    return pc.multiply_checked(left, right)


def divide(left: Any, right: Any) -> Any:
    return pc.divide(_as_double(left), _as_double(right))


def modulo(left: Any, right: Any) -> Any:
    return pc.modulo(left, right)


def floor_divide(left: Any, right: Any) -> Any:
    # What is left after taking the remainder away is a multiple of the divisor, so that the quotient is exact.
    quotient = pc.divide(pc.subtract_checked(left, pc.modulo(left, right)), right)
    return quotient if types.is_integer(quotient.type) else pc.round(quotient)


def equal(left: Any, right: Any) -> Any:
    return pc.equal(left, right)


def not_equal(left: Any, right: Any) -> Any:
    return pc.not_equal(left, right)


def less(left: Any, right: Any) -> Any:
    return pc.less(left, right)


def less_equal(left: Any, right: Any) -> Any:
    return pc.less_equal(left, right)


def greater(left: Any, right: Any) -> Any:
    return pc.greater(left, right)


def greater_equal(left: Any, right: Any) -> Any:
    return pc.greater_equal(left, right)


def both(left: Any, right: Any) -> Any:
    return pc.and_kleene(left, right)


def either(left: Any, right: Any) -> Any:
    return pc.or_kleene(left, right)


def invert(value: Any) -> Any:
    return pc.invert(value)


def negate(value: Any) -> Any:
    return pc.negate_checked(value)


def absolute(value: Any) -> Any:
    return pc.abs_checked(value)


def is_null(value: Any) -> Any:
    return pc.is_null(value)


def is_not_null(value: Any) -> Any:
    return pc.is_valid(value)


def fill_null(value: Any, replacement: Any) -> Any:
    if isinstance(replacement, pa.Scalar) and replacement.type != value.type:
        # A plain 0 should not turn a narrow column into a wide one.
        with suppress(pa.ArrowException):
            replacement = replacement.cast(value.type)
    return pc.coalesce(value, replacement)


def cast(value: Any, kind: pa.DataType) -> Any:
    return pc.cast(value, kind, safe=not types.is_floating(kind))


def between(value: Any, low: Any, high: Any) -> Any:
    return pc.and_kleene(pc.greater_equal(value, low), pc.less_equal(value, high))


def is_in(value: Any, choices: pa.Array) -> Any:
    found = pc.is_in(value, value_set=choices)
    # As with the comparisons, the answer for an unknown value is unknown.
    return pc.if_else(pc.is_valid(value), found, _UNKNOWN) if value.null_count else found


def lower(value: Any) -> Any:
    return pc.utf8_lower(_plain(value))


def upper(value: Any) -> Any:
    return pc.utf8_upper(_plain(value))


def length(value: Any) -> Any:
    value = _plain(value)
    kind = value.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pc.cast(pc.list_value_length(value), pa.int64())
    measure = pc.utf8_length if _is_text(value) else pc.binary_length
    return pc.cast(measure(value), pa.int64())


def contains(value: Any, part: str) -> Any:
    return pc.match_substring(_plain(value), pattern=part)


def starts_with(value: Any, part: str) -> Any:
    return pc.starts_with(_plain(value), pattern=part)


def ends_with(value: Any, part: str) -> Any:
    return pc.ends_with(_plain(value), pattern=part)


def matches(value: Any, pattern: str) -> Any:
    return pc.match_substring_regex(_plain(value), pattern=pattern)


def extract(value: Any, pattern: str) -> Any:
    """The only group of the pattern."""
    return pc.struct_field(pc.extract_regex(_plain(value), pattern=pattern), [0])


def split_part(value: Any, separator: str, index: int) -> Any:
    parts = pc.split_pattern(_plain(value), pattern=separator, max_splits=index + 1)
    # The slice of one element is padded with null where the text has fewer parts.
    return pc.list_element(pc.list_slice(parts, index, index + 1, return_fixed_size_list=True), _FIRST)


def count_of(value: Any, part: str) -> Any:
    return pc.cast(pc.count_substring(_plain(value), pattern=part), pa.int64())


def replace(value: Any, old: str, new: str) -> Any:
    return pc.replace_substring(_plain(value), pattern=old, replacement=new)


def hour(value: Any) -> Any:
    return pc.hour(value)


def minute(value: Any) -> Any:
    return pc.minute(value)


def year(value: Any) -> Any:
    return pc.year(value)


def day_of_week(value: Any) -> Any:
    return pc.day_of_week(value)


def format_time(value: Any, text: str) -> Any:
    """Formats every distinct moment once: Arrow takes more than a microsecond for each."""
    kind = value.type
    if types.is_date(kind):
        distinct = value.dictionary_encode()
        return pc.take(pc.strftime(distinct.dictionary, format=text), distinct.indices)
    _require_times(value)
    unit, ms = _coarsest_unit(text)
    if kind.tz in (None, "UTC") and len(value) > value.null_count:
        floored = floor_time(value, ms)
        numbers = pc.cast(floored, pa.timestamp("ms")).view(pa.int64())
        first, last = pc.min_max(numbers).values()
        if (last.as_py() - first.as_py()) // ms < len(value):
            steps = pa.array(np.arange(first.as_py(), last.as_py() + 1, ms)).view(pa.timestamp("ms", kind.tz))
            indices = pc.divide(pc.subtract(numbers, first), pa.scalar(ms, pa.int64()))
            return pc.take(_formatted(steps, text), indices)
    else:
        floored = pc.floor_temporal(value, multiple=1, unit=unit)
    distinct = floored.dictionary_encode()
    return pc.take(_formatted(distinct.dictionary, text), distinct.indices)


def _coarsest_unit(text: str) -> tuple[str, int]:
    directives = set(re.findall(r"%[EO]?(.)", text)) - {"%"}
    if directives <= _DAY_DIRECTIVES:
        return "day", 86_400_000
    if directives <= _HOUR_DIRECTIVES:
        return "hour", 3_600_000
    if directives <= _MINUTE_DIRECTIVES:
        return "minute", 60_000
    return "second", 1_000


def _formatted(moments: Any, text: str) -> Any:
    # Whole seconds by type too, or Arrow would add a fraction to %S.
    return pc.strftime(pc.cast(moments, pa.timestamp("s", moments.type.tz)), format=text)


def floor_time(value: Any, ms: int) -> Any:
    """Multiples of the duration since the epoch, as windows are aligned, whatever the time zone of the column."""
    _require_times(value)
    kind = value.type
    per_ms = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}[kind.unit]
    if per_ms == 0:
        if ms % 1_000 == 0:
            step = ms // 1_000
        else:
            kind = pa.timestamp("ms", kind.tz)
            value, step = pc.cast(value, kind), ms
    else:
        step = ms * per_ms
    numbers = value.view(pa.int64())
    return pc.subtract(numbers, pc.modulo(numbers, pa.scalar(step, pa.int64()))).view(kind)


def _require_times(value: Any) -> None:
    if not types.is_timestamp(value.type):
        raise pa.ArrowTypeError(f"only times have this operation, and this is {value.type}")


def choose(*arguments: Any) -> Any:
    """Conditions, then their values, then the value when none holds."""
    count = len(arguments) // 2
    conditions, values = arguments[:count], arguments[count:]
    for condition in conditions:
        if not types.is_boolean(condition.type):
            raise pa.ArrowTypeError(f"a condition must be true or false, and this one is {condition.type}")
    known = next((value.type for value in values if not types.is_null(value.type)), None)
    if known is not None:
        # Arrow has no common type for an untyped null and anything else.
        values = tuple(pc.cast(value, known) if types.is_null(value.type) else value for value in values)
    try:
        return pc.case_when(pc.make_struct(*conditions), *values)
    except pa.ArrowNotImplementedError:
        kinds = ", ".join(str(value.type) for value in values)
        raise pa.ArrowTypeError(f"the values to choose from have no common type: {kinds}") from None
