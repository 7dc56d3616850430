"""Results as JSON Lines: one object per line. A reader sees whole lines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.api.duration import Duration, positive_milliseconds
from dirigo.flow.errors import FlowError
from dirigo.flow.local_path import PathArgument, local_path
from dirigo.flow.sinks.folder import Mode, ResultFolder, refuse_unknown
from dirigo.flow.sinks.part_files import PartFiles
from dirigo.flow.sinks.sink import Sink, Writer

_WRITTEN_AT_ONCE_BYTES: Final = 1 << 18


def to_json_lines(
    path: PathArgument,
    *,
    mode: Mode = "error",
    roll_every: Duration | None = None,
    name: str = "to_json_lines",
    **unknown: NoReturn,
) -> JsonLinesSink:
    """Write into the folder `path`. In a job without snapshots, one file per partition; it has all lines after every batch.

    With `roll_every`, lines are shown in a new file so often instead. In a job with snapshots, a new file with the rows of a
    snapshot appears when it is committed: each row exactly once, also after a recovery.

    `mode` says what becomes of earlier results in the folder: the job is refused ("error"), adds to them ("append"), or
    replaces them as soon as it has results of its own to show ("overwrite").

    Timestamps are in ISO 8601 and UTC (one without a zone is taken for UTC), decimals are text, bytes are base 64; a number
    that is no number (NaN) or infinite is null.
    """
    refuse_unknown("to_json_lines", dict(unknown))
    return JsonLinesSink(local_path(path, name), mode, roll_every, name)


class JsonLinesSink(Sink):
    """A folder of files called part-<partition>-<number>.jsonl."""

    default_name = "to_json_lines"
    delivery = "exactly once"

    def __init__(self, folder: Path, mode: Mode, roll_every: Duration | None, name: str) -> None:
        super().__init__(name)
        self.folder = ResultFolder(folder, ".jsonl", mode, name)
        self.roll_every_ms = None if roll_every is None else positive_milliseconds(roll_every, f"{name}: roll_every")

    @property
    def place(self) -> Path:
        return self.folder.path

    def prepare(self, schema: pa.Schema) -> None:
        for field in schema:
            try:
                _sayable(pa.array([], field.type))
            except pa.ArrowException:
                raise FlowError(
                    f"{self.name}: the column '{field.name}' of type {field.type} has no form in JSON; cast or drop it."
                ) from None
        self.folder.prepare()

    def open(self, schema: pa.Schema, partition: int) -> JsonLinesWriter:
        return JsonLinesWriter(PartFiles(self.folder, partition), schema, self.roll_every_ms)


class JsonLinesWriter(Writer):
    """Writes the files of one partition. Only whole lines are handed to the system, so readers see whole lines."""

    def __init__(self, files: PartFiles, schema: pa.Schema, roll_every_ms: int | None) -> None:
        self._files = files
        self._telling = files.folder.telling
        self._names = schema.names
        self._roll_every_ms = roll_every_ms
        self._file: BinaryIO | None = None
        self._waiting = bytearray()
        self._encode = msgspec.json.Encoder().encode_lines
        self._is_closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        if self._is_closed:
            raise ValueError("The writer is closed.")
        names = self._names
        columns = [_sayable(column).to_pylist() for column in batch.columns]
        self._waiting += self._encode([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])
        if len(self._waiting) >= _WRITTEN_AT_ONCE_BYTES:
            self._write_out()

    def held_bytes(self) -> int:
        return len(self._waiting)

    def flush(self) -> None:
        if self._is_live and self._waiting:
            self._write_out()

    @property
    def roll_every_ms(self) -> int | None:
        return self._roll_every_ms

    def roll(self) -> None:
        if self._waiting:
            self._write_out()
        if self._file is not None:
            self._end_file()

    def close(self) -> None:
        if self._is_closed:
            return
        self.roll()
        self._is_closed = True
        # A reader of an empty result finds a file: one of each partition, or where files are made as rows come, one in all.
        if self._files.made == 0 and (self._is_live or self._files.partition == 0):
            with self._telling():
                self._begin_file()
            self._end_file()

    def abandon(self) -> None:
        self._drop()
        with self._telling():
            self._files.abandon()

    # --- with snapshots ------------------------------------------------------------------------------------------------

    def hold_back(self, generation: int) -> None:
        self._files.hold_back(generation)

    def cut(self) -> dict[str, Any]:
        self.roll()
        with self._telling():
            return self._files.cut(is_last=self._is_closed)

    def sync(self, cut: dict[str, Any]) -> None:
        with self._telling():
            self._files.sync(cut)

    def commit(self, cut: dict[str, Any]) -> None:
        with self._telling():
            self._files.commit(cut)

    def resume(self, cut: dict[str, Any]) -> None:
        self._is_closed = cut["is_last"]
        with self._telling():
            self._files.resume(cut)

    def let_go(self) -> None:
        self._drop()
        with self._telling():
            self._files.discard()

    # --- files ---------------------------------------------------------------------------------------------------------

    @property
    def _is_live(self) -> bool:
        """Whether lines are visible in a file that is still being written."""
        return self._roll_every_ms is None and not self._files.is_held_back

    def _begin_file(self) -> BinaryIO:
        path = self._files.begin_visible() if self._is_live else self._files.begin()
        # Without a buffer of Python's own, which would write when it is full, in the middle of a line.
        self._file = cast(BinaryIO, path.open("xb", buffering=0))
        return self._file

    def _write_out(self) -> None:
        with self._telling():
            file = self._file or self._begin_file()
            rest = bytes(self._waiting)
            self._waiting.clear()
            while rest:
                rest = rest[file.write(rest) :]
            if self._is_live:
                if self._files.will_replace:
                    os.fsync(file.fileno())
                self._files.replace_old()

    def _end_file(self) -> None:
        assert self._file is not None
        file, self._file = self._file, None
        with self._telling():
            file.close()
            if self._is_live:
                self._files.replace_old()
            else:
                self._files.complete()

    def _drop(self) -> None:
        """Lines that wait are not written, and a hidden file is not completed."""
        self._is_closed = True
        self._waiting.clear()
        if self._file is not None:
            file, self._file = self._file, None
            with self._telling():
                file.close()


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
