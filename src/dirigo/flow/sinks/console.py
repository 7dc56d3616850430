"""Results as readable lines on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TextIO

import pyarrow as pa

from dirigo.flow.errors import FlowError, OperatorFailure
from dirigo.flow.rows.unreadable import values_told
from dirigo.flow.sinks.sink import Sink, Writer


def to_console(limit: int | None = None, file: TextIO | None = None, *, name: str = "to_console") -> ConsoleSink:
    """Show rows as lines of `column=value`, at most `limit` of them, on `file` or the standard output."""
    return ConsoleSink(limit, file, name)


class ConsoleSink(Sink):
    """Shows rows. All partitions in a process share the limit."""

    default_name = "to_console"
    is_outside = True

    def __init__(self, limit: int | None, file: TextIO | None, name: str) -> None:
        super().__init__(name)
        if limit is not None and limit < 0:
            raise FlowError(f"{name}: limit is {limit}; give the number of rows to show, or None for all.")
        self.limit = limit
        self._file = file
        self._shown = 0
        self._has_said_more = False
        self._lock = Lock()

    def open(self, schema: pa.Schema, partition: int) -> ConsoleWriter:  # noqa: ARG002 - rows say it all
        return ConsoleWriter(self)

    def show(self, batch: pa.RecordBatch) -> None:
        """Show what the limit leaves of these rows."""
        with self._lock:
            rows = batch.num_rows if self.limit is None else min(batch.num_rows, self.limit - self._shown)
            self._shown += rows
            lines = _lines_of(batch.slice(0, rows))
            if rows < batch.num_rows and not self._has_said_more:
                self._has_said_more = True
                lines.append(f"... only the first {self.limit} rows are shown")
            if lines:
                with self._output() as file:
                    file.write("\n".join(lines) + "\n")

    def flush(self) -> None:
        if self._shown:  # otherwise nothing waits, and perhaps there is nowhere to write
            with self._output() as file:
                file.flush()

    @contextmanager
    def _output(self) -> Iterator[TextIO]:
        # The standard output is looked up now, since it may have been redirected since the sink was made.
        file: TextIO | None = sys.stdout if self._file is None else self._file
        if file is None or getattr(file, "closed", False):
            raise self._failure("it is closed")
        try:
            yield file
        except OSError as error:
            raise self._failure((error.strerror or str(error)).lower()) from error

    def _failure(self, reason: str) -> OperatorFailure:
        where = "the standard output" if self._file is None else "its file"
        return OperatorFailure(f"sink '{self.name}' cannot write to {where} ({reason}); give it another file.")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()


class ConsoleWriter(Writer):
    """Shows the rows of one partition as they come."""

    def __init__(self, sink: ConsoleSink) -> None:
        self._sink = sink

    def write(self, batch: pa.RecordBatch) -> None:
        self._sink.show(batch)

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        self._sink.flush()


def _lines_of(batch: pa.RecordBatch) -> list[str]:
    """One line per row; within a batch, each column is as wide as its widest value."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        cells = [f"{name}={_shown(value)}" for value in values_told(column)]
        width = max(map(len, cells), default=0)
        columns.append([cell.ljust(width) for cell in cells])
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def _shown(value: Any) -> str:
    """A value on one line: a line break in it must not look like a new row."""
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
