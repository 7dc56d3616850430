"""Results handed to a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.row import rows_of
from dirigo.flow.sinks.sink import Sink, Writer


def to_callback(fn: Callable[[Any], object], batches: bool = False, *, name: str = "to_callback") -> CallbackSink:
    """Call `fn(row)` for every row, or with `batches=True` `fn(batch)` for every Arrow batch.

    Every partition calls it on its own, perhaps several at the same time. What it raises ends the job.
    """
    return CallbackSink(fn, batches, name)


class CallbackSink(Sink):
    """Calls a function with the rows or batches."""

    default_name = "to_callback"
    is_outside = True

    def __init__(self, fn: Callable[[Any], object], batches: bool, name: str) -> None:
        super().__init__(name)
        if not callable(fn):
            raise FlowError(
                f"{name}: {type(fn).__name__} is no function; give one that takes a {'batch' if batches else 'row'}."
            )
        self._fn = fn
        self._batches = batches

    def open(self, schema: pa.Schema, partition: int) -> CallbackWriter:  # noqa: ARG002 - rows say it all
        return CallbackWriter(self._fn, self._batches)


class CallbackWriter(Writer):
    """Calls the function at once; nothing waits."""

    def __init__(self, fn: Callable[[Any], object], batches: bool) -> None:
        self._fn = fn
        self._batches = batches

    def write(self, batch: pa.RecordBatch) -> None:
        if self._batches:
            self._fn(batch)
            return
        for row in rows_of(batch):
            self._fn(row)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing waits."""
