"""Where the rows of a dataflow go."""

from __future__ import annotations

from dirigo.flow.sinks.callback import to_callback
from dirigo.flow.sinks.collect import Collected, collect
from dirigo.flow.sinks.console import to_console
from dirigo.flow.sinks.discard import discard
from dirigo.flow.sinks.json_lines import to_json_lines
from dirigo.flow.sinks.parquet import to_parquet
from dirigo.flow.sinks.sink import Sink, Writer
from dirigo.flow.sinks.to_spark import to_spark

__all__ = [
    "Collected",
    "Sink",
    "Writer",
    "collect",
    "discard",
    "to_callback",
    "to_console",
    "to_json_lines",
    "to_parquet",
    "to_spark",
]
