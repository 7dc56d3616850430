"""The graph of a flow as a picture in a page: a box for each stage, senders above receivers, as one SVG."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from html import escape
from itertools import count
from textwrap import wrap

from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.notebook.html import Markup
from dirigo.flow.plan.picture import Arrow, Box, Picture, Shape

_FILLS: dict[Shape, tuple[str, str]] = {
    "source": ("#e6f4ea", "#2e7d32"),
    "operator": ("#eef3fb", "#3b6db3"),
    "sink": ("#fdf3e1", "#b36b00"),
}
_WIDTH, _GAP_X, _GAP_Y = 270, 30, 52
_LINE, _PAD, _LANE = 16, 10, 26
_COLUMNS, _TEXTS_MOST, _LABEL_COLUMNS = 38, 8, 40
_markers = count()  # several pictures may be on one page, and each needs a marker of its own


@dataclass
class _Place:
    """Where a box is drawn."""

    box: Box
    lines: list[str]
    layer: int
    x: float = 0.0
    y: float = 0.0

    @property
    def height(self) -> float:
        return _LINE * (len(self.lines) + 2) + _PAD

    @property
    def middle(self) -> float:
        return self.x + _WIDTH / 2


def as_svg(flow: Dataflow) -> Markup:
    """The flow as an SVG. Side outputs are dashed."""
    picture = Picture(flow)
    places = _placed(picture)
    beside = [arrow for arrow in picture.arrows if places[arrow.receiver].layer - places[arrow.sender].layer > 1]
    width = max(place.x + _WIDTH for place in places.values()) + (_LANE * (len(beside) + 1) if beside else 1)
    height = max(place.y + place.height for place in places.values()) + 1
    marker = f"dirigo-arrow-{next(_markers)}"
    right = max(place.x + _WIDTH for place in places.values())
    parts = [_box(place) for place in places.values()]
    for arrow in picture.arrows:
        sender, receiver = places[arrow.sender], places[arrow.receiver]
        if arrow in beside:
            parts.append(_way_round(arrow, sender, receiver, right + _LANE * (beside.index(arrow) + 0.7), marker))
        else:
            parts.append(_way_down(arrow, sender, receiver, marker))
    return Markup(
        f'<div style="overflow-x:auto"><svg width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12" role="img" '
        f'aria-label="{escape(picture.title)}"><defs><marker id="{marker}" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#808080"/></marker></defs>'
        f"{''.join(parts)}</svg></div>"
    )


# --- places --------------------------------------------------------------------------------------------------------------


def _placed(picture: Picture) -> dict[str, _Place]:
    """A layer below all that sends to it; in a layer, beside each other in the order of the picture."""
    places: dict[str, _Place] = {}
    last = 0
    for box in picture.boxes:  # senders come before receivers
        above = [places[arrow.sender].layer for arrow in picture.arrows if arrow.receiver == box.name]
        layer = max(above, default=-1) + 1
        if box.takes_errors:  # from all stages that are drawn above it
            layer = last + 1
        places[box.name] = _Place(box, _lines(box), layer)
        last = max(last, layer)
    layers = defaultdict(list)
    for place in places.values():
        layers[place.layer].append(place)
    widest = max(map(len, layers.values()))
    y = 1.0
    for number in sorted(layers):
        row = layers[number]
        left = (widest - len(row)) * (_WIDTH + _GAP_X) / 2
        for column, place in enumerate(row):
            place.x, place.y = 1 + left + column * (_WIDTH + _GAP_X), y
        y += max(place.height for place in row) + _GAP_Y
    return places


def _lines(box: Box) -> list[str]:
    lines = [line for text in box.texts for line in wrap(text, _COLUMNS) or [""]]
    if box.takes_errors:
        lines.insert(0, "errors, from every stage above")
    return lines if len(lines) <= _TEXTS_MOST else [*lines[: _TEXTS_MOST - 1], "…"]


# --- parts ---------------------------------------------------------------------------------------------------------------


def _box(place: _Place) -> str:
    fill, stroke = _FILLS[place.box.shape]
    round_by = {"source": 14, "operator": 3, "sink": 3}[place.box.shape]
    dash = ' stroke-dasharray="5 3"' if place.box.takes_errors else ""
    rows = [(place.box.name if len(place.box.name) <= _COLUMNS else f"{place.box.name[: _COLUMNS - 1]}…", "bold", "#111111")]
    rows += [(line, "normal", "#222222") for line in place.lines]
    rows.append((place.box.marks, "normal", "#666666"))
    texts = "".join(
        f'<text x="{place.x + _PAD:.0f}" y="{place.y + _LINE * (number + 1):.0f}" font-weight="{weight}" fill="{colour}" '
        f'xml:space="preserve">{escape(text)}</text>'
        for number, (text, weight, colour) in enumerate(rows)
    )
    return (
        f"<g><title>{escape(place.box.name)}</title>"
        f'<rect x="{place.x:.0f}" y="{place.y:.0f}" width="{_WIDTH}" height="{place.height:.0f}" rx="{round_by}" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="{2 if place.box.shape == "sink" else 1}"{dash}/>{texts}</g>'
    )


def _way_down(arrow: Arrow, sender: _Place, receiver: _Place, marker: str) -> str:
    x, y, to_x, to_y = sender.middle, sender.y + sender.height, receiver.middle, receiver.y
    half = (y + to_y) / 2
    path = f"M{x:.0f} {y:.0f}C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {to_y:.0f}"
    side, anchor = (8, "start") if x <= to_x else (-8, "end")  # away from where the line comes from
    return _path(arrow, path, marker) + _label(arrow, to_x + side, to_y - 10, anchor)


def _way_round(arrow: Arrow, sender: _Place, receiver: _Place, lane: float, marker: str) -> str:
    """To the right of all boxes, as there are others between these two."""
    x, y = sender.x + _WIDTH, sender.y + sender.height - _PAD
    to_x, to_y = receiver.x + _WIDTH, receiver.y + _PAD
    path = f"M{x:.0f} {y:.0f}H{lane:.0f}V{to_y:.0f}H{to_x:.0f}"
    return _path(arrow, path, marker) + _label(arrow, lane - 6, y - 6, "end")


def _path(arrow: Arrow, path: str, marker: str) -> str:
    dash = ' stroke-dasharray="5 4"' if arrow.is_side_output else ""
    return f'<path d="{path}" fill="none" stroke="#808080" stroke-width="1.3"{dash} marker-end="url(#{marker})"/>'


def _label(arrow: Arrow, x: float, y: float, anchor: str) -> str:
    label = arrow.label if len(arrow.label) <= _LABEL_COLUMNS else f"{arrow.label[: _LABEL_COLUMNS - 1]}…"
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="11" fill="#808080">{escape(label)}</text>'
