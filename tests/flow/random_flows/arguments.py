"""The arguments that several random operators draw: keys, aggregates and windows."""

from __future__ import annotations

import dirigo as dg
from dirigo.flow.aggregates.base import Aggregate as FlowAggregate
from flow.random_flows.made import Drawing, Made
from flow.random_flows.reference import Aggregate, Windows

_FUNCTIONS = {"sum": dg.sum, "min": dg.min, "max": dg.max, "distinct": dg.distinct}


class DrawnAggregates(dict[str, Aggregate]):
    """Aggregates by the name of their column, for the reference and for a flow."""

    def as_arguments(self) -> dict[str, FlowAggregate]:
        return {
            name: dg.count() if aggregate.column is None else _FUNCTIONS[aggregate.function](aggregate.column)
            for name, aggregate in self.items()
        }

    def __str__(self) -> str:
        return ", ".join(f"{name} = {aggregate}" for name, aggregate in self.items())


def random_keys(drawing: Drawing, made: Made, *, at_least: int = 0) -> list[str]:
    return drawing.rng.sample(made.keys, drawing.rng.randrange(at_least, len(made.keys) + 1))


def random_aggregates(drawing: Drawing, made: Made, *, counts_as: str | None = None) -> DrawnAggregates:
    """One to three aggregates under new names, and a count if a name is given for it."""
    aggregates = DrawnAggregates({} if counts_as is None else {counts_as: Aggregate("count")})
    for place in range(drawing.rng.randrange(1, 4)):
        function = drawing.rng.choice(["count", *_FUNCTIONS])
        has_column = function != "count" and made.numbers
        aggregates[f"made{drawing.number}_{place}"] = (
            Aggregate(function, drawing.rng.choice(made.numbers)) if has_column else Aggregate("count")
        )
    return aggregates


def random_windows(drawing: Drawing) -> Windows:
    every_ms = drawing.rng.choice([100, 700, 1000, 2500])
    longer_ms = drawing.rng.choice([0, 0, 0, every_ms // 2, every_ms, 3 * every_ms + 50])
    return Windows(every_ms + longer_ms, every_ms, drawing.rng.choice([0, 0, 30, every_ms + 7]))


def as_argument(windows: Windows) -> dg.Tumbling | dg.Sliding:
    size, every, offset = (f"{each}ms" for each in (windows.size_ms, windows.every_ms, windows.offset_ms))
    return dg.Tumbling(size, offset=offset) if size == every else dg.Sliding(size, every=every, offset=offset)


def without_bounds(drawing: Drawing, made: Made) -> Made:
    """The same rows with their window's end under another name, and without its start, so that windows can follow."""
    bounds = {"window_start", "window_end"} & set(made.columns)
    if not bounds:
        return made
    new = f"window_time_{drawing.number}"
    stream = made.stream.drop("window_start") if "window_start" in bounds else made.stream
    stream = stream.rename(window_end=new) if "window_end" in bounds else stream
    rows = [
        {(new if name == "window_end" else name): value for name, value in row.items() if name != "window_start"}
        for row in made.rows
    ]
    time = new if made.time == "window_end" else made.time
    return Made(stream, rows, made.described, time, made.offset_ms)
