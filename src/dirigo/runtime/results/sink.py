"""The sink that stands, at the workers, for one whose rows are taken outside: it hands them to the results log."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from dirigo.flow.sinks.sink import Sink, Writer
from dirigo.runtime.transport.plain_columns import plain

Post = Callable[[int, pa.RecordBatch | None], None]  # (partition, rows, or None at the end)


class LogSink(Sink):
    """Rows on their way to the log. The worker that runs it says how."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.post: Post | None = None

    def open(self, schema: pa.Schema, partition: int) -> LogWriter:  # noqa: ARG002
        assert self.post is not None, "the worker attaches a log sink before it runs"
        return LogWriter(self.post, partition)


class LogWriter(Writer):
    """One partition's way to the log."""

    def __init__(self, post: Post, partition: int) -> None:
        self._post = post
        self._partition = partition
        self._is_closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._post(self._partition, plain(batch))

    def flush(self) -> None:
        """Rows go as they come."""

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._post(self._partition, None)
