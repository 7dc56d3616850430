"""The public surface: every name that users write with, listed once. ``import dirigo as dg`` offers just these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dirigo import nexmark, testing
from dirigo.errors import DirigoError
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
from dirigo.flow.api.function import Function
from dirigo.flow.api.function_context import FunctionContext
from dirigo.flow.api.keyed_stream import KeyedStream
from dirigo.flow.api.slo import SLO
from dirigo.flow.api.stream import Stream
from dirigo.flow.api.windowed_stream import WindowedStream
from dirigo.flow.errors import FlowError, OperatorFailure, RowFailure
from dirigo.flow.event_time.windows import Session, Sliding, Tumbling
from dirigo.flow.expressions.expression import Expression, col, lit, udf, when
from dirigo.flow.operators.windows.row_functions import Group
from dirigo.flow.rows.row import Row
from dirigo.flow.sinks import (
    Sink,
    Writer,
    to_callback,
    to_console,
    to_json_lines,
    to_memory,
    to_nothing,
    to_parquet,
    to_spark,
)
from dirigo.flow.sources import (
    BadRow,
    Source,
    SourceBatch,
    Split,
    from_csv,
    from_generator,
    from_iterable,
    from_json_lines,
    from_parquet,
    from_socket,
    paced,
    shaped,
)
from dirigo.flow.sources import load_shapes as loads
from dirigo.kernel import RunnableMessage, SchedulingContext
from dirigo.runtime.client.job import Job
from dirigo.runtime.errors import ControlError, JobFailed, StillRunning
from dirigo.scheduling import (
    DirectSend,
    DirectSendP2C,
    DirectSendRandom,
    Edf,
    Fifo,
    Hybrid,
    RejectSend,
    RejectSendRandom,
    Strategy,
    StrategyExtras,
    Tokens,
)
from dirigo.spark.connection import Service, connect
from dirigo.spark.sessions import register
from dirigo.state import ListState, MapState, ValueState
from dirigo.state.errors import StateError
from dirigo.testing.embedded import run

if TYPE_CHECKING:
    from dirigo.spark.cluster import Cluster
    from dirigo.spark.input.source import from_spark
else:

    def __getattr__(name: str) -> Any:
        """What needs Spark is loaded when it is used: that takes longer than all the rest."""
        if name == "Cluster":
            from dirigo.spark.cluster import Cluster

            return Cluster
        if name == "from_spark":
            from dirigo.spark.input.source import from_spark

            return from_spark
        raise AttributeError(f"module 'dirigo._public' has no attribute '{name}'")


__all__ = [
    "SLO",
    "Aggregate",
    "BadRow",
    "Cluster",
    "ControlError",
    "Dataflow",
    "DirectSend",
    "DirectSendP2C",
    "DirectSendRandom",
    "DirigoError",
    "Edf",
    "Expression",
    "Fifo",
    "FlowError",
    "Function",
    "FunctionContext",
    "Group",
    "Hybrid",
    "Job",
    "JobFailed",
    "KeyedStream",
    "ListState",
    "MapState",
    "OperatorFailure",
    "RejectSend",
    "RejectSendRandom",
    "Row",
    "RowFailure",
    "RunnableMessage",
    "SchedulingContext",
    "Service",
    "Session",
    "Sink",
    "Sliding",
    "Source",
    "SourceBatch",
    "Split",
    "StateError",
    "StillRunning",
    "Strategy",
    "StrategyExtras",
    "Stream",
    "Tokens",
    "Tumbling",
    "ValueState",
    "WindowedStream",
    "Writer",
    "avg",
    "col",
    "connect",
    "count",
    "distinct",
    "first",
    "from_csv",
    "from_generator",
    "from_iterable",
    "from_json_lines",
    "from_parquet",
    "from_socket",
    "from_spark",
    "histogram",
    "last",
    "lit",
    "loads",
    "max",
    "median",
    "min",
    "nexmark",
    "paced",
    "quantile",
    "register",
    "run",
    "shaped",
    "stddev",
    "sum",
    "testing",
    "to_callback",
    "to_console",
    "to_json_lines",
    "to_memory",
    "to_nothing",
    "to_parquet",
    "to_spark",
    "top",
    "udf",
    "variance",
    "when",
]
