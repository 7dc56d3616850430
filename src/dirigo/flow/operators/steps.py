"""Stateless steps: what happens to a batch on its way, in a vectorised form and in a form for plain Python functions.

A step has no actor of its own where it can be fused to the operator before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.errors import FlowError, note_place
from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.exchange.emitter import Branch, Emitter
from dirigo.flow.expressions.expression import Expression, casts_of, type_of
from dirigo.flow.rows.bad_rows import Bad, try_each_part
from dirigo.flow.rows.own_memory import owned
from dirigo.flow.rows.row import BadRowError, Row, batch_of, rows_of, told
from dirigo.flow.rows.unreadable import rows_told

RowFunction = Callable[[Row], Any]


class Step:
    """A stateless operator. ``schema`` and ``time`` describe what comes out."""

    kind = "step"
    is_cheap = True  # vectorised: may be fused to an operator that runs alone at a barrier

    def __init__(self, name: str, schema: pa.Schema, time: TimeColumn | None) -> None:
        self.name = name
        self.schema = schema
        self.time = time

    def describe(self) -> str:
        return self.kind

    def run(self, batch: pa.RecordBatch, emitter: Emitter) -> pa.RecordBatch:
        """The batch after this step; rows that cannot be handled go to the emitter."""
        try:
            return self.apply(batch)
        except Exception as error:  # user code may raise anything
            good, bad = try_each_part(self.apply, batch, error)
            emitter.bad(bad, self.name)
            return pa.concat_batches(good) if good else batch_of([], self.schema)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        raise NotImplementedError


class StepBranch:
    """A step as part of a stage's tree of outputs."""

    __slots__ = ("branches", "step")

    def __init__(self, step: Step) -> None:
        self.step = step
        self.branches: list[Branch] = []

    def push(self, batch: pa.RecordBatch, emitter: Emitter) -> None:
        try:
            out = self.step.run(batch, emitter)
        except Exception:
            raise
        except BaseException as error:
            note_place(error, self.step.name)
            raise
        if out.num_rows:
            for branch in self.branches:
                branch.push(out, emitter)


class Project(Step):
    """Columns chosen and computed: ``select`` and ``with_columns``."""

    kind = "select"

    def __init__(
        self, name: str, schema: pa.Schema, time: TimeColumn | None, columns: Mapping[str, Expression | str], keep: bool
    ) -> None:
        computed = {
            column: value if isinstance(value, str) else (value, type_of(value, schema, name))
            for column, value in columns.items()
        }
        kept = {field.name: field.name for field in schema} if keep else {}
        self._columns: dict[str, str | tuple[Expression, pa.DataType]] = {**kept, **computed}
        fields = [
            pa.field(column, schema.field(value).type if isinstance(value, str) else value[1])
            for column, value in self._columns.items()
        ]
        super().__init__(name, pa.schema(fields), self._time_after(time))

    def _time_after(self, time: TimeColumn | None) -> TimeColumn | None:
        """The time column may be renamed, or cast to another type of time; a stream without it has no time any more."""
        if time is None:
            return None
        times = {column: kept for column, value in self._columns.items() if (kept := _time_in(value, time)) is not None}
        name = time.name if time.name in times else next(iter(times), None)
        return None if name is None else replace(times[name], name=name)

    def describe(self) -> str:
        names = ", ".join(self._columns)
        return f"select {names}" if len(names) <= 40 else f"select {len(self._columns)} columns"

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            batch.column(value) if isinstance(value, str) else value[0].evaluate(batch) for value in self._columns.values()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _time_in(value: str | tuple[Expression, pa.DataType], time: TimeColumn) -> TimeColumn | None:
    """The time as it is in a column that is chosen or computed, if these are its values."""
    column, types = (value, []) if isinstance(value, str) else casts_of(value[0]) or ("", [])
    return time.cast(types) if column == time.name else None


def require_condition_type(condition: Expression, schema: pa.Schema, name: str) -> None:
    """Refuse an expression that is neither true nor false."""
    kind = type_of(condition, schema, name)
    if not pa.types.is_boolean(kind):
        raise FlowError(f"{name}: the condition {condition} is of type {kind}; compare it with something.")


class Where(Step):
    """Rows for which an expression holds."""

    kind = "filter"

    def __init__(self, name: str, schema: pa.Schema, time: TimeColumn | None, condition: Expression) -> None:
        require_condition_type(condition, schema, name)
        super().__init__(name, schema, time)
        self._condition = condition

    def describe(self) -> str:
        return f"filter {self._condition}"

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(self._condition.evaluate(batch))


SIDE = "__side"


class Flag(Step):
    """The first half of a split: each row with whether an expression holds for it. Null counts as no."""

    kind = "split"

    def __init__(self, name: str, schema: pa.Schema, time: TimeColumn | None, condition: Expression) -> None:
        require_condition_type(condition, schema, name)
        self._condition = condition
        super().__init__(name, schema.append(pa.field(SIDE, pa.bool_())), time)

    def describe(self) -> str:
        return f"split by {self._condition}"

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        flags = pc.fill_null(self._condition.evaluate(batch), False)
        return pa.RecordBatch.from_arrays([*batch.columns, flags], schema=self.schema)


