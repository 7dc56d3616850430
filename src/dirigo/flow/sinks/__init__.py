"""Where the rows of a dataflow go."""

from __future__ import annotations

from dirigo.flow.sinks.callback import to_callback
from dirigo.flow.sinks.console import to_console
from dirigo.flow.sinks.json_lines import to_json_lines
from dirigo.flow.sinks.memory import MemorySink, to_memory
from dirigo.flow.sinks.nothing import to_nothing
from dirigo.flow.sinks.parquet import to_parquet
from dirigo.flow.sinks.sink import Sink, Writer
from dirigo.flow.sinks.to_spark import to_spark

__all__ = [
    "MemorySink",
    "Sink",
    "Writer",
    "to_callback",
    "to_console",
    "to_json_lines",
    "to_memory",
    "to_nothing",
    "to_parquet",
    "to_spark",
]
