"""Where the rows of a dataflow come from."""

from __future__ import annotations

from dirigo.flow.sources.files.files import csv, json_lines, parquet
from dirigo.flow.sources.generator import generator
from dirigo.flow.sources.iterable import from_iterable
from dirigo.flow.sources.paced import paced
from dirigo.flow.sources.shaped import shaped
from dirigo.flow.sources.socket import socket_lines
from dirigo.flow.sources.source import BadRow, Source, SourceBatch, Split

__all__ = [
    "BadRow",
    "Source",
    "SourceBatch",
    "Split",
    "csv",
    "from_iterable",
    "generator",
    "json_lines",
    "paced",
    "parquet",
    "shaped",
    "socket_lines",
]
