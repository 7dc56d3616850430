"""The keys of rows as Python objects that are equal where Grouping takes the values for equal, and that can be in a dict."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import isnan, nan
from typing import Any

import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.row import python_values
from dirigo.flow.rows.unreadable import NO_FORM, Unreadable, values_told

# Stands for every NaN of a column of floats, in which there is no text; it has to stay equal to itself on its way elsewhere.
_NOT_A_NUMBER = "nan"
_NOTHING = type(None)


class OddKey:
    """A value that Python compares in another way than Grouping does, or that has no hash: a time, a NaN, a list."""

    __slots__ = ("form", "value")

    def __init__(self, form: Any, value: Any) -> None:
        self.form = form
        self.value = value

    def __eq__(self, other: object) -> bool:
        return self.form == other.form if isinstance(other, OddKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.form)

    def __lt__(self, other: object) -> bool:
        return bool(self.form < other.form) if isinstance(other, OddKey) else NotImplemented

    def __repr__(self) -> str:
        return repr(self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        return (OddKey, (self.form, self.value))


class KeyColumns:
    """The columns that make the key of a row: one value, or a tuple of several."""

    def __init__(self, schema: pa.Schema, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._types = [schema.field(name).type for name in names]
        self._readers = [_reader(schema.field(name).type) for name in names]
        self._is_plain = all(reader is _plain for reader in self._readers)

    def read(self, batch: pa.RecordBatch) -> list[Hashable]:
        """The key of each row."""
        columns = [read(batch.column(name)) for name, read in zip(self.names, self._readers, strict=True)]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def shown(self, key: Any) -> Any:
        """A key as the values that are in the rows."""
        if self._is_plain:
            return key
        return tuple(map(_value_of, key)) if len(self.names) > 1 else _value_of(key)

    def fields(self) -> list[pa.Field]:
        """The columns that ``columns`` gives."""
        return [
            pa.field(name, kind if pa.types.is_nested(kind) else type_of_forms(kind))
            for name, kind in zip(self.names, self._types, strict=True)
        ]

    def columns(self, keys: Sequence[Any]) -> list[pa.Array]:
        """Keys as columns again, with the values that are in the rows."""
        by_column = [keys] if len(self.names) == 1 else [[key[number] for key in keys] for number in range(len(self.names))]
        return [
            pa.array(map(_value_of, each), kind)
            if pa.types.is_nested(kind)
            else column_of_forms([key.form if isinstance(key, OddKey) else key for key in each], kind)
            for each, kind in zip(by_column, self._types, strict=True)
        ]


def in_order(keys: Iterable[Any]) -> list[Any]:
    """Keys in an order that does not depend on where they come from."""
    keys = list(keys)
    try:
        return sorted(keys)
    except TypeError:
        return sorted(keys, key=repr)


def forms_of(batch: pa.RecordBatch, names: Sequence[str]) -> list[Any]:
    """Something for each row that stands for its key; nulls are values like any other. It does not tell the key itself."""
    columns = [_forms(batch.column(name)) for name in names]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def arrays_of_keys(keys: Sequence[Any], kinds: Sequence[pa.DataType], *, as_tuples: bool = False) -> list[pa.Array]:
    """The columns that keys, or forms of keys, were read from: to divide them anew as rows are divided.

    ``as_tuples``: whether a key of one column is a tuple, too.
    """
    columns = list(zip(*keys, strict=True)) if as_tuples or len(kinds) > 1 else [keys]
    return [_array_of(column, kind) for column, kind in zip(columns, kinds, strict=True)]


def _array_of(forms: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values, forms of values, or odd keys as a column whose values are those of the rows."""
    if pa.types.is_dictionary(kind):
        return _array_of(forms, kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _array_of([each.form if isinstance(each, OddKey) else each for each in forms], kind.storage_type)
    if pa.types.is_nested(kind):
        values = [_value_of(each) for each in forms]
        if any(isinstance(each, str) for each in values):  # only its text is known, as of a row of a deduplicate
            raise FlowError(f"keys of type {kind} cannot be divided anew; resume with as many partitions as before.")
        return pa.array(values, kind)
    forms = [each.form if isinstance(each, OddKey) else each for each in forms]
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64) and all(type(each) in (int, _NOTHING) for each in forms):
        return pa.array(forms, pa.int64() if kind.bit_width == 64 else pa.int32()).view(kind)
    if pa.types.is_floating(kind):
        forms = [float("nan") if each == _NOT_A_NUMBER else each for each in forms]
    return pa.array(forms, kind)


def keeps_text_only(kind: pa.DataType) -> bool:
    """Whether what stands for a value of this type (see ``forms_of``) does not tell it."""
    return bool(pa.types.is_nested(_held_type(kind)))


def type_of_forms(kind: pa.DataType) -> pa.DataType:
    """The type of ``column_of_forms``: of nested values, only their text is known."""
    kind = _held_type(kind)
    return pa.string() if pa.types.is_nested(kind) else kind


def column_of_forms(forms: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """What stands for the values of a column of this type (see ``forms_of``) as a column again."""
    kind = _held_type(kind)
    if pa.types.is_nested(kind):
        return pa.array(forms, pa.string())
    if pa.types.is_floating(kind):
        forms = [nan if form == _NOT_A_NUMBER else form for form in forms]
    return pa.array(forms, kind)  # of times from their numbers


def _held_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _held_type(kind.value_type)
    return _held_type(kind.storage_type) if isinstance(kind, pa.BaseExtensionType) else kind


def _forms(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _forms(column.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return _forms(column.storage)
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        # As numbers: Python's times have no nanoseconds, and are equal an hour apart when clocks are set back.
        return _listed(column.view(pa.int64() if kind.bit_width == 64 else pa.int32()))
    if pa.types.is_floating(kind):
        return [_NOT_A_NUMBER if value is not None and isnan(value) else value for value in column.to_pylist()]
    if pa.types.is_nested(kind):
        return [None if value is None else repr(value) for value in column.to_pylist()]
    return _listed(column)


def _listed(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _reader(kind: pa.DataType) -> Callable[[pa.Array], list[Any]]:
    types = pa.types
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind):
        return _plain
    return _odd


def _plain(column: pa.Array) -> list[Any]:
    try:
        return python_values(column)
    except NO_FORM:  # some text is no Unicode
        return [repr(value) if isinstance(value, Unreadable) else value for value in values_told(column)]


def _odd(column: pa.Array) -> list[Any]:
    try:
        values = python_values(column)
    except NO_FORM:
        values = values_told(column)
    if pa.types.is_floating(column.type):
        values = [value + 0.0 for value in values]  # the two zeros are one key, and look alike
    # What is as good as its form stays as it is: most floats and decimals.
    return [value if form == value else OddKey(form, value) for form, value in zip(_forms(column), values, strict=True)]


def _value_of(key: Any) -> Any:
    return key.value if isinstance(key, OddKey) else key
