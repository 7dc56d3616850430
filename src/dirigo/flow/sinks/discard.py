"""Results that nobody keeps: for measurements, and for flows that do their work on the way."""

from __future__ import annotations

import pyarrow as pa

from dirigo.flow.sinks.sink import Sink, Writer


def discard(*, name: str = "discard") -> DiscardSink:
    """Drop all rows. How many there were is in the job's metrics."""
    return DiscardSink(name)


class DiscardSink(Sink):
    """Takes rows and keeps none."""

    default_name = "discard"

    def open(self, schema: pa.Schema, partition: int) -> DiscardWriter:  # noqa: ARG002
        return DiscardWriter()


class DiscardWriter(Writer):
    """Keeps nothing."""

    def write(self, batch: pa.RecordBatch) -> None:
        """They are gone."""

    def flush(self) -> None:
        """There is nothing to show."""

    def close(self) -> None:
        """There is nothing to close."""
