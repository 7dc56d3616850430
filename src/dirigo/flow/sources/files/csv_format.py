"""Lines of comma-separated values as rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from csv import Error as CsvError
from csv import reader as csv_reader
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.schema import unknown_column
from dirigo.flow.sources.files.inference import infer_schema
from dirigo.flow.sources.files.line_blocks import first_block
from dirigo.flow.sources.files.text_files import (
    LineFormat,
    UnfitLinesError,
    UnreadableTypeError,
    first_sentence,
    require_no_nulls,
)
from dirigo.flow.sources.files.timestamps import timestamps_of

_NULLS: Final = ["", "NULL", "null"]
_QUOTE: Final = b'"'


class CsvFormat(LineFormat):
    """A row is one line, so a value cannot hold a line break: one stray quote must not swallow the rows after it."""

    default_name = "csv"

    def __init__(self, schema: pa.Schema, delimiter: str, has_header: bool, what: str) -> None:
        super().__init__(schema)
        self._delimiter = delimiter
        self._has_header = has_header
        self._what = what
        self._names: list[str] = list(schema.names)  # the columns of the file at hand
        self._checks: list[tuple[int, str, str, Callable[[str], Any]]] = []
        self._note_columns()
        self.refuse_unreadable_types((delimiter.join(["NULL"] * len(schema)) + "\n").encode(), what)

    def check_headers(self, files: Sequence[Path]) -> None:
        """Refuse files without the columns before the first row is read."""
        for file in files if self._has_header else ():
            block = first_block(file, self._what)
            if block is not None:
                self.begin(file, block.text)

    def begin(self, file: Path, block: bytes) -> int:
        if not self._has_header:
            return 0
        names, length = header_of(file, block, self._delimiter, self._what)
        for name in self.schema.names:
            if name not in names:
                raise unknown_column(name, names, f"{self._what}, header of '{file}'")
        if names != self._names:
            self._names = names
            self._note_columns()
        return length

    def parse(self, text: bytes) -> pa.RecordBatch:
        lines = text.count(b"\n")
        last_line = text[text.rfind(b"\n", 0, -1) + 1 :]
        # A quote that is left open takes in the lines after it. To notice that at the last line, that line is parsed twice.
        repeated = 1 if _QUOTE in last_line and not last_line.isspace() else 0
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(text + last_line if repeated else text),
                self._read_options(len(text) + len(last_line)),
                pa_csv.ParseOptions(delimiter=self._delimiter),  # pickled, it would call a handler that is not there
                self._convert_options,
            )
            rows = table.num_rows - repeated
            if rows != lines and rows != sum(1 for line in text.split(b"\n") if line.strip(b"\r")):
                raise UnfitLinesError("a quote is left open, or there is a line break inside the line")
            columns = [_converted(table.column(field.name), field.type, rows) for field in self.schema]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        except pa.ArrowNotImplementedError as error:
            raise UnreadableTypeError(first_sentence(error)) from None
        except pa.ArrowException as error:
            raise UnfitLinesError(first_sentence(error)) from None
        require_no_nulls(batch)
        return batch

    def problem_of(self, line: bytes) -> str | None:
        try:
            text = line.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            return "it is not UTF-8"
        try:
            cells = next(csv_reader([text], delimiter=self._delimiter, strict=True), [])
        except CsvError:
            return None  # odd quoting is left to the parser
        if len(cells) != len(self._names):
            return f"it has {len(cells)} columns instead of {len(self._names)}"
        for position, name, kind, check in self._checks:
            cell = cells[position]
            if cell in _NULLS:
                continue
            try:
                check(cell)
            except ValueError:
                return f"the column '{name}' holds '{cell}', which is no {kind}"
        return None

    def _note_columns(self) -> None:
        """What depends on the order of the columns in the file."""
        self._convert_options = pa_csv.ConvertOptions(
            column_types={field.name: _read_as(field.type) for field in self.schema},
            include_columns=self.schema.names,
            null_values=_NULLS,
        )
        self._checks = [
            (self._names.index(field.name), field.name, str(field.type), int if pa.types.is_integer(field.type) else float)
            for field in self.schema
            if field.name in self._names and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
        ]

    def _read_options(self, size: int) -> pa_csv.ReadOptions:
        # All in one block: the rows are counted, and a block that ends inside a line would only be parsed twice.
        return pa_csv.ReadOptions(use_threads=False, block_size=size + 1, column_names=self._names)


def header_of(file: Path, block: bytes, delimiter: str, what: str) -> tuple[list[str], int]:
    """The names in the first line, and the length of that line."""
    length = block.find(b"\n") + 1
    line = block[:length].decode(errors="replace").strip("\r\n")
    names = next(csv_reader([line], delimiter=delimiter), [])
    if not any(names):
        raise FlowError(f"{what}: '{file}' does not begin with the names of its columns; add them, or give header=False.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FlowError(f"{what}: the header of '{file}' names the column '{twice}' more than once; rename one of them.")
    return names, length


def infer_csv_schema(files: Sequence[Path], delimiter: str, has_header: bool, what: str) -> pa.Schema:
    """The columns and types in the first lines."""

    def read(file: Path, text: bytes, as_text: Sequence[str]) -> pa.Table | None:
        options = pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1)
        if has_header:
            options.column_names, length = header_of(file, text, delimiter, what)
        else:
            length, options.autogenerate_column_names = 0, True
        lines = text[length:]
        if lines.isspace() or not lines:
            return None
        return pa_csv.read_csv(
            pa.BufferReader(lines),
            options,
            pa_csv.ParseOptions(delimiter=delimiter, invalid_row_handler=lambda _: "skip"),
            pa_csv.ConvertOptions(
                null_values=_NULLS, strings_can_be_null=True, column_types=dict.fromkeys(as_text, pa.string())
            ),
        )

    return infer_schema(files, read, what)


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Timestamps are read as text first: some have more digits than their column, or no zone."""
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _converted(column: pa.ChunkedArray, kind: pa.DataType, rows: int) -> pa.Array:
    values = column.slice(0, rows).combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if not pa.types.is_timestamp(kind):
        return values
    return timestamps_of(pc.if_else(pc.is_in(values, pa.array(_NULLS)), None, values), kind)
