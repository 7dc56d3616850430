"""Windows as arithmetic: panes, spans, and when the last window of a pane ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.flow.event_time.watermark import BEGINNING, END
from dirigo.flow.event_time.windows import PaneWindows, Session, Sliding, Span, Tumbling, WholeStream

SLIDING = st.builds(
    lambda every, more, offset: Sliding(f"{every + more}ms", every=f"{every}ms", offset=f"{offset}ms"),
    st.integers(1, 20),
    st.integers(0, 40),
    st.integers(0, 50),
)
TUMBLING = st.builds(
    lambda size, offset: Tumbling(f"{size}ms", offset=f"{offset}ms"), st.integers(1, 50), st.integers(0, 99)
)
TIMES = st.integers(0, 10_000)


@given(windows=SLIDING | TUMBLING, time=TIMES)
def test_the_spans_of_a_rows_pane_are_exactly_the_windows_that_contain_it(windows: PaneWindows, time: int) -> None:
    spans = list(windows.spans(windows.pane_of(time)))
    starts = [
        start
        for start in range(time - windows.size_ms, time + 1)
        if (start - windows.offset_ms) % windows.every_ms == 0 and start <= time < start + windows.size_ms
    ]
    assert spans == [Span(start, start + windows.size_ms) for start in starts]


@given(windows=SLIDING | TUMBLING, time=TIMES)
def test_a_pane_lies_in_its_windows_completely(windows: PaneWindows, time: int) -> None:
    pane = windows.pane_of(time)
    assert pane <= time < pane + windows.pane_ms
    for span in windows.spans(pane):
        assert span.start_ms <= pane
        assert pane + windows.pane_ms <= span.end_ms


@given(windows=SLIDING | TUMBLING, times=st.lists(TIMES, min_size=1, max_size=20))
def test_panes_and_last_ends_agree_for_one_row_and_for_many(windows: PaneWindows, times: list[int]) -> None:
    panes = windows.panes(np.array(times))
    one_by_one = [windows.pane_of(time) for time in times]
    assert (panes.tolist() if not isinstance(panes, int) else [panes] * len(times)) == one_by_one
    ends = windows.last_ends(np.array(one_by_one)).tolist()
    assert ends == [windows.last_end(pane) for pane in one_by_one]
    assert ends == [max(span.end_ms for span in windows.spans(pane)) for pane in one_by_one]


MOMENTS = st.integers(-100, 11_000) | st.sampled_from([BEGINNING, END])


def closing_one_by_one(windows: PaneWindows, panes: list[int], before: int, now: int) -> list[Span]:
    spans = {span for pane in panes for span in windows.spans(pane) if before < span.end_ms <= now}
    return sorted(spans, key=lambda span: span.end_ms)


@given(windows=SLIDING | TUMBLING, times=st.lists(TIMES, max_size=20), before=MOMENTS, now=MOMENTS)
def test_the_windows_that_close_are_those_of_the_panes_that_end_meanwhile(
    windows: PaneWindows, times: list[int], before: int, now: int
) -> None:
    panes = sorted({windows.pane_of(time) for time in times})
    assert windows.closing(panes, before, now) == closing_one_by_one(windows, panes, before, now)


@given(
    windows=SLIDING | TUMBLING,
    times=st.lists(st.integers(0, 200), min_size=1, max_size=20),
    watermarks=st.lists(st.integers(0, 300), max_size=10).map(sorted),
)
def test_every_window_closes_once_however_time_moves_on(
    windows: PaneWindows, times: list[int], watermarks: list[int]
) -> None:
    panes = sorted({windows.pane_of(time) for time in times})
    moments = [BEGINNING, *watermarks, END]
    closed = [span for before, now in pairwise(moments) for span in windows.closing(panes, before, now)]
    assert closed == closing_one_by_one(windows, panes, BEGINNING, END)


class CountedPanes(Sequence[int]):
    """Panes that count how often one of them is looked at."""

    def __init__(self, panes: Sequence[int]) -> None:
        self._panes = panes
        self.looks = 0

    def __len__(self) -> int:
        return len(self._panes)

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return self._panes[at]


def test_closing_one_of_many_overlapping_windows_does_not_look_at_all_of_them() -> None:
    windows = Sliding("1h", every="1s")
    panes = CountedPanes(range(0, 3_600_000, 1_000))
    assert windows.closing(panes, 3_599_000, 3_600_000) == [Span(0, 3_600_000)]
    assert panes.looks <= 50


def test_closing_skips_the_empty_windows_between_panes_far_apart() -> None:
    windows = Sliding("2ms", every="1ms")
    panes = CountedPanes([0, 10_000_000_000, 20_000_000_000])
    closed = windows.closing(panes, BEGINNING, END)
    assert [span.start_ms for span in closed] == [
        -1, 0, 9_999_999_999, 10_000_000_000, 19_999_999_999, 20_000_000_000
    ]  # fmt: skip
    assert panes.looks <= 50


def test_the_whole_stream_closes_at_its_end_if_there_was_a_row() -> None:
    whole = WholeStream()
    assert whole.closing([0], 5, END) == [Span(BEGINNING, END)]
    assert whole.closing([0], 5, 10) == whole.closing([], 5, END) == whole.closing([0], END, END) == []


def test_the_whole_stream_is_one_window() -> None:
    whole = WholeStream()
    assert whole.panes(np.array([1, 99])) == whole.pane_of(7) == 0
    assert list(whole.spans(0)) == [Span(BEGINNING, END)]
    assert whole.last_end(0) == END
    assert whole.last_ends(np.array([0, 0])).tolist() == [END, END]


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (Tumbling("10s"), "tumbling 10s"),
        (Tumbling("90s", time="processing"), "tumbling 1m30s of processing time"),
        (Sliding("10s", every="2s"), "sliding 10s every 2s"),
        (Session("30m"), "sessions with a gap of 30m"),
        (WholeStream(), "the whole stream"),
    ],
)
def test_windows_describe_themselves(window: object, text: str) -> None:
    assert str(window) == text


def test_windows_are_values() -> None:
    assert Tumbling("10s") == Tumbling("10000ms")
    assert Tumbling("10s") != Tumbling("10s", offset="1s")
    assert len({Sliding("10s", every="2s"), Sliding("10s", "2s")}) == 1
    with pytest.raises(AttributeError):
        Session("1s").gap_ms = 5  # type: ignore[misc]
