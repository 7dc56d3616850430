"""Random operators that need no windows: row by row, by columns, unions, tables, duplicates, and aggregates of it all.

An operator draws its arguments and gives the streams that it makes; none where it does not fit the stream it is given.
"""

from __future__ import annotations

from typing import Any

import dirigo as dg
from dirigo.flow.operators.joins.matching import How
from flow.flows import Rows
from flow.random_flows.arguments import random_aggregates, random_keys
from flow.random_flows.made import Drawing, Made
from flow.random_flows.reference import aggregated, distinct

_TABLE: Rows = [{"key": number // 2, "looked_up": number} for number in range(10)]
_TABLE_JOINS: list[How] = ["inner", "left", "semi", "anti"]


def filter_by_expression(drawing: Drawing, made: Made) -> list[Made]:
    if not made.numbers:
        return []
    column, bound = drawing.rng.choice(made.numbers), drawing.rng.randrange(-5, 20)
    rows = [row for row in made.rows if row[column] is not None and row[column] > bound]
    return [made.then(made.stream.filter(dg.col(column) > bound), rows, f"{column} > {bound}")]


def filter_by_function(drawing: Drawing, made: Made) -> list[Made]:
    if not made.numbers:
        return []
    column, bound = drawing.rng.choice(made.numbers), drawing.rng.randrange(-5, 20)

    def is_large(row: Any) -> bool:
        return bool((row[column] or 0) > bound)

    return [made.then(made.stream.filter(is_large), list(filter(is_large, made.rows)), f"({column} or 0) > {bound}")]


def with_columns(drawing: Drawing, made: Made) -> list[Made]:
    if not made.numbers or "doubled" in made.columns:
        return []
    column = drawing.rng.choice(made.numbers)
    rows = [row | {"doubled": None if row[column] is None else row[column] * 2} for row in made.rows]
    return [made.then(made.stream.with_columns(doubled=dg.col(column) * 2), rows, f"doubled = {column} * 2")]


def rename_time(drawing: Drawing, made: Made) -> list[Made]:
    if made.time is None:
        return []
    old, new = made.time, f"time_{drawing.number}"
    rows = [{(new if name == old else name): value for name, value in row.items()} for row in made.rows]
    return [Made(made.stream.rename(**{old: new}), rows, f"{old} to {new}", new, made.offset_ms)]


def map_rows(drawing: Drawing, made: Made) -> list[Made]:
    return [made.then(made.stream.map(lambda row: row.asdict(), made.stream.schema), made.rows, "every row as it is")]


def flat_map(drawing: Drawing, made: Made) -> list[Made]:
    stream = made.stream.flat_map(lambda row: [row.asdict()] * 2, made.stream.schema)
    return [made.then(stream, made.rows * 2, "every row twice")]


def split(drawing: Drawing, made: Made) -> list[Made]:
    if "key" not in made.columns:
        return []
    yes, no = made.stream.split(dg.col("key") > 2)
    large = [row for row in made.rows if row["key"] is not None and row["key"] > 2]
    rest = [row for row in made.rows if row["key"] is None or row["key"] <= 2]
    return [made.then(no, rest, "not key > 2"), made.then(yes, large, "key > 2")]


def union(drawing: Drawing, made: Made) -> list[Made]:
    """With any stream of the same columns, which may be itself."""
    alike = [
        each
        for each in drawing.pool
        if each.stream.schema.equals(made.stream.schema) and (each.time, each.offset_ms) == (made.time, made.offset_ms)
    ]
    other = drawing.rng.choice(alike)
    described = f"with stream {drawing.number_of(other)}"
    return [made.then(made.stream.union(other.stream), made.rows + other.rows, described)]


def join_table(drawing: Drawing, made: Made) -> list[Made]:
    if "key" not in made.columns or "looked_up" in made.columns:
        return []
    how = drawing.rng.choice(_TABLE_JOINS)
    rows: Rows = []
    for row in made.rows:
        found = [entry["looked_up"] for entry in _TABLE if entry["key"] == row["key"]]
        if how in ("semi", "anti"):
            rows += [row] if bool(found) == (how == "semi") else []
        else:
            rows += [row | {"looked_up": value} for value in found or ([None] if how == "left" else [])]
    return [made.then(made.stream.join_table(_TABLE, "key", how=how), rows, f"{how}, on key")]


def deduplicate(drawing: Drawing, made: Made) -> list[Made]:
    """Rows that are equal in all columns, so that it does not matter which of them comes first."""
    return [made.then(made.stream.deduplicate(), distinct(made.rows), "equal rows")]


def aggregate_whole(drawing: Drawing, made: Made) -> list[Made]:
    if not made.keys:
        return []
    keys = random_keys(drawing, made, at_least=1)
    aggregates = random_aggregates(drawing, made)
    made = made.with_keys(keys)
    stream = made.stream.key_by(*keys).aggregate(aggregates.as_arguments())
    return [Made(stream, aggregated(made.rows, keys, aggregates), f"by {', '.join(keys)}: {aggregates}")]


def aggregate_with_updates(drawing: Drawing, made: Made) -> list[Made]:
    """How often a key is updated depends on when watermarks come; the update that has seen most rows is the last one."""
    if not made.keys:
        return []
    keys = random_keys(drawing, made, at_least=1)
    aggregates = random_aggregates(drawing, made, counts_as="seen")
    made = made.with_keys(keys)
    updates = made.stream.key_by(*keys).aggregate(aggregates.as_arguments(), emit="watermark")
    last = updates.key_by(*keys).top(1, by="-seen")
    return [Made(last, aggregated(made.rows, keys, aggregates), f"by {', '.join(keys)}: {aggregates}")]
