"""Results as JSON Lines: one object per line, one file per partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.errors import FlowError
from dirigo.flow.local_path import PathArgument, local_path
from dirigo.flow.sinks.folder import make_folder, prepare_folder
from dirigo.flow.sinks.sink import Sink, Writer

_PATTERN: Final = "part-*.jsonl"
_WRITTEN_AT_ONCE_BYTES: Final = 1 << 18


def to_json_lines(path: PathArgument, overwrite: bool = False, *, name: str = "to_json_lines") -> JsonLinesSink:
    """Write into the folder `path` one file per partition. After every batch, all lines so far are complete in the file.

    Timestamps are in ISO 8601 and UTC (one without a zone is taken for UTC), decimals are text, bytes are base 64; a number
    that is no number (NaN) or infinite is null.
    """
    return JsonLinesSink(local_path(path, name), overwrite, name)


class JsonLinesSink(Sink):
    """A folder of files called part-<partition>.jsonl."""

    default_name = "to_json_lines"

    def __init__(self, folder: Path, overwrite: bool, name: str) -> None:
        super().__init__(name)
        self.folder = folder
        self.overwrite = overwrite

    @property
    def place(self) -> Path:
        return self.folder

    def prepare(self, schema: pa.Schema) -> None:
        for field in schema:
            try:
                _sayable(pa.array([], field.type))
            except pa.ArrowException:
                raise FlowError(
                    f"{self.name}: the column '{field.name}' of type {field.type} has no form in JSON; cast or drop it."
                ) from None
        prepare_folder(self.folder, _PATTERN, self.overwrite, self.name)

    def open(self, schema: pa.Schema, partition: int) -> JsonLinesWriter:
        make_folder(self.folder, self.name)
        return JsonLinesWriter(self.folder / f"part-{partition}.jsonl", schema)


class JsonLinesWriter(Writer):
    """Writes the file of one partition. Only whole lines are handed to the system, so readers see whole lines."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._names = schema.names
        # Without a buffer of Python's own, which would write when it is full, in the middle of a line.
        self._file = cast(BinaryIO, path.open("wb", buffering=0))
        self._waiting = bytearray()
        self._encode = msgspec.json.Encoder().encode_lines

    def write(self, batch: pa.RecordBatch) -> None:
        names = self._names
        columns = [_sayable(column).to_pylist() for column in batch.columns]
        self._waiting += self._encode([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])
        if len(self._waiting) >= _WRITTEN_AT_ONCE_BYTES:
            self.flush()

    def held_bytes(self) -> int:
        return len(self._waiting)

    def flush(self) -> None:
        rest = bytes(self._waiting)
        self._waiting.clear()
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        if not self._file.closed:
            self.flush()
            self._file.close()

    def abandon(self) -> None:
        self._waiting.clear()
        self._file.close()


def _sayable(column: pa.Array) -> pa.Array:
    """The same values in types whose Python values msgspec writes as promised."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _sayable(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        # As text, since Python's datetime has no nanoseconds.
        in_utc = column.cast(pa.timestamp(kind.unit, "UTC"))
        return pc.strftime(in_utc, format="%Y-%m-%dT%H:%M:%SZ")
    wanted = _sayable_type(kind)
    return column if wanted == kind else column.cast(wanted, safe=False)


def _sayable_type(kind: pa.DataType) -> Any:
    """Inside lists and structs, timestamps have a zone and at most microseconds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_sayable_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _sayable_type(field.type)) for field in kind])
    if pa.types.is_duration(kind) or pa.types.is_time64(kind):
        return pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us")
    return kind