class Side(Step):
    """The second half of a split: the rows on one side."""

    kind = "side"

    def __init__(self, name: str, flagged: Step, wanted: bool) -> None:
        super().__init__(name, flagged.schema.remove(len(flagged.schema) - 1), flagged.time)
        self._wanted = wanted

    def describe(self) -> str:
        return "yes" if self._wanted else "no"

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        flags = batch.column(batch.num_columns - 1)
        rows = pa.RecordBatch.from_arrays(batch.columns[:-1], schema=self.schema)
        return rows.filter(flags if self._wanted else pc.invert(flags))


class BatchMap(Step):
    """A user's function from batch to batch."""

    kind = "map_batches"
    is_cheap = False

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        time: TimeColumn | None,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> None:
        super().__init__(name, schema, None if time is None else time.in_schema(schema))
        self._function = function

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        out = self._function(batch)
        if not isinstance(out, pa.RecordBatch):
            raise TypeError(f"the function returned a {type(out).__name__}, not a pyarrow.RecordBatch")
        if not out.schema.equals(self.schema):
            out = pa.RecordBatch.from_arrays(
                [out.column(field.name).cast(field.type) for field in self.schema], schema=self.schema
            )
        return owned(out)


class _RowStep(Step):
    """A user's function called once per row; only the row that raises is bad."""

    is_cheap = False

    def __init__(self, name: str, schema: pa.Schema, time: TimeColumn | None, function: RowFunction) -> None:
        super().__init__(name, schema, None if time is None else time.in_schema(schema))
        self._function = function

    def describe(self) -> str:
        return f"{self.kind} {getattr(self._function, '__name__', type(self._function).__name__)}"


class RowFilter(_RowStep):
    """Rows for which a function says yes."""

    kind = "filter"

    def run(self, batch: pa.RecordBatch, emitter: Emitter) -> pa.RecordBatch:
        function = self._function
        keep: list[bool] = []
        bad: list[Bad] = []
        for row in rows_of(batch):
            try:
                keep.append(bool(function(row)))
            except Exception as error:  # user code may raise anything
                keep.append(False)
                bad.append(Bad(told(row), error))
        emitter.bad(bad, self.name)
        return batch.filter(pa.array(keep, pa.bool_()))


class RowFlag(_RowStep):
    """As ``Flag``, with a function."""

    kind = "split"

    def __init__(self, name: str, schema: pa.Schema, time: TimeColumn | None, function: RowFunction) -> None:
        super().__init__(name, schema.append(pa.field(SIDE, pa.bool_())), time, function)

    def run(self, batch: pa.RecordBatch, emitter: Emitter) -> pa.RecordBatch:
        function = self._function
        flags: list[bool | None] = []
        bad: list[Bad] = []
        for row in rows_of(batch):
            try:
                flags.append(bool(function(row)))
            except Exception as error:  # user code may raise anything
                flags.append(None)
                bad.append(Bad(told(row), error))
        emitter.bad(bad, self.name)
        column = pa.array(flags, pa.bool_())
        flagged = pa.RecordBatch.from_arrays([*batch.columns, column], schema=self.schema)
        return flagged.filter(column.is_valid()) if bad else flagged


class RowMap(_RowStep):
    """One row out for each row in."""

    kind = "map"

    def run(self, batch: pa.RecordBatch, emitter: Emitter) -> pa.RecordBatch:
        function = self._function
        results: list[Any] = []
        bad: list[Bad] = []
        failed: set[int] = set()
        for row in rows_of(batch):
            try:
                results.append(function(row))
            except Exception as error:  # user code may raise anything
                failed.add(len(results) + len(bad))
                bad.append(Bad(told(row), error))
        out = fitting(
            results, self.schema, bad, batch, lambda: [each for each in range(batch.num_rows) if each not in failed]
        )
        emitter.bad(bad, self.name)
        return out


class RowFlatMap(_RowStep):
    """Any number of rows out for each row in."""

    kind = "flat_map"

    def run(self, batch: pa.RecordBatch, emitter: Emitter) -> pa.RecordBatch:
        function = self._function
        origins: list[int] = []
        results: list[Any] = []
        bad: list[Bad] = []
        for position, row in enumerate(rows_of(batch)):
            try:
                produced = _as_list(function(row))
            except Exception as error:  # user code may raise anything
                bad.append(Bad(told(row), error))
                continue
            results += produced
            origins += [position] * len(produced)
        out = fitting(results, self.schema, bad, batch, lambda: origins)
        emitter.bad(bad, self.name)
        return out


def _as_list(produced: Iterable[Any] | None) -> list[Any]:
    return [] if produced is None else list(produced)


def fitting(
    results: list[Any],
    schema: pa.Schema,
    bad: list[Bad],
    batch: pa.RecordBatch | None = None,
    origins: Callable[[], Sequence[int]] | None = None,
) -> pa.RecordBatch:
    """Python rows as a batch; those that do not fit the schema are added to ``bad``.

    They are told by the rows of ``batch`` that they came from, whose positions ``origins`` gives, if there is one.
    """
    try:
        return batch_of(results, schema)
    except BadRowError:
        good = []
        came_from = origins() if origins is not None else ()
        for position, result in enumerate(results):
            try:
                good.append(batch_of([result], schema))
            except BadRowError as error:
                origin = rows_told(batch.slice(came_from[position], 1))[0] if batch is not None else str(result)
                bad.append(Bad(origin, f"it became {result!r}, which does not fit: {error}"))
        return pa.concat_batches(good) if good else batch_of([], schema)
