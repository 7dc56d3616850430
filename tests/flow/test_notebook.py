"""How flows and streams show themselves in a notebook: all of it is there, and text of users is only text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

import dirigo as dg
from dirigo.flow.notebook.html import Markup, plain, stacked, table, title
from dirigo.flow.plan.picture import Picture

EVIL = '<script>alert("1")</script>&'
EMPTY = {"br", "path", "rect"}


class Checked(HTMLParser):
    """Every tag is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(thing: Any) -> Checked:
    """What a notebook shows; nothing in it runs, and nothing comes from elsewhere."""
    page = Checked(thing._repr_html_())
    assert page.tags <= {"div", "b", "span", "table", "tr", "td", "th", *DRAWN}
    assert {name for name, _ in page.attributes if name.startswith("on")} == set()
    assert {value for name, value in page.attributes if name in ("href", "src", "xlink:href")} == set()
    assert all("url(#" in value for _, value in page.attributes if value and "url(" in value)
    return page


DRAWN = {"svg", "defs", "marker", "path", "g", "title", "rect", "text"}


def flow_with_everything() -> dg.Dataflow:
    flow = dg.Dataflow("sales", slo=dg.SLO(latency="200ms"), on_error="side_output")
    rows = flow.source(dg.from_iterable([{"k": "a", "n": 1, "t": 0}], time="t", name="orders"))
    other = flow.source(dg.from_iterable([{"k": "a", "m": 1}], name="shops"))
    cheap = rows.filter(dg.col("k") != EVIL, name="cheap")
    windows = cheap.key_by("k").window(dg.Tumbling("1s")).aggregate(n=dg.sum("n")).named("sums")
    windows.late.sink(dg.to_nothing(name="late"))
    windows.join(other, on="k", name="joined").sink(dg.to_memory(name="out"))
    flow.errors.sink(dg.to_nothing(name="bad"))
    return flow


def test_a_flow_shows_its_name_its_objective_and_every_stage() -> None:
    flow = flow_with_everything()
    page = shown(flow)
    assert {"sales", "dataflow, latency 200ms for 99 % of rows"} <= set(page.texts)
    picture = Picture(flow)
    assert {box.name for box in picture.boxes} <= set(page.texts)
    assert {arrow.label for arrow in picture.arrows} <= set(page.texts)
    assert sum("alert" in text for text in page.texts) > 0
    assert EVIL not in flow._repr_html_()


def test_the_boxes_of_a_flow_do_not_overlap_and_lie_in_the_picture() -> None:
    (text,) = re.findall(r"<svg.*</svg>", flow_with_everything()._repr_html_(), re.DOTALL)
    svg = ElementTree.fromstring(text)
    boxes = [tuple(float(each.get(name, "")) for name in ("x", "y", "width", "height")) for each in svg.iter() if _is(each)]
    assert len(boxes) == len(Picture(flow_with_everything()).boxes)
    for number, (x, y, width, height) in enumerate(boxes):
        assert x + width <= float(svg.get("width", ""))
        assert y + height <= float(svg.get("height", ""))
        for other_x, other_y, other_width, other_height in boxes[:number]:
            is_beside = x >= other_x + other_width or other_x >= x + width
            assert is_beside or y >= other_y + other_height or other_y >= y + height


def _is(element: ElementTree.Element) -> bool:
    return element.tag.endswith("rect")


def test_two_pictures_on_a_page_have_arrows_of_their_own() -> None:
    flow = flow_with_everything()
    first, second = (re.findall(r'marker id="([^"]+)"', flow._repr_html_()) for _ in range(2))
    assert len(first) == len(second) == 1
    assert first != second


def test_a_flow_that_is_not_complete_shows_what_there_is() -> None:
    flow = dg.Dataflow("empty")
    assert any("has no sink" in text for text in shown(flow).texts)
    flow.source(dg.from_iterable([{"a": 1}], name="numbers")).filter(dg.col("a") > 0, name="large")
    page = shown(flow)
    assert {"numbers", "large"} <= set(page.texts)
    assert any("dataflow 'empty' has no sink" in text for text in page.texts)


def test_a_source_is_not_opened_to_be_shown() -> None:
    def never() -> Any:
        raise AssertionError("it was opened")

    flow = dg.Dataflow("unopened")
    flow.source(dg.from_iterable(never, schema={"a": int})).sink(dg.to_nothing())
    assert "unopened" in shown(flow).texts


def test_a_stream_shows_its_columns() -> None:
    flow = dg.Dataflow("columns")
    stream = flow.source(dg.from_iterable([{EVIL: 1, "t": 0}], time="t", name="rows"))
    page = shown(stream)
    assert {"rows", "stream of dataflow columns", EVIL, "int64", "event time"} <= set(page.texts)


@pytest.mark.parametrize("text", [EVIL, "a\nb", "\x1b[31mred", "x" * 10_000, "\ud800"])
def test_text_is_only_text(text: str) -> None:
    page = Checked(stacked(title(text, text), table([(text, 1, None)], (text,))))
    assert page.tags <= {"div", "b", "span", "table", "tr", "td", "th"}
    assert all(len(each) <= 240 and "\n" not in each and "\x1b" not in each for each in page.texts)
    str(plain(text)).encode()


def test_what_is_html_already_stays_so() -> None:
    assert plain(Markup("<b>x</b>")) == "<b>x</b>"


def test_of_very_many_rows_the_first_are_shown() -> None:
    page = Checked(table([(number,) for number in range(1_000)]))
    assert "99" in page.texts
    assert "100" not in page.texts
    assert "and 900 more" in page.texts
