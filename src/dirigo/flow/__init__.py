"""What users write: dataflows of operators over Arrow batches and plain Python rows.

Start reading at ``api`` (a flow as it is written) and ``plan`` (what runs, and how the kernel runs it); the operators are in
``operators``, one file or folder each.
"""

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
from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.api.function import Function, FunctionContext
from dirigo.flow.api.keyed_stream import KeyedStream
from dirigo.flow.api.slo import SLO
from dirigo.flow.api.stream import Stream
from dirigo.flow.api.windowed_stream import WindowedStream
from dirigo.flow.errors import FlowError, OperatorFailure, RowFailure
from dirigo.flow.event_time.windows import Session, Sliding, Tumbling
from dirigo.flow.expressions.expression import Expression, col, function, lit, when
from dirigo.flow.operators.windows.row_functions import Group
from dirigo.flow.plan.job import Job
from dirigo.flow.rows.row import Row
from dirigo.flow.sinks import Sink, collect, discard, to_callback, to_console, to_json_lines, to_parquet, to_spark
from dirigo.flow.sources import Source, csv, from_iterable, generator, json_lines, paced, parquet, shaped, socket_lines
from dirigo.flow.sources import load_shapes as loads
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
