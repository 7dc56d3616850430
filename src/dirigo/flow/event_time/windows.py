"""Windows: which stretches of time a row belongs to.

Tumbling and sliding windows are made of *panes*, the longest stretches that never lie in a window only partly. A row is put
into its one pane when it arrives; a window is put together from its panes when it closes. All stretches are half-open.
"""

# ruff: noqa: ARG002  # the whole stream asks for no time

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal

import numpy as np

from dirigo.flow.api.duration import Duration, format_milliseconds, milliseconds, positive_milliseconds
from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.time_column import Times
from dirigo.flow.event_time.watermark import BEGINNING, END

TimeKind = Literal["event", "processing"]


@dataclass(frozen=True)
class Span:
    """One window: from its start up to, not including, its end, in milliseconds."""

    start_ms: int
    end_ms: int


class PaneWindows:
    """Windows of a fixed length, which start every so often."""

    size_ms: int
    every_ms: int
    offset_ms: int
    time: TimeKind
    pane_ms: int

    def panes(self, times: Times) -> Times | int:
        """The start of every row's pane; one number where all rows lie in one pane, which is the common case."""
        first = self.pane_of(int(times.min()))
        if times.max() < first + self.pane_ms:
            return first
        return (times - self.offset_ms) // self.pane_ms * self.pane_ms + self.offset_ms

    def pane_of(self, time_ms: int) -> int:
        return (time_ms - self.offset_ms) // self.pane_ms * self.pane_ms + self.offset_ms

    def spans(self, pane: int) -> Iterator[Span]:
        """All windows that a pane is part of, the earliest first."""
        last = (pane - self.offset_ms) // self.every_ms * self.every_ms + self.offset_ms
        count = (last + self.size_ms - pane - 1) // self.every_ms + 1
        for start in range(last - (count - 1) * self.every_ms, last + 1, self.every_ms):
            yield Span(start, start + self.size_ms)

    def closing(self, panes: Sequence[int], before_ms: int, now_ms: int) -> list[Span]:
        """The windows made of these panes, which are sorted, that end in (before, now], in the order of their ends.

        It takes a step per window and per gap between panes, so that overlapping windows cost no more than what closes.
        """
        spans: list[Span] = []
        if not panes:
            return spans
        end = self._first_end_after(max(before_ms, panes[0]))
        while end <= now_ms:
            start = end - self.size_ms
            at = bisect_left(panes, start)
            if at == len(panes):
                break
            if panes[at] < end:
                spans.append(Span(start, end))
                end += self.every_ms
            else:  # an empty window: on to the first that may have the next pane in it
                end = self._first_end_after(panes[at])
        return spans

    def _first_end_after(self, time_ms: int) -> int:
        """When the earliest window ends that ends later than this."""
        any_end = self.offset_ms + self.size_ms
        return any_end + ((time_ms - any_end) // self.every_ms + 1) * self.every_ms

    def panes_of(self, span: Span) -> range:
        """The panes that a window is made of, whether or not there are rows in them."""
        return range(span.start_ms, span.end_ms, self.pane_ms)

    def last_end(self, pane: int) -> int:
        """When the last window that a pane is part of ends; for a pane in a gap between windows, its own start."""
        last = (pane - self.offset_ms) // self.every_ms * self.every_ms + self.offset_ms
        return max(last + self.size_ms, pane)

    def last_ends(self, panes: Times) -> Times:
        last = (panes - self.offset_ms) // self.every_ms * self.every_ms + self.offset_ms
        ends: Times = np.maximum(last + self.size_ms, panes)
        return ends


@dataclass(frozen=True, init=False)
class Tumbling(PaneWindows):
    """Windows side by side: every row belongs to exactly one. ``Tumbling("10s")``."""

    size_ms: int
    offset_ms: int
    time: TimeKind

    def __init__(self, size: Duration, *, offset: Duration = "0ms", time: TimeKind = "event") -> None:
        _set(
            self,
            size_ms=positive_milliseconds(size, "Tumbling"),
            offset_ms=milliseconds(offset, "Tumbling"),
            time=_kind(time),
        )

    @property
    def every_ms(self) -> int:  # type: ignore[override]
        return self.size_ms

    @property
    def pane_ms(self) -> int:  # type: ignore[override]
        return self.size_ms

    def __str__(self) -> str:
        return f"tumbling {format_milliseconds(self.size_ms)}{_of(self.time)}"


@dataclass(frozen=True, init=False)
class Sliding(PaneWindows):
    """Windows that overlap: one of length ``size`` starts every ``every``. ``Sliding("10s", every="2s")``."""

    size_ms: int
    every_ms: int
    offset_ms: int
    time: TimeKind

    def __init__(self, size: Duration, every: Duration, *, offset: Duration = "0ms", time: TimeKind = "event") -> None:
        _set(
            self,
            size_ms=positive_milliseconds(size, "Sliding"),
            every_ms=positive_milliseconds(every, "Sliding"),
            offset_ms=milliseconds(offset, "Sliding"),
            time=_kind(time),
        )
        if self.every_ms > self.size_ms:
            raise FlowError(
                f"Sliding: windows of {format_milliseconds(self.size_ms)} every {format_milliseconds(self.every_ms)} "
                "would leave rows out; make `every` at most the size."
            )

    @property
    def pane_ms(self) -> int:  # type: ignore[override]
        return gcd(self.size_ms, self.every_ms)

    def __str__(self) -> str:
        return f"sliding {format_milliseconds(self.size_ms)} every {format_milliseconds(self.every_ms)}{_of(self.time)}"


@dataclass(frozen=True)
class WholeStream(PaneWindows):
    """One window that closes when the input ends: what a keyed stream without a window means."""

    time: TimeKind = "event"

    def panes(self, times: Times) -> int:
        return 0

    def pane_of(self, time_ms: int) -> int:
        return 0

    def spans(self, pane: int) -> Iterator[Span]:
        yield Span(BEGINNING, END)

    def closing(self, panes: Sequence[int], before_ms: int, now_ms: int) -> list[Span]:
        return [Span(BEGINNING, END)] if panes and before_ms < END <= now_ms else []

    def panes_of(self, span: Span) -> range:
        return range(1)

    def last_end(self, pane: int) -> int:
        return END

    def last_ends(self, panes: Times) -> Times:
        return np.full(len(panes), END)

    def __str__(self) -> str:
        return "the whole stream"


@dataclass(frozen=True, init=False)
class Session:
    """Windows as long as rows keep coming: one ends when its key is quiet for more than ``gap``. ``Session("30m")``."""

    gap_ms: int

    def __init__(self, gap: Duration) -> None:
        _set(self, gap_ms=positive_milliseconds(gap, "Session"))

    def __str__(self) -> str:
        return f"sessions with a gap of {format_milliseconds(self.gap_ms)}"


Window = Tumbling | Sliding | Session


def _set(window: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(window, name, value)  # past the frozen dataclass


def _kind(time: str) -> TimeKind:
    if time not in ("event", "processing"):
        raise FlowError(f"a window's time is 'event' or 'processing', not {time!r}.")
    return time  # type: ignore[return-value]


def _of(time: TimeKind) -> str:
    return " of processing time" if time == "processing" else ""
