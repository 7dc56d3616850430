"""Rows out of files: Parquet, CSV and JSON Lines, one file or a folder of them."""

from __future__ import annotations

from collections.abc import Sequence

from dirigo.flow.api.duration import Duration
from dirigo.flow.errors import FlowError
from dirigo.flow.local_path import PathArgument
from dirigo.flow.rows.schema import SchemaLike, as_schema
from dirigo.flow.sources.files.csv_format import CsvFormat, infer_csv_schema
from dirigo.flow.sources.files.json_format import JsonFormat, infer_json_schema
from dirigo.flow.sources.files.parquet_files import ParquetSource
from dirigo.flow.sources.files.paths import files_at
from dirigo.flow.sources.files.text_files import TextSource


def from_parquet(
    path: PathArgument,
    columns: Sequence[str] | None = None,
    *,
    time: str | None = None,
    out_of_orderness: Duration = "0ms",
    idle_after: Duration | None = None,
    name: str = "parquet",
) -> ParquetSource:
    """The rows of a Parquet file, or of all files in a folder. Name the `columns` you need: the others are not even read."""
    return ParquetSource(path, columns, time=time, out_of_orderness=out_of_orderness, idle_after=idle_after, name=name)


def from_csv(
    path: PathArgument,
    schema: SchemaLike | None = None,
    *,
    delimiter: str = ",",
    header: bool = True,
    time: str | None = None,
    out_of_orderness: Duration = "0ms",
    idle_after: Duration | None = None,
    name: str = "csv",
) -> TextSource:
    """The rows of a CSV file, or of all files in a folder; each line is a row, and compressed files are read as well.

    Columns are found by the names in the first line of each file; with `header=False` they come in the order of `schema`.
    Without `schema`, names and types are worked out from the first rows. An empty cell, NULL or null is null, except in a
    column of text. A time without a zone is in UTC.
    """
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise FlowError(f"{name}: {delimiter!r} cannot separate values; give one character.")
    files = files_at(path, name)
    found = infer_csv_schema(files, delimiter, header, name) if schema is None else as_schema(schema, name)
    line_format = CsvFormat(found, delimiter, header, name)
    line_format.check_headers(files)
    return TextSource(files, line_format, time=time, out_of_orderness=out_of_orderness, idle_after=idle_after, name=name)


def from_json_lines(
    path: PathArgument,
    schema: SchemaLike | None = None,
    *,
    time: str | None = None,
    out_of_orderness: Duration = "0ms",
    idle_after: Duration | None = None,
    name: str = "json_lines",
) -> TextSource:
    """The rows of a file with one JSON object per line, or of all files in a folder; compressed files are read as well.

    Without `schema`, columns and types are worked out from the first rows. Fields that are no columns are ignored; a missing
    field is null, or makes the row a bad one if its column is declared as not nullable.
    """
    files = files_at(path, name)
    found = infer_json_schema(files, name) if schema is None else as_schema(schema, name)
    return TextSource(
        files,
        JsonFormat(found, name),
        time=time,
        out_of_orderness=out_of_orderness,
        idle_after=idle_after,
        name=name,
    )
