"""Joining two tables: which rows go together, and what the joined rows look like. Vectorised, without state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.grouping import Grouping
from dirigo.flow.rows.schema import apart, require_columns

How = Literal["inner", "left", "right", "outer", "semi", "anti"]
Positions = npt.NDArray[np.int64]


def pairs(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> tuple[Positions, Positions]:
    """The positions (left, right) of all pairs of rows with equal keys. A null equals nothing, and neither does NaN."""
    left, right = [_decoded(column) for column in left], [_decoded(column) for column in right]
    left_rows, right_rows = len(left[0]), len(right[0])
    grouping = Grouping.of(
        [pa.concat_arrays(_alike(one, other)) for one, other in zip(left, right, strict=True)],
        left_rows + right_rows,
    )
    left_codes, right_codes = grouping.codes[:left_rows], grouping.codes[left_rows:]
    order = np.argsort(right_codes, kind="stable")
    ordered = right_codes[order]
    starts = np.searchsorted(ordered, left_codes, side="left")
    counts = np.searchsorted(ordered, left_codes, side="right") - starts
    for column in left:  # which is enough: what equals nothing on the right is grouped only with the like on the left
        if pa.types.is_floating(column.type):
            counts[np.isnan(column.to_numpy(zero_copy_only=False))] = 0  # a null is NaN in numpy
        elif column.null_count:
            counts[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return expand(starts, counts, order)


def _decoded(column: pa.Array) -> pa.Array:
    """The column without a dictionary, which may hide nulls among its values."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _alike(one: pa.Array, other: pa.Array) -> list[pa.Array]:
    common = _common_type(one.type, other.type)
    return [each if each.type == common else each.cast(common) for each in (one, other)]


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type for keys of both types, which are the same or two kinds of integers."""
    if one == other:
        return one
    return pa.decimal128(20) if pa.uint64() in (one, other) else pa.int64()


def _is_nested(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_nested(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _is_nested(kind.storage_type)
    return bool(pa.types.is_nested(kind))


def expand(starts: Positions, counts: Positions, order: Positions) -> tuple[Positions, Positions]:
    """From a range of the ordered right side per left row to pairs of positions."""
    left_positions = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    right_positions = order[np.arange(len(left_positions)) - np.repeat(before - starts, counts)]
    return left_positions, right_positions


class JoinShape:
    """The columns of a join: all of the left side, then those of the right, less its keys where they have the same name."""

    def __init__(
        self,
        what: str,
        left: pa.Schema,
        right: pa.Schema,
        left_on: Sequence[str],
        right_on: Sequence[str],
        how: How = "inner",
        suffix: str = "_right",
    ) -> None:
        if how not in get_args(How):
            raise FlowError(f"{what}: how={how!r} is no kind of join; use one of {', '.join(get_args(How))}.")
        if not left_on or len(left_on) != len(right_on):
            raise FlowError(f"{what}: name as many key columns on the left as on the right, and at least one.")
        require_columns(left, left_on, f"{what}, left side")
        require_columns(right, right_on, f"{what}, right side")
        for one, other in zip(left_on, right_on, strict=True):
            kinds = left.field(one).type, right.field(other).type
            for name, kind in zip((one, other), kinds, strict=True):
                if _is_nested(kind):
                    raise FlowError(
                        f"{what}: the key '{name}' is of type {kind}, but rows cannot be joined by lists, structs or maps; "
                        "compute a text or a number from it with with_columns first."
                    )
            if kinds[0] != kinds[1] and not all(pa.types.is_integer(kind) for kind in kinds):
                raise FlowError(
                    f"{what}: the key '{one}' is {kinds[0]} on the left, but '{other}' is {kinds[1]} on the right; "
                    "cast one of them."
                )
        self.how = how
        self.left_on = tuple(left_on)
        self.right_on = tuple(right_on)
        self.left, self.right = left, right
        sides = ((left, self.left_on), (right, self.right_on))
        self.form = " and ".join(
            f"({', '.join(f'{field.name}: {field.type}' for field in schema)} by {', '.join(keys)})"
            for schema, keys in sides
        )  # what a join keeps of both sides, in a line
        self._shared = {other for one, other in zip(left_on, right_on, strict=True) if one == other}
        self._right_columns = [] if how in ("semi", "anti") else [name for name in right.names if name not in self._shared]
        names = [*left.names, *(f"{name}{suffix}" if name in left.names else name for name in self._right_columns)]
        if len(set(names)) < len(names):
            raise FlowError(f"{what}: both sides have columns of the same name; choose another suffix than '{suffix}'.")
        left_kinds = dict(zip(left.names, left.types, strict=True))
        if how in ("right", "outer"):  # a key may come from either side
            left_kinds |= {name: _common_type(left_kinds[name], right.field(name).type) for name in self._shared}
        kinds_of = [*left_kinds.values(), *(right.field(name).type for name in self._right_columns)]
        self.schema = pa.schema(list(zip(names, kinds_of, strict=True)))

    def kept_schema(self) -> pa.Schema:
        """The columns of rows that wait for partners: the side, the keys, and what else is on the left and on the right."""
        return pa.schema([field for field, _, _ in self._kept_columns()])

    def kept_table(self, left: Sequence[pa.RecordBatch], right: Sequence[pa.RecordBatch]) -> pa.Table:
        """Rows of both sides in these columns, with nulls where a column is of the other side."""
        columns, schema = self._kept_columns(), self.kept_schema()
        parts = []
        for side, batch in [*((0, each) for each in left), *((1, each) for each in right)]:
            arrays: list[pa.Array] = [pa.array([("left", "right")[side]] * batch.num_rows, pa.string())]
            for field, *names in columns[1:]:
                name = names[side]
                arrays.append(
                    pa.nulls(batch.num_rows, field.type) if name is None else _decoded(batch.column(name)).cast(field.type)
                )
            parts.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        return pa.Table.from_batches(parts, schema)

    def _kept_columns(self) -> list[tuple[pa.Field, str | None, str | None]]:
        """Each column with its name on the left and on the right."""
        columns: list[tuple[pa.Field, str | None, str | None]] = []
        for one, other in zip(self.left_on, self.right_on, strict=True):
            kinds = [_plain_type(schema.field(name).type) for schema, name in ((self.left, one), (self.right, other))]
            columns.append((pa.field(one, _common_type(*kinds)), one, other))
        columns += [(field, field.name, None) for field in self.left if field.name not in self.left_on]
        taken = {field.name for field, _, _ in columns}
        for field in self.right:
            if field.name not in self.right_on:
                name = f"{field.name}_right" if field.name in taken else field.name
                columns.append((field.with_name(apart(name, taken)), None, field.name))
                taken.add(columns[-1][0].name)
        plain = [(pa.field(field.name, _plain_type(field.type)), one, other) for field, one, other in columns]
        return [(pa.field(apart("side", taken), pa.string()), None, None), *plain]

    def join(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        """All joined rows of two tables."""
        left_positions, right_positions = pairs(
            [left.column(name) for name in self.left_on], [right.column(name) for name in self.right_on]
        )
        return self.complete(left, right, left_positions, right_positions)

    def complete(
        self, left: pa.RecordBatch, right: pa.RecordBatch, left_positions: Positions, right_positions: Positions
    ) -> pa.RecordBatch:
        """The rows of a join whose matching pairs are known: with what found no partner, where that is asked for."""
        if self.how == "semi":
            return left.take(pa.array(np.unique(left_positions)))
        if self.how == "anti":
            return left.take(pa.array(_missing(left_positions, left.num_rows)))
        if self.how in ("left", "outer"):
            lonely = _missing(left_positions, left.num_rows)
            left_positions = np.concatenate([left_positions, lonely])
            right_positions = np.concatenate([right_positions, np.full(len(lonely), -1)])
        if self.how in ("right", "outer"):
            lonely = _missing(right_positions[right_positions >= 0], right.num_rows)
            left_positions = np.concatenate([left_positions, np.full(len(lonely), -1)])
            right_positions = np.concatenate([right_positions, lonely])
        return self.assemble(left, right, left_positions, right_positions)

    def assemble(
        self, left: pa.RecordBatch, right: pa.RecordBatch, left_positions: Positions, right_positions: Positions
    ) -> pa.RecordBatch:
        """Joined rows from positions; -1 stands for no partner, and gives nulls."""
        left_index, right_index = _index(left_positions), _index(right_positions)
        columns = [left.column(name).take(left_index) for name in left.schema.names]
        if self.how in ("right", "outer"):
            for one, other in zip(self.left_on, self.right_on, strict=True):
                if one == other:
                    at, kind = left.schema.names.index(one), self.schema.field(one).type
                    from_right = right.column(other).take(right_index)
                    columns[at] = pc.coalesce(columns[at].cast(kind), from_right.cast(kind))
        columns += [right.column(name).take(right_index) for name in self._right_columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _missing(positions: Positions, rows: int) -> Positions:
    seen = np.zeros(rows, dtype=bool)
    seen[positions] = True
    return np.flatnonzero(~seen)


def _index(positions: Positions) -> pa.Array:
    return pa.array(positions, mask=positions < 0) if len(positions) and positions.min() < 0 else pa.array(positions)
