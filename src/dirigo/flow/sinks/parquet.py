"""Results as Parquet files. A file appears when it is complete; a reader never sees half of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from dirigo.flow.api.duration import Duration, positive_milliseconds
from dirigo.flow.errors import FlowError
from dirigo.flow.local_path import PathArgument, local_path
from dirigo.flow.sinks.folder import Mode, ResultFolder, refuse_unknown
from dirigo.flow.sinks.part_files import PartFiles
from dirigo.flow.sinks.sink import Sink, Writer

_ROW_GROUP_ROWS: Final = 1 << 16
_COMPRESSION: Final = "zstd"


def to_parquet(
    path: PathArgument,
    rows_per_file: int = 1_000_000,
    *,
    mode: Mode = "error",
    roll_every: Duration | None = "10s",
    name: str = "to_parquet",
    **unknown: NoReturn,
) -> ParquetSink:
    """Write into the folder `path`: files of at most `rows_per_file` rows, which appear when they are complete.

    In a job with snapshots, rows appear when the snapshot that they belong to is committed: each exactly once, also after a
    recovery. In one without, they appear after `roll_every` at the latest (`None`: when a file is full, or at the end). An
    empty result leaves one file, with the columns and no rows.

    `mode` says what becomes of earlier results in the folder: the job is refused ("error"), adds to them ("append"), or
    replaces them as soon as it has results of its own to show ("overwrite").
    """
    refuse_unknown("to_parquet", dict(unknown))
    return ParquetSink(local_path(path, name), rows_per_file, mode, roll_every, name)


class ParquetSink(Sink):
    """A folder of Parquet files, called part-<partition>-<number>.parquet."""

    default_name = "to_parquet"
    delivery = "exactly once"

    def __init__(self, folder: Path, rows_per_file: int, mode: Mode, roll_every: Duration | None, name: str) -> None:
        super().__init__(name)
        if rows_per_file < 1:
            raise FlowError(f"{name}: rows_per_file is {rows_per_file}; a file has at least 1 row.")
        self.folder = ResultFolder(folder, ".parquet", mode, name)
        self.rows_per_file = rows_per_file
        self.roll_every_ms = None if roll_every is None else positive_milliseconds(roll_every, f"{name}: roll_every")

    @property
    def place(self) -> Path:
        return self.folder.path

    def prepare(self, schema: pa.Schema) -> None:
        try:
            with pq.ParquetWriter(pa.BufferOutputStream(), schema, compression=_COMPRESSION) as writer:
                writer.write_table(schema.empty_table())
        except pa.ArrowException as error:
            reason = str(error).split("\n")[0].rstrip(".")
            raise FlowError(
                f"{self.name}: Parquet cannot hold these columns ({reason}); cast or drop the culprit."
            ) from None
        self._refuse_other_columns(schema)
        self.folder.prepare()

    def _refuse_other_columns(self, schema: pa.Schema) -> None:
        """Files of one folder are read together."""
        last = self.folder.results()[-1:] if self.folder.mode == "append" else []
        for file in last:
            try:
                found = pq.read_schema(file)
            except (OSError, pa.ArrowException) as error:
                raise FlowError(f"{self.name}: '{file}' is no Parquet file to append to; choose another folder.") from error
            if not found.equals(schema):
                columns = ", ".join(f"{field.name} {field.type}" for field in found)
                raise FlowError(f"{self.name}: '{file}' has other columns ({columns}); choose another folder.")

    def open(self, schema: pa.Schema, partition: int) -> ParquetPartWriter:
        return ParquetPartWriter(PartFiles(self.folder, partition), schema, self.rows_per_file, self.roll_every_ms)


class ParquetPartWriter(Writer):
    """Writes the files of one partition, one after the other. Small batches wait until they fill a row group."""

    def __init__(self, files: PartFiles, schema: pa.Schema, rows_per_file: int, roll_every_ms: int | None) -> None:
        self._files = files
        self._telling = files.folder.telling
        self._schema = schema
        self._rows_per_file = rows_per_file
        self._roll_every_ms = roll_every_ms
        self._file: pq.ParquetWriter | None = None
        self._rows_in_file = 0
        self._waiting: list[pa.RecordBatch] = []
        self._rows_waiting = 0
        self._is_closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        if self._is_closed:
            raise ValueError("The writer is closed.")
        with self._telling():
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

    @property
    def roll_every_ms(self) -> int | None:
        return self._roll_every_ms

    def roll(self) -> None:
        if self._rows_waiting or self._rows_in_file:
            with self._telling():
                self._complete_file()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # Some file must say what the columns are, even if no partition has a row; the first partition sees to that.
        is_needed = self._files.partition == 0 and self._files.made == 0
        if self._rows_waiting or self._rows_in_file or is_needed:
            with self._telling():
                self._complete_file()

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

    def _drop(self) -> None:
        """The file that is being written is not completed."""
        self._is_closed = True
        self._waiting = []
        self._rows_waiting = self._rows_in_file = 0
        if self._file is not None:
            file, self._file = self._file, None
            with self._telling():
                file.close()

    def _write_row_group(self) -> None:
        if self._file is None:
            self._file = pq.ParquetWriter(self._files.begin(), self._schema, compression=_COMPRESSION)
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._file.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._rows_in_file += self._rows_waiting
        self._waiting = []
        self._rows_waiting = 0

    def _complete_file(self) -> None:
        if self._rows_waiting or self._file is None:
            self._write_row_group()
        assert self._file is not None
        file, self._file = self._file, None
        file.close()
        self._rows_in_file = 0
        self._files.complete()
