"""Results that nobody keeps: for measurements, and for flows that do their work on the way."""

from __future__ import annotations

import pyarrow as pa

from dirigo.flow.sinks.sink import Sink, Writer


def to_nothing(*, name: str = "to_nothing") -> NothingSink:
    """Drop all rows. How many there were is in the job's metrics."""
    return NothingSink(name)


class NothingSink(Sink):
    """Takes rows and keeps none."""

    default_name = "to_nothing"

    def open(self, schema: pa.Schema, partition: int) -> NothingWriter:  # noqa: ARG002
        return NothingWriter()


class NothingWriter(Writer):
    """Keeps nothing."""

    def write(self, batch: pa.RecordBatch) -> None:
        """They are gone."""

    def flush(self) -> None:
        """There is nothing to show."""

    def close(self) -> None:
        """There is nothing to close."""
