"""What is wrong with a flow is said where it is written, in one sentence that names the culprit."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.errors import DirigoError
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.state import CombineError, MapState, ValueState, add
from flow.flows import TS_SCHEMA, event, run_inline

ROWS = [event("a", 1, 0)]


def timed(flow: dg.Dataflow | None = None) -> dg.Stream:
    return (flow or dg.Dataflow("flow")).source(dg.from_iterable(ROWS, time="ts"))


def keyed() -> dg.KeyedStream:
    return timed().key_by("key")


def windowed() -> dg.WindowedStream:
    return keyed().window(dg.Tumbling("1s"))


class Rows(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)


class NoRows(dg.Function):
    pass


class LastSeen(dg.Function):
    scope = "partition"
    last = ValueState(int, default=0)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.last.set(row.value)


class PerKey(dg.Function):
    scope = "partition"
    last = MapState(str, int, default=0)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.last[row.key] = row.value


class WithArgument(dg.Function):
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)


def cycle() -> None:
    stream = timed()
    union = stream.union(name="together")
    union.add(union.filter(dg.col("value") > 1, name="again").map(lambda row: row, TS_SCHEMA, name="once_more"))
    union.sink(dg.to_memory())
    BoundJob(stream.flow)


def no_sink() -> None:
    BoundJob(timed().flow)


def nobody_takes_errors() -> None:
    stream = timed(dg.Dataflow("flow", on_error="side_output"))
    stream.sink(dg.to_memory())
    BoundJob(stream.flow)


def one_name_twice() -> None:
    timed().filter(dg.col("value") > 1, name="same").filter(dg.col("value") > 1, name="same")


def one_sink_twice() -> None:
    stream, out = timed(), dg.to_memory()
    stream.sink(out)
    stream.filter(dg.col("value") > 1).sink(out)


def counted(stream: dg.Stream) -> dg.Stream:
    """Counts with the columns of the stream, and the end of the window as their time."""
    counts = stream.key_by("key").window(dg.Tumbling("1s")).aggregate(value=dg.count())
    return counts.select("key", "value", ts="window_end")


def union_of_rows_and_results() -> None:
    stream = timed()
    stream.union(counted(stream).named("counts"))


def union_of_results_and_rows() -> None:
    stream = timed()
    counted(stream).union(counted(stream), stream)


def joined_by(kind: pa.DataType, **join: object) -> dg.Stream:
    flow = dg.Dataflow("flow")
    schema = pa.schema([("id", kind), ("ts", pa.int64())])
    one, other = (flow.source(dg.from_iterable([], schema, time="ts")) for _ in range(2))
    return one.join(other, on="id", **join)  # type: ignore[arg-type]


def window_join_with_results() -> None:
    stream = timed()
    results = stream.key_by("key").window(dg.Tumbling("1s")).aggregate(n=dg.count())
    stream.join(results, on="key", window=dg.Tumbling("1s"))


PROBLEMS: dict[str, tuple[Callable[[], object], str]] = {
    # the graph
    "cycle": (
        cycle,
        "the graph has a cycle: together -> again -> once_more -> together; do not add to a union what is made from it.",
    ),
    "union of rows and results of windows": (
        union_of_rows_and_results,
        (
            "union: the time 'ts' is the end of a window in 'counts', but not in the others of the union; "
            "union the streams before the windows, or drop that column from all of them."
        ),
    ),
    "union of results of windows and rows": (
        union_of_results_and_rows,
        (
            "union: the time 'ts' is the end of a window in the others of the union, but not in 'rows'; "
            "union the streams before the windows, or drop that column from all of them."
        ),
    ),
    "limit of late rows": (
        lambda: windowed().aggregate(n=dg.count()).late.limited(lessees_max=1),
        "the late rows of 'aggregate' have no operator of their own; limit 'aggregate' itself.",
    ),
    "limit below zero": (
        lambda: timed().limited(lessees_max=-1),
        "'rows': lessees_max must be a whole number, 0 or more, not -1.",
    ),
    "limit that is no number": (
        lambda: timed().limited(lessees_max=True),
        "'rows': lessees_max must be a whole number, 0 or more, not True.",
    ),
    "labels that are none": (
        lambda: dg.Dataflow("flow", labels=["team"]),  # type: ignore[arg-type]
        "dataflow 'flow': labels are texts by name, such as labels={'team': 'ads'}, not ['team'].",
    ),
    "label without a text": (
        lambda: dg.Dataflow("flow", labels={"tier": 1}),  # type: ignore[dict-item]
        "dataflow 'flow': the label 'tier' has to be a text on one line, of at most 200 letters, not 1.",
    ),
    "label of two lines": (
        lambda: dg.Dataflow("flow", labels={"team": "ads\n"}),
        "dataflow 'flow': the label 'team' has to be a text on one line, of at most 200 letters, not 'ads\\n'.",
    ),
    "label with a strange name": (
        lambda: dg.Dataflow("flow", labels={"the team": "ads"}),
        "dataflow 'flow': a label needs a name of letters, digits and . _ + - only, not 'the team'.",
    ),
    "too many labels": (
        lambda: dg.Dataflow("flow", labels={str(number): "" for number in range(33)}),
        "dataflow 'flow': there can be 32 labels, not 33.",
    ),
    "name of late rows": (
        lambda: windowed().aggregate(n=dg.count()).late.named("too_late"),
        ("the late rows of 'aggregate' cannot be named apart from it; name the operator or sink behind them."),
    ),
    "join by lists": (
        lambda: joined_by(pa.list_(pa.int64())),
        (
            "join: the key 'id' is of type list<item: int64>, but rows cannot be joined by lists, structs or maps; "
            "compute a text or a number from it with with_columns first."
        ),
    ),
    "window join by structs": (
        lambda: joined_by(pa.struct([("a", pa.int64())]), window=dg.Tumbling("1s")),
        (
            "join: the key 'id' is of type struct<a: int64>, but rows cannot be joined by lists, structs or maps; "
            "compute a text or a number from it with with_columns first."
        ),
    ),
    "join with a table by a list": (
        lambda: timed().join_table([{"key": ["a"]}], on="key"),
        (
            "join_table: the key 'key' is of type list<item: string>, but rows cannot be joined by lists, structs or maps; "
            "compute a text or a number from it with with_columns first."
        ),
    ),
    "window join with the results of windows": (
        window_join_with_results,
        "join: its rows have a column window_start or window_end already; rename that one first.",
    ),
    "no sink": (no_sink, "dataflow 'flow' has no sink, so nobody would see its results; end a stream with .sink(...)."),
    "errors without sink": (
        nobody_takes_errors,
        "dataflow 'flow' keeps bad rows apart, but nobody takes them; add flow.errors.sink(...), or use on_error='fail'.",
    ),
    "errors of a flow that fails": (
        lambda: timed().flow.errors,
        "dataflow 'flow' fails on the first bad row; make it with on_error='side_output' to have bad rows as a stream.",
    ),
    "one name twice": (
        one_name_twice,
        "dataflow 'flow': there are two operators with the name 'same'; choose another for one of them.",
    ),
    "one sink twice": (
        one_sink_twice,
        "'filter': the sink 'to_memory' takes the rows of 'rows' already; make one of its own, or union the streams before.",
    ),
    "bad name of a flow": (
        lambda: dg.Dataflow("a/b"),
        "a dataflow needs a name of letters, digits and . _ + - only, not 'a/b'.",
    ),
    "bad name of an operator": (
        lambda: timed().filter(dg.col("value") > 1, name="a b"),
        "an operator needs a name of letters, digits and . _ + - only, not 'a b'.",
    ),
    "on_error": (
        lambda: dg.Dataflow("x", on_error="skip"),  # type: ignore[arg-type]
        "dataflow 'x': on_error is 'fail' or 'side_output', not 'skip'.",
    ),
    "partitions": (
        lambda: dg.Dataflow("x", partitions=0),
        "dataflow 'x': partitions must be a whole number, 1 or more, not 0.",
    ),
    "row_bytes_max": (
        lambda: dg.Dataflow("x", row_bytes_max="1MB"),  # type: ignore[arg-type]
        "dataflow 'x': row_bytes_max must be a whole number, 1 or more, not '1MB'.",
    ),
    "slo": (
        lambda: dg.Dataflow("x", slo="200ms"),  # type: ignore[arg-type]
        "dataflow 'x': slo takes an objective such as SLO(latency='200ms'), not '200ms'.",
    ),
    "no source": (
        lambda: dg.Dataflow("x").source([1]),  # type: ignore[arg-type]
        "dataflow 'x': source() takes a source such as from_iterable(rows) or from_parquet(path), not [1].",
    ),
    "splits": (
        lambda: dg.Dataflow("x").source(dg.from_iterable(ROWS), splits=0),
        "dataflow 'x': splits of a source must be a whole number, 1 or more, not 0.",
    ),
    "no sink object": (
        lambda: timed().sink(print),  # type: ignore[arg-type]
        "'rows': sink() takes a sink such as to_parquet(path) or to_console(), not <built-in function print>.",
    ),
    # columns
    "select": (
        lambda: timed().select("valu"),
        "select: there is no column 'valu'; did you mean 'value'? The columns are key, value, ts.",
    ),
    "filter": (
        lambda: timed().filter(dg.col("kye") == "a"),
        "filter: there is no column 'kye'; did you mean 'key'? The columns are key, value, ts.",
    ),
    "key_by": (
        lambda: timed().key_by("keyy"),
        "key_by on 'rows': there is no column 'keyy'; did you mean 'key'? The columns are key, value, ts.",
    ),
    "key_by nothing": (lambda: timed().key_by(), "key_by on 'rows': name at least one column."),
    "key_by twice": (
        lambda: timed().key_by("key", "key"),
        "key_by on 'rows': the column 'key' is named twice; name it once.",
    ),
    "aggregate": (
        lambda: keyed().aggregate(n=dg.sum("vaule")),
        "aggregate 'n': there is no column 'vaule'; did you mean 'value'? The columns are key, value, ts.",
    ),
    "top": (
        lambda: windowed().top(1, by="-walue"),
        "top: there is no column 'walue'; did you mean 'value'? The columns are key, value, ts.",
    ),
    "deduplicate": (
        lambda: timed().deduplicate("x"),
        "deduplicate: there is no column 'x'. The columns are key, value, ts.",
    ),
    "rename to one that is there": (
        lambda: timed().rename(key="value"),
        "rename: there would be two columns with the name 'value'; choose another name.",
    ),
    "select nothing": (lambda: timed().select(), "select: no column would be left; keep at least one."),
    "drop everything": (lambda: timed().drop("key", "value", "ts"), "drop: no column would be left; keep at least one."),
    "types of an expression": (
        lambda: timed().with_columns(twice=dg.col("key") * 2),
        "with_columns: 'key * 2' cannot be computed: this operation does not exist for string, int64.",
    ),
    "a condition that is none": (
        lambda: timed().filter(dg.col("value") + 1),
        "filter: the condition value + 1 is of type int64; compare it with something.",
    ),
    "split by a number": (
        lambda: timed().split(3),  # type: ignore[arg-type]
        "split: takes an expression such as col('price') > 10, or a function of a row, not 3.",
    ),
    "map without function": (lambda: timed().map(3, TS_SCHEMA), "map: takes a function of a row, not 3."),  # type: ignore[arg-type]
    "scan without function": (lambda: keyed().scan(3), "scan: takes a function of two rows, not 3."),  # type: ignore[arg-type]
    "apply without function": (
        lambda: windowed().apply(3, TS_SCHEMA),  # type: ignore[arg-type]
        "apply: takes a function of a Group, not 3.",
    ),
    "map_batches that needs rows": (
        lambda: timed().map_batches(lambda batch: batch.column("x")),
        (
            "map_batches: the function failed on a batch without rows (KeyError: 'Field \"x\" does not exist in schema'); "
            "mend it, or name its columns with schema={...}."
        ),
    ),
    "a result without a type": (
        lambda: timed().map(lambda row: row, {"a": object}),
        "map, column 'a': object has no column type; use int, float, str, bool, bytes, datetime, date or a pyarrow type.",
    ),
    # functions
    "state without combine": (
        lambda: timed().process(LastSeen, TS_SCHEMA),
        (
            "process: the state 'last' of LastSeen cannot be put together when the function runs at several workers; "
            "declare it with combine=... (for example combine=max), or set `ordered = True` in LastSeen."
        ),
    ),
    "map without combine": (
        lambda: keyed().process(PerKey, TS_SCHEMA),
        (
            "process: the state 'last' of PerKey cannot be put together when the function runs at several workers; "
            "declare it with combine=... (for example combine=max), or set `ordered = True` in PerKey."
        ),
    ),
    "function without rows": (
        lambda: timed().process(NoRows, TS_SCHEMA),
        "process: NoRows handles no rows; give it a method on_message(self, context, row).",
    ),
    "function that is none": (
        lambda: timed().process(3, TS_SCHEMA),  # type: ignore[arg-type]
        "process: takes a dirigo.Function (a subclass of it, or an instance), not 3.",
    ),
    "function with arguments": (
        lambda: timed().process(WithArgument, TS_SCHEMA),
        (
            "process: WithArgument() cannot be made (TypeError: WithArgument.__init__() missing 1 required positional "
            "argument: 'limit'); hand over an instance, or a function without arguments that makes one."
        ),
    ),
    "time of a function": (
        lambda: timed().process(Rows, {"at": str}, time="at"),
        "process: the time column 'at' has type string; make it a timestamp, or int64 milliseconds since the epoch.",
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_problem_is_one_clear_sentence(problem: str) -> None:
    build, sentence = PROBLEMS[problem]
    with pytest.raises(dg.FlowError) as error:
        build()
    assert str(error.value) == sentence
    assert isinstance(error.value, DirigoError)


def test_late_rows_that_cannot_be_named_leave_the_name_of_their_window() -> None:
    counts = windowed().aggregate(n=dg.count())
    with pytest.raises(dg.FlowError):
        counts.late.named("too_late")
    assert counts.name == "aggregate"
    assert counts.named("too_late").name == "too_late"  # the name is not taken


def test_a_combine_that_is_none_is_refused_where_it_is_declared() -> None:
    with pytest.raises(CombineError, match=r"^A ValueState needs a function of two values to combine with, not 42\.$"):
        ValueState(int, default=0, combine=42)  # type: ignore[arg-type]


def test_a_default_that_is_not_the_identity_is_refused_where_it_is_declared() -> None:
    with pytest.raises(CombineError, match="cannot have the default 100, because combining it with itself gives 200"):
        ValueState(int, default=100, combine=add)


def test_a_default_that_shows_only_with_data_not_to_be_the_identity_fails_the_row() -> None:
    class Wrong(dg.Function):
        scope = "partition"
        product = ValueState(int, default=0, combine=lambda one, other: one * other)

        def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
            self.product.set(row.value)
            self.product.add(row.value)

    flow = dg.Dataflow("wrong")
    flow.source(dg.from_iterable(ROWS)).process(Wrong, TS_SCHEMA).sink(dg.to_memory())
    with pytest.raises(dg.RowFailure, match="State 'product' does not add up"):
        run_inline(flow)


def test_a_state_without_combine_is_fine_in_an_ordered_function() -> None:
    class OrderedLast(LastSeen):
        ordered = True

    timed().process(OrderedLast, TS_SCHEMA)


def test_sentences_end_and_do_not_show_memory_addresses() -> None:
    for _, sentence in PROBLEMS.values():
        assert sentence.endswith((".", ">."))
        assert not re.search(r"0x[0-9a-f]{6}", sentence)


def test_a_time_of_a_type_that_is_none_is_refused_at_the_source() -> None:
    with pytest.raises(dg.FlowError, match="'at' has type double"):
        dg.from_iterable([{"at": 1.5}], time="at")
    with pytest.raises(dg.FlowError, match="did you mean 'at'"):
        dg.from_iterable([{"at": 1}], pa.schema([("at", pa.int64())]), time="att")
