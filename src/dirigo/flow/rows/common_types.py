"""One type for columns of several: the narrowest that holds the values of both as they are, if there is one."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from dirigo.flow.errors import FlowError

_SIGNED: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED: Final = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS: Final = (pa.float16(), pa.float32(), pa.float64())
_WHOLE_BITS: Final = {16: 11, 32: 24, 64: 53}  # of a float: whole numbers of so many bits are exact in it
_UNITS: Final = ("s", "ms", "us", "ns")
_TEXTS: Final = (pa.string_view(), pa.string(), pa.large_string())
_BYTES: Final = (pa.binary_view(), pa.binary(), pa.large_binary())
_DECIMAL_DIGITS: Final = 38


def common_schema(schema: pa.Schema, other: pa.Schema, what: str, *, widens: bool) -> pa.Schema:
    """The columns of two schemas, by name and in the order of the first, each with a type for both.

    `what` opens the sentence that refuses the first column that does not match. Without `widens`, the types must be
    those of the first.
    """
    for name in schema.names:
        if name not in other.names:
            raise FlowError(f"{what} has no column '{name}' like the others of the union; add it, or drop it from them.")
    for name in other.names:
        if name not in schema.names:
            raise FlowError(
                f"{what} has a column '{name}' that the others of the union do not have; drop it, or add it there."
            )
    return pa.schema([_common_field(field, other.field(field.name), what, widens) for field in schema])


def _common_field(field: pa.Field, other: pa.Field, what: str, widens: bool) -> pa.Field:
    kind = common_type(field.type, other.type)
    if kind is None or (kind != field.type and not widens):
        raise FlowError(
            f"{what} has the column '{field.name}' as {other.type} and the others of the union as {field.type}, "
            f"which does not hold all of its values; cast one of them: "
            f"with_columns({field.name}=dg.col('{field.name}').cast(...))."
        )
    if other.nullable and not field.nullable and not widens:
        raise FlowError(f"{what} may have nulls in the column '{field.name}', which the others of the union may not.")
    return pa.field(field.name, kind, field.nullable or other.nullable)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds all values of both without a loss; None if there is none."""
    if one == other:
        return one
    for kind, another in ((one, other), (other, one)):
        if pa.types.is_null(kind):
            return another
        if pa.types.is_dictionary(kind):
            return common_type(kind.value_type, another)
    for rule in (_among_texts, _among_numbers, _among_decimals, _among_times, _among_lists):
        found = rule(one, other)
        if found is not None:
            return found
    return None


def _among_texts(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    for family in (_TEXTS, _BYTES):
        if one in family and other in family:
            return max(one, other, key=family.index)
    return None


def _among_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    for family in (_SIGNED, _UNSIGNED, _FLOATS):
        if one in family and other in family:
            return max(one, other, key=family.index)
    for kind, another in ((one, other), (other, one)):
        if kind in _UNSIGNED and another in _SIGNED:
            wider = _SIGNED[_SIGNED.index(another) :]
            return next((each for each in wider if each.bit_width > kind.bit_width), None)
        if kind in (*_SIGNED, *_UNSIGNED) and another in _FLOATS:
            wider = _FLOATS[_FLOATS.index(another) :]
            bits = kind.bit_width - (kind in _SIGNED)
            return next((each for each in wider if _WHOLE_BITS[each.bit_width] >= bits), None)
    return None


def _among_decimals(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_decimal(one) and pa.types.is_decimal(other)):
        return None
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    return pa.decimal128(whole + scale, scale) if whole + scale <= _DECIMAL_DIGITS else None


def _among_times(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The finer unit. A value that is too far away for it is a bad row, never another time."""
    if pa.types.is_date(one) and pa.types.is_date(other):
        return pa.date64()
    for is_kind in (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_time):
        if not (is_kind(one) and is_kind(other)):
            continue
        unit = max(one.unit, other.unit, key=_UNITS.index)
        if is_kind is pa.types.is_duration:
            return pa.duration(unit)
        if is_kind is pa.types.is_time:
            return pa.time64(unit) if unit in ("us", "ns") else pa.time32(unit)
        if (one.tz is None) != (other.tz is None):
            return None  # whether the one without a zone is in UTC is for the user to say
        return pa.timestamp(unit, one.tz if one.tz == other.tz else "UTC")
    return None


def _among_lists(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    families: tuple[tuple[Any, Any], ...] = ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list))
    for is_kind, of in families:
        if is_kind(one) and is_kind(other):
            kind = common_type(one.value_type, other.value_type)
            return None if kind is None else of(kind)
    return None
