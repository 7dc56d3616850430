"""A scan: every row is combined with what its key has come to, and the result is emitted at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from dirigo.flow.aggregates.base import plain, plain_type
from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.exchange.edge import ByKey, Exchange
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.exchange.shares import Share
from dirigo.flow.operators.operator import Operator, StateMoment, told_schema
from dirigo.flow.operators.windows.row_functions import combined
from dirigo.flow.plan.states import WholeState
from dirigo.flow.rows.bad_rows import Bad
from dirigo.flow.rows.row import BadRowError, Row, batch_of, rows_of, told
from dirigo.state import restored


class Scan(Operator):
    """One row out for each row in: all rows of its key so far, combined. Ordered, so the function need not commute."""

    kind = "scan"
    is_keyed = True
    is_ordered = True
    needs_order = True
    keeps_users_objects = True

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        time: TimeColumn | None,
        keys: tuple[str, ...],
        function: Callable[[Any, Row], Any],
    ) -> None:
        super().__init__(name, schema, time)
        self.keys = keys
        self._function = function

    def exchange(self, port: int) -> Exchange:
        return ByKey(self.name, self.keys)

    def new_states(self) -> WholeState[dict[Any, Any]]:
        return WholeState(dict)

    @property
    def state_form(self) -> str:
        return f"by {', '.join(self.keys)}: {told_schema(self.schema)}"

    def restore_share(self, states: WholeState[dict[Any, Any]], captures: Sequence[Any], share: Share) -> None:
        kinds = [self.schema.field(key).type for key in self.keys]
        for captured in captures:
            so_far = restored(captured)
            states.value |= {key: so_far[key] for key in share.keys(so_far, kinds, as_tuples=True)}

    def state_schema(self) -> pa.Schema:
        """The key, and what else is in the row that it has come to."""
        names = [*self.keys, *(name for name in self.schema.names if name not in self.keys)]
        return pa.schema([pa.field(name, plain_type(self.schema.field(name).type)) for name in names])

    def state_table(self, states: WholeState[dict[Any, Any]], moment: StateMoment) -> pa.Table:
        so_far, schema = states.value, self.state_schema()
        rows = batch_of(list(so_far.values()), self.schema)
        keys = [pa.array([key[number] for key in so_far], schema.field(number).type) for number in range(len(self.keys))]
        others = [plain(rows.column(name)) for name in schema.names[len(keys) :]]
        return pa.Table.from_arrays([*keys, *others], schema=schema)

    def on_rows(self, states: WholeState[dict[Any, Any]], port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        so_far = states.value
        before = {key: so_far.get(key) for key in self._keys_of(batch)}
        outcome = self._run(so_far, batch, check_each=False)
        if outcome is None:  # a result does not fit: again, row by row, so that it is not combined with later rows
            so_far.update(before)
            outcome = self._run(so_far, batch, check_each=True)
        assert outcome is not None
        rows, bad = outcome
        emitter.bad(bad, self.name)
        emitter.rows(rows)

    def _keys_of(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        return list(zip(*(batch.column(name).to_pylist() for name in self.keys), strict=True))

    def _run(
        self, so_far: dict[Any, Any], batch: pa.RecordBatch, check_each: bool
    ) -> tuple[pa.RecordBatch, list[Bad]] | None:
        """The results and the bad rows; None if a result does not fit the columns, unless each one is looked at."""
        function = self._function
        results: list[Any] = []
        bad: list[Bad] = []
        for key, row in zip(self._keys_of(batch), rows_of(batch), strict=True):
            before = so_far.get(key)
            try:
                result = row.asdict() if before is None else function(before, row)
                after = combined(result, self.schema if check_each else None)
            except Exception as error:  # user code may raise anything
                bad.append(Bad(told(row), error))
                continue
            so_far[key] = after
            results.append(after)
        try:
            return batch_of(results, self.schema), bad
        except BadRowError:
            return None
