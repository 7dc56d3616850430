"""Lines of JSON as rows: one object per line."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.json as pa_json

from dirigo.flow.errors import FlowError
from dirigo.flow.sources.files.inference import infer_schema
from dirigo.flow.sources.files.text_files import (
    LineFormat,
    UnfitLinesError,
    UnreadableTypeError,
    first_sentence,
    require_no_nulls,
)
from dirigo.flow.sources.files.timestamps import timestamps_of

_DECODE: Final = msgspec.json.Decoder().decode


class JsonFormat(LineFormat):
    """Fields that are no columns are ignored; a column whose field is missing is null, if it may be.

    What JSON has no type for is text: timestamps, dates and times in ISO 8601, bytes in base 64, decimals (or numbers).
    """

    default_name = "json_lines"

    def __init__(self, schema: pa.Schema, what: str) -> None:
        super().__init__(schema)
        for field in schema:
            _refuse_nested_bytes(field.type, field.name, what)
        read_as = pa.schema([pa.field(field.name, _column_read_as(field.type)) for field in schema])
        self._options = pa_json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="ignore")
        self._checks = [(field.name, str(field.type), check) for field in schema if (check := _python_types(field.type))]
        self.refuse_unreadable_types(b"{}\n", what)

    def begin(self, file: Path, block: bytes) -> int:  # noqa: ARG002 - there is no head
        return 0

    def parse(self, text: bytes) -> pa.RecordBatch:
        lines = text.count(b"\n")
        if text.count(b"\n{") + text.startswith(b"{") != lines:
            # pyarrow crashes the process at a first line that is just "null", and takes later ones for empty objects.
            self._refuse_obvious_misfits(text)
        try:
            table = _read(text, self._options)
            if table.num_rows != lines and table.num_rows != _lines(text):
                raise UnfitLinesError("it is not one JSON object on one line")
            columns = [_converted(table.column(field.name), field.type) for field in self.schema]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        except pa.ArrowNotImplementedError as error:
            raise UnreadableTypeError(first_sentence(error)) from None
        except (pa.ArrowException, ValueError) as error:
            raise UnfitLinesError(first_sentence(error)) from None
        require_no_nulls(batch)
        return batch

    def problem_of(self, line: bytes) -> str | None:
        try:
            found: Any = _DECODE(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return f"it is no JSON ({error})"
        if not isinstance(found, dict):
            return "it is no JSON object"
        for name, kind, types in self._checks:
            value = found.get(name)
            if value is not None and type(value) not in types:
                return f"the column '{name}' holds {msgspec.json.encode(value).decode()}, which is no {kind}"
        return None

    def _refuse_obvious_misfits(self, text: bytes) -> None:
        for line in text.split(b"\n"):
            if line and not line.isspace():
                problem = self.problem_of(line)
                if problem is not None:
                    raise UnfitLinesError(problem)


def infer_json_schema(files: Sequence[Path], what: str) -> pa.Schema:
    """The fields and types in the first lines."""

    def read(file: Path, text: bytes, as_text: Sequence[str]) -> pa.Table:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        lines = []
        for line in text.split(b"\n"):
            try:
                decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # it comes out as a bad row later
            lines.append(line)
        if not lines:
            raise FlowError(f"{what}: the first lines of '{file}' are no JSON objects; check the file.")
        told = pa.schema([(name, pa.string()) for name in as_text])
        options = pa_json.ParseOptions(explicit_schema=told if as_text else None)
        return _read(b"\n".join(lines) + b"\n", options)

    return infer_schema(files, read, what)


def _read(text: bytes, options: pa_json.ParseOptions) -> pa.Table:
    # All in one block: an object that does not end in its block is an error of pyarrow's.
    return pa_json.read_json(
        pa.BufferReader(text), pa_json.ReadOptions(use_threads=False, block_size=len(text) + 1), options
    )


def _lines(text: bytes) -> int:
    return sum(1 for line in text.split(b"\n") if line and not line.isspace())


def _column_read_as(kind: pa.DataType) -> pa.DataType:
    """Timestamps are read as text, since the parser takes several times as long for them as a cast."""
    return pa.string() if pa.types.is_timestamp(kind) else _read_as(kind)


def _read_as(kind: pa.DataType) -> pa.DataType:
    """The type that the parser reads into; the rest is a cast. Seconds may have more digits than their column."""
    if pa.types.is_timestamp(kind):
        return kind if kind.unit == "ns" else pa.timestamp("us", kind.tz)
    if pa.types.is_date(kind) or pa.types.is_time(kind) or _is_bytes(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_read_as(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _read_as(field.type)) for field in kind])
    return kind


def _converted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if values.type == kind:
        return values
    if pa.types.is_timestamp(kind):
        return timestamps_of(values, kind)
    if _is_bytes(kind):
        decoded = [None if text is None else base64.b64decode(text, validate=True) for text in values.to_pylist()]
        return pa.array(decoded, kind)
    return values.cast(kind, safe=not _has_timestamp(kind))


def _has_timestamp(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_timestamp(field.type) for field in kind)
    return _has_timestamp(kind.value_type) if pa.types.is_list(kind) else bool(pa.types.is_timestamp(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _refuse_nested_bytes(kind: pa.DataType, name: str, what: str) -> None:
    inner = (
        [kind.value_type] if pa.types.is_list(kind) else [field.type for field in kind] if pa.types.is_struct(kind) else []
    )
    for each in inner:
        if _is_bytes(each):
            raise FlowError(
                f"{what}: the column '{name}' has bytes inside a {kind}, which JSON cannot say; make them string."
            )
        _refuse_nested_bytes(each, name, what)


def _python_types(kind: pa.DataType) -> tuple[type, ...]:
    """What a value of the column is in Python; nothing for types that are left to the parser."""
    if pa.types.is_integer(kind):
        return (int,)
    if pa.types.is_floating(kind):
        return (int, float)
    if pa.types.is_boolean(kind):
        return (bool,)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_timestamp(kind):
        return (str,)
    return ()
