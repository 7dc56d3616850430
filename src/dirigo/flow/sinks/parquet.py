"""Results as Parquet files. A file appears when it is complete; a reader never sees half of one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from dirigo.flow.errors import FlowError
from dirigo.flow.local_path import PathArgument, local_path
from dirigo.flow.sinks.folder import make_folder, prepare_folder
from dirigo.flow.sinks.sink import Sink, Writer

_PATTERN: Final = "part-*.parquet"
_ROW_GROUP_ROWS: Final = 1 << 16
_COMPRESSION: Final = "zstd"


def to_parquet(
    path: PathArgument, rows_per_file: int = 1_000_000, overwrite: bool = False, *, name: str = "to_parquet"
) -> ParquetSink:
    """Write into the folder `path`: files of at most `rows_per_file` rows, which appear when they are complete.

    A watermark does not complete a file, since that would make very many small ones: a stream without end shows its results
    every `rows_per_file` rows. An empty result leaves one file, with the columns and no rows.
    """
    return ParquetSink(local_path(path, name), rows_per_file, overwrite, name)


class ParquetSink(Sink):
    """A folder of Parquet files, called part-<partition>-<number>.parquet."""

    default_name = "to_parquet"

    def __init__(self, folder: Path, rows_per_file: int, overwrite: bool, name: str) -> None:
        super().__init__(name)
        if rows_per_file < 1:
            raise FlowError(f"{name}: rows_per_file is {rows_per_file}; a file has at least 1 row.")
        self.folder = folder
        self.rows_per_file = rows_per_file
        self.overwrite = overwrite

    @property
    def place(self) -> Path:
        return self.folder

    def prepare(self, schema: pa.Schema) -> None:
        try:
            with pq.ParquetWriter(pa.BufferOutputStream(), schema, compression=_COMPRESSION) as writer:
                writer.write_table(schema.empty_table())
        except pa.ArrowException as error:
            reason = str(error).split("\n")[0].rstrip(".")
            raise FlowError(
                f"{self.name}: Parquet cannot hold these columns ({reason}); cast or drop the culprit."
            ) from None
        prepare_folder(self.folder, _PATTERN, self.overwrite, self.name)

    def open(self, schema: pa.Schema, partition: int) -> ParquetPartWriter:
        make_folder(self.folder, self.name)
        return ParquetPartWriter(self.folder, schema, partition, self.rows_per_file)


class ParquetPartWriter(Writer):
    """Writes the files of one partition, one after the other. Small batches wait until they fill a row group."""

    def __init__(self, folder: Path, schema: pa.Schema, partition: int, rows_per_file: int) -> None:
        self._folder = folder
        self._schema = schema
        self._partition = partition
        self._rows_per_file = rows_per_file
        self._number = 0  # of the file at hand
        self._file: pq.ParquetWriter | None = None
        self._rows_in_file = 0
        self._waiting: list[pa.RecordBatch] = []
        self._rows_waiting = 0
        self._is_closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        if self._is_closed:
            raise ValueError("The writer is closed.")
        while batch.num_rows:
            room = self._rows_per_file - self._rows_in_file - self._rows_waiting
            taken = batch.slice(0, room)
            batch = batch.slice(taken.num_rows)
            self._waiting.append(taken)
            self._rows_waiting += taken.num_rows
            if taken.num_rows == room:
                self._complete_file()
            elif self._rows_waiting >= _ROW_GROUP_ROWS:
                self._write_row_group()

    def held_bytes(self) -> int:
        return sum(batch.get_total_buffer_size() for batch in self._waiting)

    def flush(self) -> None:
        """Nothing: files appear when they are complete."""

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # Some file must say what the columns are, even if no partition has a row; the first partition sees to that.
        is_needed = self._partition == 0 and self._number == 0
        if self._rows_waiting or self._rows_in_file or is_needed:
            self._complete_file()

    def abandon(self) -> None:
        self._is_closed = True
        self._waiting = []
        if self._file is not None:
            self._file.close()
            self._file = None
            self._temporary_path().unlink(missing_ok=True)

    def _write_row_group(self) -> None:
        if self._file is None:
            self._file = pq.ParquetWriter(self._temporary_path(), self._schema, compression=_COMPRESSION)
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._file.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._rows_in_file += self._rows_waiting
        self._waiting = []
        self._rows_waiting = 0

    def _complete_file(self) -> None:
        if self._rows_waiting or self._file is None:
            self._write_row_group()
        assert self._file is not None
        self._file.close()
        self._temporary_path().replace(self._final_path())
        self._file = None
        self._rows_in_file = 0
        self._number += 1

    def _final_path(self) -> Path:
        # The number has leading zeros so that the files come in the order of their names.
        return self._folder / f"part-{self._partition}-{self._number:05}.parquet"

    def _temporary_path(self) -> Path:
        return self._folder / f".{self._final_path().name}.tmp"
