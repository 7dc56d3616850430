"""Windows as arithmetic: panes, spans, and when the last window of a pane ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.flow.watermark import BEGINNING, END
from dirigo.flow.windows import PaneWindows, Session, Sliding, Span, Tumbling, WholeStream

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
