"""Random operators on windows: tumbling, sliding and sessions, with and without keys, also on the results of others."""

from __future__ import annotations

from typing import Any

import dirigo as dg
from dirigo.flow.api.windowed_stream import WindowedStream
from flow.flows import Rows
from flow.random_flows.arguments import as_argument, random_aggregates, random_keys, random_windows, without_bounds
from flow.random_flows.made import Drawing, Made, window_result
from flow.random_flows.reference import Aggregate, Windows, aggregated, best, per_window, sessions


class _Windowed:
    """A stream with random keys and windows."""

    def __init__(self, drawing: Drawing, made: Made) -> None:
        made = without_bounds(drawing, made)
        self.keys = random_keys(drawing, made)
        self.made = made.with_keys(self.keys)
        self.windows: Windows = random_windows(drawing)
        window = as_argument(self.windows)
        keyed = self.made.stream.key_by(*self.keys) if self.keys else self.made.stream
        self.stream: WindowedStream = keyed.window(window)
        self.described = f"{window} by {', '.join(self.keys) or 'nothing'}"


def aggregate_windows(drawing: Drawing, made: Made) -> list[Made]:
    if made.time is None:
        return []
    windowed = _Windowed(drawing, made)
    aggregates = random_aggregates(drawing, windowed.made)

    def summarise(rows: Rows) -> Rows:
        return aggregated(rows, windowed.keys, aggregates)

    rows = per_window(windowed.made.rows, windowed.made.time_of, windowed.windows, summarise)
    stream = windowed.stream.aggregate(aggregates.as_arguments())
    return [window_result(stream, rows, f"{windowed.described}: {aggregates}")]


def apply_to_windows(drawing: Drawing, made: Made) -> list[Made]:
    """The number of rows of each window and key, and where the function says that the window starts."""
    if made.time is None:
        return []
    windowed = _Windowed(drawing, made)

    def counted(group: Any) -> list[dict[str, int]]:
        return [{"counted": len(group), "start_time": group.start_ms}]

    def summarise(rows: Rows) -> Rows:
        counts = aggregated(rows, windowed.keys, {"counted": Aggregate("count")})
        return [{"counted": row["counted"]} for row in counts]

    rows = per_window(windowed.made.rows, windowed.made.time_of, windowed.windows, summarise)
    rows = [row | {"start_time": row["window_start"]} for row in rows]
    stream = windowed.stream.apply(counted, {"counted": int, "start_time": int})
    return [window_result(stream, rows, windowed.described)]


def top_of_windows(drawing: Drawing, made: Made) -> list[Made]:
    """Only the keys and the ranked column are looked at: which of two equal rows is chosen is not the reference's affair."""
    if made.time is None:
        return []
    windowed = _Windowed(drawing, made)
    columns = [column for column in windowed.made.numbers if column not in windowed.keys]
    if not columns:
        return []
    column, count = drawing.rng.choice(columns), drawing.rng.randrange(1, 4)

    def summarise(rows: Rows) -> Rows:
        return best(rows, windowed.keys, column, count)

    rows = per_window(windowed.made.rows, windowed.made.time_of, windowed.windows, summarise)
    ranked = windowed.stream.top(count, by=f"-{column}", window_columns=True)
    stream = ranked.select(*windowed.keys, column, "window_start", "window_end")
    return [window_result(stream, rows, f"{windowed.described}: {count} by -{column}")]


def reduce_windows(drawing: Drawing, made: Made) -> list[Made]:
    """A sum of a column without nulls, written as a function of two rows."""
    if made.time is None:
        return []
    windowed = _Windowed(drawing, made)
    columns = [
        column
        for column in windowed.made.numbers
        if column not in windowed.keys and all(row[column] is not None for row in windowed.made.rows)
    ]
    if not columns:
        return []
    column = drawing.rng.choice(columns)
    names = windowed.made.columns

    def added(one: Any, other: Any) -> dict[str, Any]:
        return {name: one[name] for name in names} | {column: one[column] + other[column]}

    def summarise(rows: Rows) -> Rows:
        return aggregated(rows, windowed.keys, {column: Aggregate("sum", column)})

    rows = per_window(windowed.made.rows, windowed.made.time_of, windowed.windows, summarise)
    stream = windowed.stream.reduce(added).select(*windowed.keys, column, "window_start", "window_end")
    return [window_result(stream, rows, f"{windowed.described}: {column} + {column}")]


def aggregate_sessions(drawing: Drawing, made: Made) -> list[Made]:
    if made.time is None:
        return []
    made = without_bounds(drawing, made)
    keys = random_keys(drawing, made)
    made = made.with_keys(keys)
    gap_ms, lateness_ms = drawing.rng.choice([1, 60, 100, 500, 3000]), drawing.rng.choice([0, 0, 700])
    aggregates = random_aggregates(drawing, made)
    keyed = made.stream.key_by(*keys) if keys else made.stream
    windowed = keyed.window(dg.Session(f"{gap_ms}ms"), allowed_lateness=f"{lateness_ms}ms")
    rows = sessions(made.rows, made.time_of, keys, gap_ms, aggregates)
    described = f"gap {gap_ms} ms, lateness {lateness_ms} ms, by {', '.join(keys) or 'nothing'}: {aggregates}"
    return [window_result(windowed.aggregate(aggregates.as_arguments()), rows, described)]
