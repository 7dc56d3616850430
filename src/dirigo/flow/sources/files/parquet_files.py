"""Reading Parquet files, a few thousand rows at a time."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator, Sequence
from os import SEEK_END
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from dirigo.flow.api.duration import Duration
from dirigo.flow.errors import FlowError
from dirigo.flow.local_path import PathArgument
from dirigo.flow.rows.schema import require_columns
from dirigo.flow.sources.files.file_queue import FileQueue, changed_file
from dirigo.flow.sources.files.paths import dealt_out, files_at
from dirigo.flow.sources.source import Source, SourceBatch, Split, empty_batch, require_wanted

_BUFFER_BYTES: Final = 1 << 18  # per column; without a buffer, a whole row group is read at once
_SUMMED_BYTES: Final = 1 << 14


class ParquetSource(Source):
    """Rows out of Parquet files that all have the same columns. It is split by files."""

    default_name = "parquet"

    def __init__(
        self,
        path: PathArgument,
        columns: Sequence[str] | None,
        *,
        time: str | None,
        out_of_orderness: Duration,
        idle_after: Duration | None,
        name: str,
    ) -> None:
        self.files = files_at(path, name)
        schema = _schema_of(self.files[0], name)
        if columns is not None:
            require_columns(schema, columns, name)
            schema = pa.schema([schema.field(column) for column in dict.fromkeys(columns)])
        if not schema.names:
            raise FlowError(f"{name}: '{self.files[0]}' has no columns to read; name some in columns=.")
        super().__init__(
            schema, name=name, is_bounded=True, time=time, out_of_orderness=out_of_orderness, idle_after=idle_after
        )
        for file in self.files[1:]:
            _require_same_columns(file, schema, name)

    @property
    def places(self) -> Sequence[Path]:
        return self.files

    @property
    def is_replayable(self) -> bool:
        return True

    def splits(self, wanted: int) -> Sequence[Split]:
        require_wanted(wanted, self.name)
        return [ParquetSplit(files, self.schema, self.name) for files in dealt_out(self.files, wanted)]


class ParquetSplit(Split):
    """Reads some of the files, one after the other. Only the batch at hand and one page per column are in memory.

    The position is the file at hand, how many of its rows were given, and what tells it from others. After a seek, whole row
    groups are skipped, and rows of the one that was at hand a few milliseconds at a time.
    """

    def __init__(self, files: Sequence[Path], schema: pa.Schema, what: str) -> None:
        self._files = FileQueue(files, what)
        self._schema = schema
        self._what = what
        self._file: pq.ParquetFile | None = None
        self._sought: list[int] | None = None  # where in the first file to go on
        self._identity = [0, 0, 0]  # of the file at hand: rows, bytes, and what tells it from others as large
        self._given = 0  # rows of it
        self._skipped = 0  # rows that come next, and were given before
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None

    def read(self, rows_max: int) -> SourceBatch | None:
        until = clock.monotonic() + self.read_for_s
        batch = self._rest if self._rest is not None else self._next_batch(rows_max)
        while batch is not None and batch.num_rows <= self._skipped:
            self._skipped -= batch.num_rows
            if clock.monotonic() >= until:
                return SourceBatch(empty_batch(self._schema))
            batch = self._next_batch(rows_max)
        if batch is None:
            return None
        if self._skipped:
            batch, self._skipped = batch.slice(self._skipped), 0
        # The size of batches is set when a file is opened; a caller may change its mind later.
        self._rest = batch.slice(rows_max) if batch.num_rows > rows_max else None
        batch = batch.slice(0, rows_max)
        self._given += batch.num_rows
        return SourceBatch(batch)

    def close(self) -> None:
        self.ended = True
        self._files.clear()
        self._rest = None
        self._close_file()

    def position(self) -> list[Any]:
        return self._files.position(self._sought if self._file is None else [self._given, *self._identity])

    def seek(self, position: Sequence[Any]) -> None:
        self._sought = self._files.seek(position)

    def _next_batch(self, rows_max: int) -> pa.RecordBatch | None:
        while True:
            try:
                batch = next(self._batches, None)
            except (pa.ArrowException, OSError) as error:
                raise FlowError(
                    f"{self._what}: a Parquet file cannot be read to its end ({_short(error)}); repair it."
                ) from error
            if batch is not None:
                return _with_schema(batch, self._schema)
            if self._file is not None:
                self._close_file()
                self._files.go_on()
            path = self._files.at_hand
            if path is None:
                self.ended = True
                return None
            self._open(path, rows_max)

    def _open(self, path: Path, rows_max: int) -> None:
        try:
            file = self._file = pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            self._identity = [file.metadata.num_rows, *_size_and_sum(path)]
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error, self._what) from error
        self._given, *identity = self._sought or [0, *self._identity]
        self._sought, self._skipped = None, self._given
        if identity != self._identity:
            raise changed_file(path, self._what)
        first = 0
        while self._skipped and self._skipped >= file.metadata.row_group(first).num_rows:
            self._skipped -= file.metadata.row_group(first).num_rows
            first += 1
        groups = range(first, file.metadata.num_row_groups)
        self._batches = file.iter_batches(rows_max, groups, columns=self._schema.names, use_threads=False)

    def _close_file(self) -> None:
        self._batches = iter(())
        if self._file is not None:
            self._file.close()
            self._file = None


def _size_and_sum(file: Path) -> tuple[int, int]:
    """The sum is of the end of the file, which says what is in its columns."""
    with file.open("rb") as stream:
        size = stream.seek(0, SEEK_END)
        stream.seek(max(size - _SUMMED_BYTES, 0))
        return size, crc32(stream.read())


def _schema_of(file: Path, what: str) -> pa.Schema:
    try:
        return pq.read_schema(file).remove_metadata()
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(file, error, what) from error


def _require_same_columns(file: Path, schema: pa.Schema, what: str) -> None:
    found = _schema_of(file, what)
    require_columns(found, schema.names, f"{what}, file '{file}'")
    for field in schema:
        if found.field(field.name).type != field.type:
            raise FlowError(
                f"{what}: the column '{field.name}' has type {found.field(field.name).type} in '{file}' but {field.type}"
                " in the first file; read the files as two sources."
            )


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns in the order asked for, without what a file says about itself."""
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


def _unreadable(file: Path, error: Exception, what: str) -> FlowError:
    return FlowError(f"{what}: '{file}' is no readable Parquet file ({_short(error)}); remove it or check the path.")


def _short(error: Exception) -> str:
    return str(error).split("\n")[0].rstrip(".")
