"""Streams: what every call on a dataflow gives back, and what the next call is made on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from dirigo.flow.api.arguments import (
    as_column,
    join_windows,
    key_pairs,
    named_columns,
    require_condition,
    require_function,
    returned_schema,
    table_as_batch,
    within_ms,
)
from dirigo.flow.api.dataflow import Dataflow, Node, StreamOutput, check_count
from dirigo.flow.api.duration import Duration, milliseconds, positive_milliseconds
from dirigo.flow.api.function import Function
from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.event_time.windows import Sliding, Tumbling, Window
from dirigo.flow.exchange.emitter import LATE, MAIN
from dirigo.flow.expressions.expression import Expression
from dirigo.flow.operators.align import Align
from dirigo.flow.operators.deduplicate import Deduplicate
from dirigo.flow.operators.joins.interval_join import IntervalJoin
from dirigo.flow.operators.joins.join import Join
from dirigo.flow.operators.joins.matching import How, JoinShape
from dirigo.flow.operators.joins.table_join import TableJoin
from dirigo.flow.operators.joins.window_join import WindowJoin
from dirigo.flow.operators.operator import Operator
from dirigo.flow.operators.pass_through import PassThrough
from dirigo.flow.operators.process.process import Process
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.operators.steps import BatchMap, Flag, Project, RowFilter, RowFlag, RowFlatMap, RowMap, Side, Step, Where
from dirigo.flow.rows.common_types import common_schema
from dirigo.flow.rows.row import Row, batch_of
from dirigo.flow.rows.schema import SchemaLike, as_schema, did_you_mean, require_columns
from dirigo.flow.sinks.sink import Sink

if TYPE_CHECKING:
    from dirigo.flow.api.keyed_stream import KeyedStream
    from dirigo.flow.api.windowed_stream import WindowedStream

Columns = str | Sequence[str]


class Stream:
    """Rows with a schema, and perhaps a time. A stream may be used several times."""

    def __init__(self, flow: Dataflow, output: StreamOutput) -> None:
        self.flow = flow
        self.output = output

    @property
    def name(self) -> str:
        return self.output.node.name

    @property
    def schema(self) -> pa.Schema:
        if self.output.name == LATE:  # late rows are rows of the operator's input
            return Stream(self.flow, self.output.node.inputs[0]).schema
        return self.output.node.work.schema

    @property
    def time(self) -> TimeColumn | None:
        return None if self.output.name == LATE else self.output.node.work.time

    @property
    def late(self) -> Stream:
        """The rows that came too late for the windows of the operator that made this stream."""
        work = self.output.node.work
        if self.output.name != MAIN or not isinstance(work, Operator) or not work.has_late_rows:
            raise FlowError(f"'{self.name}' has no late rows; only windows do, so call .late on the result of one.")
        return Stream(self.flow, StreamOutput(self.output.node, LATE))

    def named(self, name: str) -> Self:
        """The same stream, its operator under another name: in drawings, errors and figures."""
        if self.output.name == LATE:  # which has no operator of its own
            raise FlowError(
                f"the late rows of '{self.name}' cannot be named apart from it; name the operator or sink behind them."
            )
        self.output.node.work.name = self.flow.name_for("", name)
        return self

    def limited(self, *, lessees_max: int) -> Self:
        """The same stream, each actor of its operator at ``lessees_max`` other workers at most; 0: at its home only.

        Steps that run with the operator before them share its actors, and the tightest limit counts. The last call for an
        operator counts.
        """
        if self.output.name == LATE:
            raise FlowError(f"the late rows of '{self.name}' have no operator of their own; limit '{self.name}' itself.")
        check_count(lessees_max, f"'{self.name}': lessees_max", least=0)
        self.output.node.lessees_max = lessees_max
        return self

    if not TYPE_CHECKING:  # or a type checker would take any name for granted

        def __getattr__(self, name: str) -> Any:
            hint = "; call key_by(...) or window(...) first" if name in ("aggregate", "apply", "reduce", "top") else ""
            raise AttributeError(f"a stream has no '{name}'{hint or did_you_mean(name, dir(Stream))}")

    def __repr__(self) -> str:
        return f"<stream '{self.name}' of {', '.join(self.schema.names)}>"

    def _repr_html_(self) -> str:
        """In a notebook: its columns."""
        from dirigo.flow.notebook.flows import stream_html  # which draws flows too, and they are made of streams

        return stream_html(self)

    # --- row by row ----------------------------------------------------------------------------------------------------

    def map(self, function: Callable[[Row], Any], schema: SchemaLike | None = None, *, name: str | None = None) -> Stream:
        """One row out for each row in. ``schema`` names the columns, unless the function's return annotation does."""
        name = self.flow.name_for("map", name)
        require_function(function, name, "of a row")
        return self._step(RowMap(name, returned_schema(function, schema, name), self.time, function))

    def flat_map(
        self, function: Callable[[Row], Iterable[Any] | None], schema: SchemaLike, *, name: str | None = None
    ) -> Stream:
        """Any number of rows out for each row in."""
        name = self.flow.name_for("flat_map", name)
        require_function(function, name, "of a row")
        return self._step(RowFlatMap(name, as_schema(schema, name), self.time, function))

    def filter(self, condition: Expression | Callable[[Row], Any], *, name: str | None = None) -> Stream:
        """The rows for which an expression, or a function, says yes."""
        return self._step(self._filter(condition, self.flow.name_for("filter", name)))

    def _filter(self, condition: Expression | Callable[[Row], Any], name: str) -> Step:
        if isinstance(condition, Expression):
            return Where(name, self.schema, self.time, condition)
        return RowFilter(name, self.schema, self.time, require_condition(condition, name))

    def split(self, condition: Expression | Callable[[Row], Any], *, name: str | None = None) -> tuple[Stream, Stream]:
        """Two streams: the rows for which a condition holds, and the others."""
        name = self.flow.name_for("split", name)
        flag: Step
        if isinstance(condition, Expression):
            flag = Flag(name, self.schema, self.time, condition)
        else:
            flag = RowFlag(name, self.schema, self.time, require_condition(condition, name))
        flagged = self._step(flag)
        return (
            flagged._step(Side(self.flow.name_for(f"{name}.yes", None), flag, True)),
            flagged._step(Side(self.flow.name_for(f"{name}.no", None), flag, False)),
        )

    # --- by columns ----------------------------------------------------------------------------------------------------

    def select(self, /, *columns: Expression | str, **computed: Expression | str | Any) -> Stream:
        """These columns, and computed ones: ``select("auction", (col("price") * 0.908).alias("euros"))``.

        ``euros=col("price") * 0.908`` says the same.
        """
        name = self.flow.name_for("select", None)
        return self._project(name, named_columns(columns, computed, name), keep=False)

    def with_columns(self, /, *columns: Expression | str, **computed: Expression | str | Any) -> Stream:
        """All columns, and computed ones."""
        name = self.flow.name_for("with_columns", None)
        return self._project(name, named_columns(columns, computed, name), keep=True)

    def drop(self, *columns: str, name: str | None = None) -> Stream:
        """All columns but these."""
        name = self.flow.name_for("drop", name)
        require_columns(self.schema, columns, name)
        return self._project(name, {column: column for column in self.schema.names if column not in columns}, keep=False)

    def rename(self, /, **new_names: str) -> Stream:
        """All columns, some under new names: ``rename(seller="person")`` calls the column ``seller`` ``person``."""
        name = self.flow.name_for("rename", None)
        require_columns(self.schema, new_names, name)
        renamed = [new_names.get(old, old) for old in self.schema.names]
        for column in renamed:
            if renamed.count(column) > 1:
                raise FlowError(f"{name}: there would be two columns with the name '{column}'; choose another name.")
        return self._project(name, {new_names.get(old, old): old for old in self.schema.names}, keep=False)

    def _project(self, name: str, columns: Mapping[str, Any], keep: bool) -> Stream:
        if not columns and not keep:
            raise FlowError(f"{name}: no column would be left; keep at least one.")
        given = {column: as_column(value) for column, value in columns.items()}
        require_columns(self.schema, [value for value in given.values() if isinstance(value, str)], name)
        return self._step(Project(name, self.schema, self.time, given, keep))

    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
        schema: SchemaLike | None = None,
        *,
        name: str | None = None,
    ) -> Stream:
        """A function from Arrow batch to Arrow batch, row by row in meaning. Without ``schema`` it is tried on no rows."""
        name = self.flow.name_for("map_batches", name)
        require_function(function, name, "of an Arrow batch")
        if schema is None:
            try:
                schema = function(batch_of([], self.schema)).schema
            except Exception as error:
                raise FlowError(
                    f"{name}: the function failed on a batch without rows ({type(error).__name__}: {error}); "
                    "mend it, or name its columns with schema={...}."
                ) from error
        return self._step(BatchMap(name, as_schema(schema, name), self.time, function))

    # --- together ------------------------------------------------------------------------------------------------------

    def union(self, *others: Stream, name: str | None = None) -> Union:
        """The rows of this stream and of others with the same columns, by name: their order is that of this stream.

        Where types differ, the union has one that holds all values as they are, such as int64 for int32 and int64.
        """
        name = self.flow.name_for("union", name)
        schema = self.schema
        for other in others:
            self._same_flow(other, name)
            schema = common_schema(schema, other.schema, f"{name}: '{other.name}'", widens=True)
        first = self._aligned(schema, name)
        union = Union(self.flow, StreamOutput(self.flow.add(Node(PassThrough(name, first, "union"), [first.output]))))
        for other in others:
            union.add(other)
        return union

    def _aligned(self, schema: pa.Schema, what: str) -> Stream:
        """The same rows with the columns of a union, in its order and types."""
        if self.schema.equals(schema):
            return self
        return self._step(Align(self.flow.name_for(f"{what}.align", None), schema, self.time))

    def join(
        self,
        other: Stream,
        on: Columns | Mapping[str, str],
        *,
        window: Tumbling | Sliding | None = None,
        within: tuple[Duration, Duration] | None = None,
        how: How = "inner",
        suffix: str = "_right",
        name: str | None = None,
    ) -> Stream:
        """Pairs of rows with equal keys: ``on="id"``, or ``on={"seller": "id"}`` where the names differ.

        With ``window``, rows of the same window, emitted when it closes. With ``within=("5s", "10s")``, rows of the other
        stream that happen from 5 s before to 10 s after a row of this one. With neither, all rows for ever, and the state
        grows.
        """
        name = self.flow.name_for("join", name)
        self._same_flow(other, name)
        left_on, right_on = key_pairs(on, name)
        shape = JoinShape(name, self.schema, other.schema, left_on, right_on, how, suffix)
        if window is not None and within is not None:
            raise FlowError(f"{name}: choose either window= or within=, not both.")
        if window is None and how != "inner":
            raise FlowError(
                f"{name}: a join that is not 'inner' must know when a partner can no longer come; give it a window=."
            )
        work: Operator
        if window is not None:
            sides = ((self.schema, self._required_time(name)), (other.schema, other._required_time(name)))
            if {"window_start", "window_end"} & set(shape.schema.names):
                raise FlowError(f"{name}: its rows have a column window_start or window_end already; rename that one first.")
            work = WindowJoin(name, shape, join_windows(window, name), sides)
        elif within is not None:
            times = (self._required_time(name), other._required_time(name))
            before, after = within_ms(within, name)
            work = IntervalJoin(name, shape, times, -before, after)
        else:
            work = Join(name, shape)
        return self._operator(work, self.output, other.output)

    def join_table(
        self,
        table: pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]],
        on: Columns | Mapping[str, str],
        *,
        how: How = "inner",
        suffix: str = "_right",
        name: str | None = None,
    ) -> Stream:
        """Each row with the rows of a bounded table that have its key: an Arrow table, or a list of dicts."""
        name = self.flow.name_for("join_table", name)
        if how not in ("inner", "left", "semi", "anti"):
            raise FlowError(f"{name}: a join with a table is 'inner', 'left', 'semi' or 'anti', not {how!r}.")
        rows = table_as_batch(table, name)
        left_on, right_on = key_pairs(on, name)
        shape = JoinShape(name, self.schema, rows.schema, left_on, right_on, how, suffix)
        return self._step(TableJoin(name, shape, self.time, rows))

    # --- keys, windows, state ------------------------------------------------------------------------------------------

    def key_by(self, /, *columns: Expression | str, **computed: Expression | str | Any) -> KeyedStream:
        """The same rows, by key: what follows is done for each key on its own.

        A key that is computed becomes a column: ``key_by("shop", day=col("at").floor_time("1d"))``.
        """
        from dirigo.flow.api.keyed_stream import KeyedStream  # which is built on streams

        what = f"key_by on '{self.name}'"
        if not columns and not computed:
            raise FlowError(f"{what}: name at least one column.")
        for column in columns:
            if not isinstance(column, str | Expression):
                raise FlowError(f"{what}: takes names of columns and expressions, not {column!r}.")
        given = {column: as_column(value) for column, value in named_columns(columns, computed, what).items()}
        new = {column: value for column, value in given.items() if isinstance(value, Expression) or value != column}
        require_columns(self.schema, [value for value in given.values() if isinstance(value, str)], what)
        for column in new:
            if column in self.schema.names:
                raise FlowError(f"{what}: there is a column '{column}' already; give the computed key another name.")
        stream = self._project(self.flow.name_for("key_by", None), new, keep=True) if new else self
        return KeyedStream(stream, tuple(given))

    def window(self, window: Window, *, allowed_lateness: Duration = "0ms") -> WindowedStream:
        """Windows over all rows together; see ``key_by`` for windows per key."""
        from dirigo.flow.api.windowed_stream import WindowedStream  # which is built on streams

        return WindowedStream(self, (), window, milliseconds(allowed_lateness, "allowed_lateness"))

    def deduplicate(self, *columns: str, within: Duration | None = None, name: str | None = None) -> Stream:
        """The first row of each combination of these columns; with ``within``, the first in each such stretch of time."""
        name = self.flow.name_for("deduplicate", name)
        keys = columns or tuple(self.schema.names)
        require_columns(self.schema, keys, name)
        within_ms = None
        if within is not None:
            within_ms = positive_milliseconds(within, f"{name}: within")
            self._required_time(name)
        return self._operator(Deduplicate(name, self.schema, self.time, keys, within_ms), self.output)

    def process(
        self,
        function: Function | type[Function] | Callable[[], Function],
        schema: SchemaLike,
        *,
        name: str | None = None,
        time: str | None = None,
    ) -> Stream:
        """A function of your own, with states, timers and critical messages; ``time`` names the time among its columns."""
        return self._process(function, schema, (), name, time)

    def _process(
        self, function: Any, schema: SchemaLike, keys: tuple[str, ...], name: str | None, time: str | None
    ) -> Stream:
        name = self.flow.name_for("process", name)
        out = as_schema(schema, name)
        column = None if time is None else TimeColumn.of(out, time, name)
        return self._operator(Process(name, out, column, keys, function, self.schema, self.time), self.output)

    def sink(self, sink: Sink, *, name: str | None = None) -> None:
        """Where the rows go."""
        if not isinstance(sink, Sink):
            raise FlowError(f"'{self.name}': sink() takes a sink such as to_parquet(path) or to_console(), not {sink!r}.")
        for node in self.flow.nodes:
            if isinstance(node.work, SinkRows) and node.work.sink is sink:
                raise FlowError(
                    f"'{self.name}': the sink '{sink.name}' takes the rows of '{node.inputs[0].node.name}' already; "
                    "make one of its own, or union the streams before."
                )
        if name is None and sink.name != sink.default_name:
            name = sink.name
        self._operator(SinkRows(self.flow.name_for(sink.name, name), self.schema, sink), self.output)

    # --- inside --------------------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> Stream:
        return Stream(self.flow, StreamOutput(self.flow.add(Node(step, [self.output]))))

    def _operator(self, operator: Operator, *inputs: StreamOutput) -> Stream:
        return Stream(self.flow, StreamOutput(self.flow.add(Node(operator, list(inputs)))))

    def _required_time(self, what: str) -> TimeColumn:
        if self.time is None:
            loser = self._lost_time_at()
            if loser is not None:
                column = loser.inputs[0].node.work.time
                assert column is not None
                how = (
                    f"makes its time '{column.name}' something else"
                    if column.name in loser.work.schema.names
                    else (f"leaves out its time '{column.name}'")
                )
                raise FlowError(
                    f"{what}: the stream '{self.name}' has no time, since '{loser.name}' {how}; keep that column as it is, "
                    "rename it, or cast it to another timestamp."
                )
            raise FlowError(
                f"{what}: the stream '{self.name}' has no time; "
                "name its time column at the source or in process() (time='...'), and keep that column."
            )
        return self.time

    def _lost_time_at(self) -> Node | None:
        """The step where the time of the rows was lost, if they had one."""
        node = self.output.node
        while self.output.name == MAIN and isinstance(node.work, Step) and node.work.time is None:
            upstream = node.inputs[0]
            if upstream.name != MAIN:
                return None
            if upstream.node.work.time is not None:
                return node
            node = upstream.node
        return None

    def _same_flow(self, other: Stream, what: str) -> None:
        if not isinstance(other, Stream):
            raise FlowError(f"{what}: takes a stream, not {other!r}.")
        if other.flow is not self.flow:
            raise FlowError(
                f"{what}: the streams '{self.name}' and '{other.name}' belong to different dataflows; make both from one."
            )


class Union(Stream):
    """Streams that were put together; more can be added."""

    def add(self, other: Stream) -> None:
        self._same_flow(other, self.name)
        common_schema(self.schema, other.schema, f"{self.name}: '{other.name}'", widens=False)
        if self.time is not None and (other.time is None or other.time.name != self.time.name):
            raise FlowError(f"{self.name}: '{other.name}' has no time '{self.time.name}' like the others of the union.")
        if self.time is not None and other.time is not None and other.time.offset_ms != self.time.offset_ms:
            # One of them would be read with the offset of the other, and its rows would fall into the wrong windows.
            ends, others = f"'{other.name}'", "the others of the union"
            if other.time.offset_ms == 0:
                ends, others = others, ends
            raise FlowError(
                f"{self.name}: the time '{self.time.name}' is the end of a window in {ends}, but not in {others}; "
                "union the streams before the windows, or drop that column from all of them."
            )
        self.output.node.inputs.append(other._aligned(self.schema, self.name).output)
