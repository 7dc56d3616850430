"""What the columns of a stream are called and which types they have, from whatever a user finds handy to write."""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from dirigo.flow.errors import FlowError

SchemaLike: TypeAlias = pa.Schema | Mapping[str, Any] | type

_TYPES: Final[dict[Any, Any]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime: pa.timestamp("ms", "UTC"),
    date: pa.date32(),
    time: pa.time64("us"),
    timedelta: pa.duration("ms"),
    # Python's own default precision; it leaves room for the digits that a multiplication adds.
    Decimal: pa.decimal128(28, 9),
}
_ALIASES: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "string"),
    *("binary", "date32", "timestamp[ms, UTC]", "timestamp[ms]", "duration[ms]", "decimal(23, 3)", "list<int64>"),
)
_TIMESTAMP: Final = re.compile(r"timestamp\[(s|ms|us|ns)(?:\s*,\s*(?:tz\s*=\s*)?([^\]\s]+))?\]")
_DECIMAL: Final = re.compile(r"decimal(?:128)?\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_LIST: Final = re.compile(r"list<(?:item:\s*)?(.+)>")


_NAMES_ELSEWHERE = {
    "groupby": "key_by",
    "where": "filter",
    "withcolumn": "with_columns",
    "mean": "avg",
    "average": "avg",
    "countdistinct": "distinct",
    "hop": "Sliding",
    "tumble": "Tumbling",
    "writestream": "sink",
}


def as_schema(like: SchemaLike, what: str) -> pa.Schema:
    """The Arrow schema that `like` means; `what` opens the error message when it means none."""
    if isinstance(like, pa.Schema):
        schema = like
    elif isinstance(like, Mapping):
        schema = _schema_of_fields(like, what)
    elif isinstance(like, type) and (fields := _fields_of_class(like, what)) is not None:
        schema = _schema_of_fields(fields, what)
    else:
        raise FlowError(
            f"{what}: {like!r} is not a schema; give a pyarrow.Schema, a mapping such as "
            "{'price': int}, or a dataclass, NamedTuple or TypedDict class."
        )
    if not schema.names:
        raise FlowError(f"{what}: the schema has no columns; name at least one.")
    require_unique_names(schema, what)
    return schema


def require_unique_names(schema: pa.Schema, what: str) -> None:
    """Refuse two columns of the same name."""
    if len(set(schema.names)) != len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise FlowError(f"{what}: the schema has the column {twice!r} more than once; rename one of them.")


def as_type(like: Any, what: str) -> pa.DataType:
    """The Arrow type meant by an Arrow type, a Python type or annotation, or an alias such as "int64"."""
    if isinstance(like, pa.DataType):
        return like
    if isinstance(like, str):
        return _type_of_alias(like, what)
    origin, arguments = typing.get_origin(like), typing.get_args(like)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return as_type(arguments[0], what)
    if origin in (typing.Union, types.UnionType):
        others = [argument for argument in arguments if argument is not types.NoneType]
        if len(others) == 1:
            return as_type(others[0], what)
    elif origin in (list, Sequence) and len(arguments) == 1:
        return pa.list_(as_type(arguments[0], what))
    elif isinstance(like, type):
        if like in _TYPES:
            return _TYPES[like]
        if (fields := _fields_of_class(like, what)) is not None:
            return pa.struct(list(_schema_of_fields(fields, what)))
    shown = like.__name__ if isinstance(like, type) else str(like)
    raise FlowError(
        f"{what}: {shown} has no column type; use int, float, str, bool, bytes, datetime, date or a pyarrow type."
    )


def require_columns(schema: pa.Schema, names: Iterable[str], what: str) -> None:
    """Refuse the first name that is not a column of the schema."""
    known = schema.names
    for name in names:
        if name not in known:
            raise unknown_column(name, known, what)


def unknown_column(name: str, known: Iterable[str], what: str) -> FlowError:
    """The error for a column that is not there, with the nearest one that is."""
    known = list(known)
    columns = f"The columns are {', '.join(known)}." if known else "There are no columns."
    nearest = nearest_name(name, known)
    hint = f"; did you mean {nearest!r}? " if nearest is not None else ". "
    return FlowError(f"{what}: there is no column {name!r}{hint}{columns}")


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` most likely stands for, if any comes near."""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(str(name).lower(), by_lower_case, n=1)
    return by_lower_case[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: what was probably meant, also by people who know other engines."""
    public = [each for each in known if not each.startswith("_")]
    meant = _NAMES_ELSEWHERE.get(name.lower().replace("_", ""))
    if meant not in public:
        meant = nearest_name(name, public)
    return "" if meant is None else f"; did you mean '{meant}'?"


def _schema_of_fields(fields: Mapping[str, Any], what: str) -> pa.Schema:
    columns = []
    for name, like in fields.items():
        if not isinstance(name, str):
            raise FlowError(f"{what}: the column name {name!r} is not text; use a str.")
        columns.append(pa.field(name, as_type(like, f"{what}, column {name!r}")))
    return pa.schema(columns)


def _fields_of_class(cls: type, what: str) -> dict[str, Any] | None:
    """Names and annotations of a dataclass, NamedTuple or TypedDict; None for any other class."""
    if dataclasses.is_dataclass(cls):
        names: Iterable[str] = [field.name for field in dataclasses.fields(cls)]
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names = cls._fields
    elif typing.is_typeddict(cls):
        names = cls.__annotations__
    else:
        return None
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise FlowError(
            f"{what}: the annotations of {cls.__name__} cannot be resolved ({error}); import it in its module."
        ) from None
    untyped = [name for name in names if name not in hints]
    if untyped:
        raise FlowError(f"{what}: the field {untyped[0]!r} of {cls.__name__} has no type; annotate it.")
    return {name: hints[name] for name in names}


def _type_of_alias(alias: str, what: str) -> pa.DataType:
    text = alias.strip()
    if match := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(match[1], match[2])
    if match := _DECIMAL.fullmatch(text):
        try:
            return pa.decimal128(int(match[1]), int(match[2] or 0))
        except ValueError:
            raise FlowError(f"{what}: {alias!r} is out of range; a decimal has 1 to 38 digits.") from None
    if match := _LIST.fullmatch(text):
        return pa.list_(_type_of_alias(match[1], what))
    try:
        return pa.type_for_alias(text)
    except ValueError:
        nearest = difflib.get_close_matches(text.lower(), _ALIASES, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"use one of {', '.join(_ALIASES)}."
        raise FlowError(f"{what}: {alias!r} is not a type; {hint}") from None


def apart(name: str, taken: Collection[str]) -> str:
    """A name for one more column: this one, or with underscores behind it if there is such a column already."""
    while name in taken:
        name += "_"
    return name
