"""A join of two whole streams: every row is kept for ever, and joined with all that come later on the other side.

It emits per row from what it keeps, so it is ordered. Its state grows with its input: prefer a window or an interval.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dirigo.flow.exchange.edge import ByKey, Exchange
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.exchange.shares import Share
from dirigo.flow.operators.joins.matching import JoinShape
from dirigo.flow.operators.operator import Operator, StateMoment
from dirigo.flow.plan.states import WholeState
from dirigo.flow.rows.captured_batches import captured_batches, restored_batches
from dirigo.flow.rows.held_bytes import held_bytes

LEFT, RIGHT = 0, 1
_NUMBER_BYTES = 8 + 32  # of a row's number in a list
_KEY_BYTES = 64  # of a key, as a rule


class _Side:
    """All rows of one side, and where each key's are."""

    __slots__ = ("batches", "positions", "rows")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.positions: dict[Any, list[int]] = {}  # key -> numbers of its rows

    def _note(self, keys: list[Any]) -> None:
        positions = self.positions
        for number, key in enumerate(keys, self.rows):
            found = positions.get(key)
            if found is None:
                positions[key] = [number]
            else:
                found.append(number)

    def add(self, batch: pa.RecordBatch, keys: list[Any]) -> None:
        self._note(keys)
        self.batches.append(batch)
        self.rows += batch.num_rows
        # Few batches to take rows from, each at least as large as all after it: every row is copied log(n) times.
        while len(self.batches) > 1 and self.batches[-2].num_rows < 2 * self.batches[-1].num_rows:
            self.batches[-2:] = [pa.concat_batches(self.batches[-2:])]

    def capture(self) -> Any:
        return captured_batches(self.batches)

    def restore(self, captured: Any, keys: tuple[str, ...], share: Share | None = None) -> None:
        """Where each key's rows are follows from the rows. With a share, only those that belong to it come."""
        for each in restored_batches(captured):
            batch = each if share is None else share.rows(each, keys)
            self._note(_keys_of(batch, keys))
            self.batches.append(batch)
            self.rows += batch.num_rows

    def held_bytes(self) -> int:
        """The batches, and for each key a list in a map with the numbers of its rows."""
        lists = len(self.positions) * (sys.getsizeof([]) + _KEY_BYTES) + self.rows * _NUMBER_BYTES
        return sys.getsizeof(self.positions) + lists + sum(map(held_bytes, self.batches))

    def take(self, numbers: list[int]) -> pa.RecordBatch:
        table = pa.Table.from_batches(self.batches).take(pa.array(numbers, pa.int64()))
        return pa.concat_batches(table.to_batches())


class Join(Operator):
    """Pairs of rows with equal keys, each emitted when its later row comes."""

    kind = "join"
    is_keyed = True
    is_ordered = True

    def __init__(self, name: str, shape: JoinShape) -> None:
        super().__init__(name, shape.schema, None)
        self._shape = shape

    def describe(self) -> str:
        on = ", ".join(f"{one} = {other}" for one, other in zip(self._shape.left_on, self._shape.right_on, strict=True))
        return f"join on {on}"

    def exchange(self, port: int) -> Exchange:
        return ByKey(self.name, self._shape.left_on if port == LEFT else self._shape.right_on)

    def new_states(self) -> WholeState[tuple[_Side, _Side]]:
        return WholeState(_new_sides, lambda sides: sum(side.held_bytes() for side in sides), _captured, self._restored)

    def _restored(self, captured: Any) -> tuple[_Side, _Side]:
        sides = _new_sides()
        for side, batches, keys in zip(sides, captured, (self._shape.left_on, self._shape.right_on), strict=True):
            side.restore(batches, keys)
        return sides

    @property
    def state_form(self) -> str:
        return f"all rows of {self._shape.form}"

    def restore_share(self, states: WholeState[tuple[_Side, _Side]], captures: Sequence[Any], share: Share) -> None:
        for captured in captures:
            for side, batches, keys in zip(states.value, captured, (self._shape.left_on, self._shape.right_on), strict=True):
                side.restore(batches, keys, share)

    def state_schema(self) -> pa.Schema:
        return self._shape.kept_schema()

    def state_table(self, states: WholeState[tuple[_Side, _Side]], moment: StateMoment) -> pa.Table:
        """The rows of both sides that are kept."""
        return self._shape.kept_table(*(side.batches for side in states.value))

    def on_rows(self, states: WholeState[tuple[_Side, _Side]], port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        own, other = states.value[port], states.value[1 - port]
        keys = _keys_of(batch, self._shape.left_on if port == LEFT else self._shape.right_on)
        here: list[int] = []
        there: list[int] = []
        find = other.positions.get
        for position, key in enumerate(keys):
            found = find(key)
            if found is not None:
                here += [position] * len(found)
                there += found
        own.add(batch, keys)
        if here:
            matched, everything = batch.take(pa.array(here, pa.int64())), np.arange(len(here))
            partner = other.take(there)
            left, right = (matched, partner) if port == LEFT else (partner, matched)
            emitter.rows(self._shape.assemble(left, right, everything, everything))


def _new_sides() -> tuple[_Side, _Side]:
    return _Side(), _Side()


def _captured(sides: tuple[_Side, _Side]) -> Any:
    return tuple(side.capture() for side in sides) if any(side.rows for side in sides) else None


def _keys_of(batch: pa.RecordBatch, names: tuple[str, ...]) -> list[Any]:
    columns = [batch.column(name).to_pylist() for name in names]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
