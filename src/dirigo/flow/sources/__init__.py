"""Where the rows of a dataflow come from."""

from __future__ import annotations

from dirigo.flow.sources.files.files import from_csv, from_json_lines, from_parquet
from dirigo.flow.sources.generator import from_generator
from dirigo.flow.sources.iterable import from_iterable
from dirigo.flow.sources.paced import paced
from dirigo.flow.sources.shaped import shaped
from dirigo.flow.sources.socket import from_socket
from dirigo.flow.sources.source import BadRow, Source, SourceBatch, Split

__all__ = [
    "BadRow",
    "Source",
    "SourceBatch",
    "Split",
    "from_csv",
    "from_generator",
    "from_iterable",
    "from_json_lines",
    "from_parquet",
    "from_socket",
    "paced",
    "shaped",
]
