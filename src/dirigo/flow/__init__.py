"""What users write: dataflows of operators over Arrow batches and plain Python rows.

Start reading at ``graph`` (a flow as it is written), ``plan`` (what runs) and ``stage`` (how the kernel runs it); the
operators are in ``operators``, one file each.
"""

from dirigo.flow import loads
from dirigo.flow.aggregates import (
    Aggregate,
    avg,
    count,
    distinct,
    first,
    histogram,
    last,
    median,
    quantile,
    stddev,
    top,
    variance,
)
from dirigo.flow.aggregates import max_ as max  # noqa: A004  # read as dg.max("price")
from dirigo.flow.aggregates import min_ as min  # noqa: A004
from dirigo.flow.aggregates import sum_ as sum  # noqa: A004
from dirigo.flow.applying import Group
from dirigo.flow.errors import FlowError, OperatorFailure, RowFailure
from dirigo.flow.expression import Expression, col, function, lit, when
from dirigo.flow.functions import Function, FunctionContext
from dirigo.flow.graph import Dataflow
from dirigo.flow.job import Job
from dirigo.flow.keyed import KeyedStream
from dirigo.flow.row import Row
from dirigo.flow.sinks import Sink, collect, discard, to_callback, to_console, to_json_lines, to_parquet, to_spark
from dirigo.flow.slo import SLO
from dirigo.flow.sources import Source, csv, from_iterable, generator, json_lines, paced, parquet, shaped, socket_lines
from dirigo.flow.stream import Stream
from dirigo.flow.windowed import WindowedStream
from dirigo.flow.windows import Session, Sliding, Tumbling
from dirigo.kernel import DirigoError

__all__ = [
    "SLO",
    "Aggregate",
    "Dataflow",
    "DirigoError",
    "Expression",
    "FlowError",
    "Function",
    "FunctionContext",
    "Group",
    "Job",
    "KeyedStream",
    "OperatorFailure",
    "Row",
    "RowFailure",
    "Session",
    "Sink",
    "Sliding",
    "Source",
    "Stream",
    "Tumbling",
    "WindowedStream",
    "avg",
    "col",
    "collect",
    "count",
    "csv",
    "discard",
    "distinct",
    "first",
    "from_iterable",
    "function",
    "generator",
    "histogram",
    "json_lines",
    "last",
    "lit",
    "loads",
    "max",
    "median",
    "min",
    "paced",
    "parquet",
    "quantile",
    "shaped",
    "socket_lines",
    "stddev",
    "sum",
    "to_callback",
    "to_console",
    "to_json_lines",
    "to_parquet",
    "to_spark",
    "top",
    "variance",
    "when",
]
