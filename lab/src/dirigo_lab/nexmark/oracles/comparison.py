"""Decides whether two answers to a query hold the same rows, whatever engine gave them, and explains how they differ."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_ROWS_SHOWN = 5
_CHARACTERS_SHOWN = 40


def normalise(table: pa.Table) -> pa.Table:
    """The same rows in the types that all engines share, sorted by all columns; the order of columns is kept."""
    schema = pa.schema([pa.field(field.name, _common_type(field.type)) for field in table.schema])
    # Casts are checked: a value that does not fit raises an error instead of being rounded.
    columns = [column.cast(field.type) for column, field in zip(table.columns, schema, strict=True)]
    converted = pa.Table.from_arrays(columns, schema=schema).combine_chunks()
    if converted.num_columns == 0:
        return converted
    return converted.sort_by([(name, "ascending") for name in converted.column_names])


def difference(left: pa.Table, right: pa.Table, left_name: str, right_name: str) -> str | None:
    """None if both tables hold the same rows equally often, in any order; otherwise a few lines that say what differs."""
    if left.equals(right):
        return None
    left, right = normalise(left), normalise(right)
    if left.schema != right.schema:
        ours, theirs = _described(left.schema), _described(right.schema)
        return f"The columns differ.\n  {left_name} has {ours}\n  {right_name} has {theirs}"
    if left.equals(right):
        return None
    surplus = _surplus(left, right)
    if surplus.num_rows == 0:  # only values that are not equal to themselves, such as NaN
        return None
    lines = [f"The rows differ: {left_name} has {left.num_rows} rows and {right_name} has {right.num_rows}."]
    lines += _shown(surplus.filter(pc.greater(surplus["surplus"], 0)), left_name)
    lines += _shown(surplus.filter(pc.less(surplus["surplus"], 0)), right_name)
    return "\n".join(lines)


def _common_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _common_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ms", tz="UTC")
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(23, 3)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind


def _surplus(left: pa.Table, right: pa.Table) -> pa.Table:
    """Every row that one table has more often, with how much more often `left` has it (negative if it is `right`)."""
    names = left.column_names
    keys = [f"column {place}" for place in range(len(names))]  # so that no name of a query can be taken for the surplus
    tables = [
        table.rename_columns(keys).append_column("surplus", pa.repeat(pa.scalar(sign, pa.int64()), table.num_rows))
        for table, sign in ((left, 1), (right, -1))
    ]
    counted = pa.concat_tables(tables).group_by(keys).aggregate([("surplus", "sum")])
    differing = counted.filter(pc.not_equal(counted["surplus_sum"], 0)).select([*keys, "surplus_sum"])
    return differing.sort_by([(key, "ascending") for key in keys]).rename_columns([*names, "surplus"])


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _shown(rows: pa.Table, name: str) -> list[str]:
    if rows.num_rows == 0:
        return []
    times = [abs(count) for count in rows["surplus"].to_pylist()]
    lines = [f"  {sum(times)} only in {name}" + (", among them:" if rows.num_rows > _ROWS_SHOWN else ":")]
    for row, count in zip(rows.drop_columns("surplus").slice(0, _ROWS_SHOWN).to_pylist(), times, strict=False):
        cells = ", ".join(f"{name}={_cell(value)}" for name, value in row.items())
        lines.append(f"    {cells}" + (f" ({count} times)" if count > 1 else ""))
    return lines


def _cell(value: object) -> str:
    text = str(value)
    return text if len(text) <= _CHARACTERS_SHOWN else text[: _CHARACTERS_SHOWN - 3] + "..."
