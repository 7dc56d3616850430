"""What every operator means, in plain Python: one naive function each, over lists of rows whose times are milliseconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flow.flows import Rows

Row = dict[str, Any]
Key = tuple[Any, ...]
TimeOf = Callable[[Row], int]
Span = tuple[int, int]


# --- groups and aggregates ---------------------------------------------------------------------------------------------


def key_of(row: Row, columns: Iterable[str]) -> Key:
    return tuple(row[column] for column in columns)


def grouped(rows: Rows, keys: Sequence[str]) -> dict[Key, Rows]:
    groups: dict[Key, Rows] = defaultdict(list)
    for row in rows:
        groups[key_of(row, keys)].append(row)
    return groups


@dataclass(frozen=True)
class Aggregate:
    """A function of the values of a column that are not null; a count has no column, and counts rows."""

    function: str
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.function}({self.column or ''})"

    def of(self, rows: Rows) -> int | None:
        if self.column is None:
            return len(rows)
        values = [row[self.column] for row in rows if row[self.column] is not None]
        if self.function == "distinct":
            return len(set(values))
        functions: dict[str, Callable[[list[int]], int]] = {"sum": sum, "min": min, "max": max}
        return functions[self.function](values) if values else None


Aggregates = Mapping[str, Aggregate]


def aggregated(rows: Rows, keys: Sequence[str], aggregates: Aggregates) -> Rows:
    """One row per key."""
    return [
        dict(zip(keys, key, strict=True)) | {name: aggregate.of(group) for name, aggregate in aggregates.items()}
        for key, group in grouped(rows, keys).items()
    ]


def best(rows: Rows, keys: Sequence[str], column: str, count: int) -> Rows:
    """The keys and the value of the rows of each key with the largest values; nulls come last."""
    return [
        {name: row[name] for name in (*keys, column)}
        for group in grouped(rows, keys).values()
        for row in sorted(group, key=lambda row: (row[column] is None, -(row[column] or 0)))[:count]
    ]


def distinct(rows: Rows) -> Rows:
    """Every row once."""
    return list({tuple(row.items()): row for row in rows}.values())


# --- windows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Windows of a size that start at regular times: tumbling if one starts as the last one ends, or else sliding."""

    size_ms: int
    every_ms: int
    offset_ms: int

    def spans_at(self, time_ms: int) -> list[Span]:
        """The windows that a moment lies in."""
        start = (time_ms - self.offset_ms) // self.every_ms * self.every_ms + self.offset_ms
        spans = []
        while start + self.size_ms > time_ms:
            spans.append((start, start + self.size_ms))
            start -= self.every_ms
        return spans

    def of(self, rows: Rows, time_of: TimeOf) -> dict[Span, Rows]:
        by_span: dict[Span, Rows] = defaultdict(list)
        for row in rows:
            for span in self.spans_at(time_of(row)):
                by_span[span].append(row)
        return by_span


def bounded(rows: Iterable[Row], span: Span) -> Rows:
    """Rows with the bounds of their window."""
    return [{**row, "window_start": span[0], "window_end": span[1]} for row in rows]


def per_window(rows: Rows, time_of: TimeOf, windows: Windows, summarise: Callable[[Rows], Rows]) -> Rows:
    """What a function makes of the rows of each window."""
    return [row for span, inside in windows.of(rows, time_of).items() for row in bounded(summarise(inside), span)]


def sessions(rows: Rows, time_of: TimeOf, keys: Sequence[str], gap_ms: int, aggregates: Aggregates) -> Rows:
    """The rows of each key cut where nothing happens for longer than the gap; a session ends a gap after its last row."""
    results: Rows = []
    for group in grouped(rows, keys).values():
        stretches: list[Rows] = []
        for row in sorted(group, key=time_of):
            if not stretches or time_of(row) - time_of(stretches[-1][-1]) > gap_ms:
                stretches.append([])
            stretches[-1].append(row)
        for stretch in stretches:
            span = time_of(stretch[0]), time_of(stretch[-1]) + gap_ms
            results += bounded(aggregated(stretch, keys, aggregates), span)
    return results


# --- joins -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JoinColumns:
    """The columns of a join: keys, those of the left side, and those of the right under their new names."""

    on: Sequence[str]
    left: Sequence[str]
    right: Mapping[str, str]  # name on the right -> name in the result

    def pair(self, left: Row, right: Row) -> Row:
        return {**left, **{new: right[old] for old, new in self.right.items()}}

    def left_alone(self, left: Row) -> Row:
        return {**left, **dict.fromkeys(self.right.values())}

    def right_alone(self, right: Row) -> Row:
        return {**dict.fromkeys(self.left), **{name: right[name] for name in self.on}, **self.pair({}, right)}


def joined(left: Rows, right: Rows, columns: JoinColumns, how: str) -> Rows:
    """All kinds of joins of two tables. A null equals nothing, not even another one."""
    partners: dict[Key, list[int]] = defaultdict(list)
    for number, row in enumerate(right):
        key = key_of(row, columns.on)
        if None not in key:
            partners[key].append(number)
    results: Rows = []
    taken: set[int] = set()
    for row in left:
        found = partners.get(key_of(row, columns.on), [])
        taken.update(found)
        if how in ("semi", "anti"):
            results += [row] if bool(found) == (how == "semi") else []
        else:
            results += [columns.pair(row, right[number]) for number in found]
            if not found and how in ("left", "outer"):
                results.append(columns.left_alone(row))
    if how in ("right", "outer"):
        results += [columns.right_alone(row) for number, row in enumerate(right) if number not in taken]
    return results
