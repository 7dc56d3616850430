"""Results that Spark reads: they are kept in the cluster's results log, from where a DataFrame takes them."""

from __future__ import annotations

from typing import NoReturn

import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.sinks.sink import Sink


def to_spark(*, name: str = "to_spark") -> SparkSink:
    """Keep the rows for `spark.readStream.format("dirigo").option("job", ...)` and `spark.read.format("dirigo")`.

    The log is on the disk of the cluster's driver; its oldest part goes when it is full or old, read or not, so a job never
    waits for its readers.
    """
    return SparkSink(name)


class SparkSink(Sink):
    """Rows for whoever reads the job's results log."""

    default_name = "to_spark"
    is_outside = True
    is_taken_by_client = False

    def open(self, schema: pa.Schema, partition: int) -> NoReturn:  # noqa: ARG002
        raise FlowError(f"{self.name}: only a cluster has a results log; submit the flow to one, or use to_memory().")
