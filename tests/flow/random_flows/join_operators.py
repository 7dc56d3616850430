"""Random joins of two streams: within windows of all kinds, by nearness in time, and of all rows for ever."""

from __future__ import annotations

from dataclasses import dataclass

from dirigo.flow.operators.joins.matching import How
from flow.random_flows.arguments import as_argument, random_windows, without_bounds
from flow.random_flows.made import KEYS, Drawing, Made, window_result
from flow.random_flows.reference import JoinColumns, bounded, joined

_WINDOW_JOINS: list[How] = ["inner", "left", "right", "outer", "semi", "anti"]
_PAIRS_MAX = 60_000  # of which the reference looks at every one


@dataclass(frozen=True)
class _Sides:
    """Two streams that can be joined."""

    left: Made
    right: Made
    on: list[str]
    suffix: str
    described: str

    def columns(self, how: str) -> JoinColumns:
        names = [] if how in ("semi", "anti") else [name for name in self.right.columns if name not in self.on]
        taken = self.left.columns
        return JoinColumns(self.on, taken, {name: f"{name}{self.suffix}" if name in taken else name for name in names})


def _random_sides(drawing: Drawing, left: Made, *, needs_time: bool) -> _Sides | None:
    if "key" not in left.columns or (needs_time and left.time is None):
        return None
    fitting = [each for each in drawing.pool if "key" in each.columns and (each.time is not None or not needs_time)]
    right = drawing.rng.choice(fitting)
    if len(left.rows) * len(right.rows) > _PAIRS_MAX:
        return None
    shared = [key for key in KEYS if key in left.columns and key in right.columns]
    on = drawing.rng.choice([["key"], shared])
    described = f"with stream {drawing.number_of(right)} on {', '.join(on)}"
    return _Sides(left, right, on, f"_{drawing.number}", described)


def _with_keys(sides: _Sides) -> _Sides:
    """An inner join takes only rows that have keys."""
    left, right = sides.left.with_keys(sides.on), sides.right.with_keys(sides.on)
    return _Sides(left, right, sides.on, sides.suffix, sides.described)


def join_for_ever(drawing: Drawing, made: Made) -> list[Made]:
    sides = _random_sides(drawing, made, needs_time=False)
    if sides is None:
        return []
    sides = _with_keys(sides)
    rows = joined(sides.left.rows, sides.right.rows, sides.columns("inner"), "inner")
    stream = sides.left.stream.join(sides.right.stream, sides.on, suffix=sides.suffix)
    return [Made(stream, rows, sides.described)]


def join_within_interval(drawing: Drawing, made: Made) -> list[Made]:
    sides = _random_sides(drawing, made, needs_time=True)
    if sides is None:
        return []
    sides = _with_keys(sides)
    left, right, columns = sides.left, sides.right, sides.columns("inner")
    before_ms, after_ms = drawing.rng.choice([0, 100, 2000]), drawing.rng.choice([0, 100, 2000])
    rows = [
        columns.pair(one, other)
        for one in left.rows
        for other in right.rows
        if all(one[key] == other[key] for key in sides.on)
        and -before_ms <= right.time_of(other) - left.time_of(one) <= after_ms
    ]
    within = f"{before_ms}ms", f"{after_ms}ms"
    stream = left.stream.join(right.stream, sides.on, within=within, suffix=sides.suffix)
    return [Made(stream, rows, f"{sides.described} within {within}")]


def join_windows(drawing: Drawing, made: Made) -> list[Made]:
    sides = _random_sides(drawing, made, needs_time=True)
    if sides is None:
        return []
    left, right = without_bounds(drawing, sides.left), without_bounds(drawing, sides.right)
    sides = _Sides(left, right, sides.on, sides.suffix, sides.described)
    how = drawing.rng.choice(_WINDOW_JOINS)
    if how == "inner":
        sides = _with_keys(sides)
    left, right, columns = sides.left, sides.right, sides.columns(how)
    windows = random_windows(drawing)
    left_rows, right_rows = windows.of(left.rows, left.time_of), windows.of(right.rows, right.time_of)
    rows = [
        row
        for span in left_rows.keys() | right_rows.keys()
        for row in bounded(joined(left_rows.get(span, []), right_rows.get(span, []), columns, how), span)
    ]
    window = as_argument(windows)
    stream = left.stream.join(right.stream, sides.on, window=window, how=how, suffix=sides.suffix)
    return [window_result(stream, rows, f"{how} {sides.described}, {window}")]
