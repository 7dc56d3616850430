"""Watermarks: how far event time has come, per channel and for an operator as a whole.

A watermark of t says: no row older than t follows on this channel. Every instance of the sending actor is held while it
passes (it is a SYNC_CHANNEL critical message), so that it means the same however many workers ran the rows before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from dirigo.kernel import Address

BEGINNING = -(1 << 62)  # before every row
END = 1 << 62  # after every row: the input has ended


def passes(before_ms: int, now_ms: int, grid_ms: int) -> bool:
    """Whether moving on from one time to another passes a multiple of a grid; with a grid of 0 only the end counts."""
    if now_ms >= END or not grid_ms:
        return now_ms >= END
    return now_ms // grid_ms > before_ms // grid_ms


class Watermark(msgspec.Struct, frozen=True, gc=False, tag=True):
    """What travels: no row older than ``time_ms`` follows; an idle channel does not hold the others back."""

    time_ms: int
    is_idle: bool = False


class ChannelProgress(NamedTuple):
    """What a snapshot keeps of them. Channels go by the place of their sender, as each generation is a job of its own."""

    watermark: int
    times: dict[str, int]
    idle: tuple[str, ...]


class ChannelWatermarks:
    """The watermarks of all channels into one actor, and their minimum. Lives with the lessor."""

    __slots__ = ("_idle", "_times", "watermark")

    def __init__(self, upstreams: Iterable[Address]) -> None:
        self._times: dict[Address, int] = dict.fromkeys(upstreams, BEGINNING)
        self._idle: set[Address] = set()
        self.watermark = BEGINNING

    def note(self, upstream: Address, watermark: Watermark) -> bool:
        """Take in one channel's watermark; returns whether the minimum over all channels moved."""
        if watermark.is_idle:
            self._idle.add(upstream)
        else:
            self._idle.discard(upstream)
        self._times[upstream] = max(self._times[upstream], watermark.time_ms)
        before = self.watermark
        self.watermark = max(before, self._reached())  # time never goes back when an idle channel wakes up
        return self.watermark > before

    def capture(self) -> ChannelProgress:
        times = {_place_of(upstream): time for upstream, time in self._times.items()}
        return ChannelProgress(self.watermark, times, tuple(sorted(map(_place_of, self._idle))))

    def restore(self, captured: ChannelProgress) -> None:
        """Be as far as was captured at the same actor of another generation."""
        upstreams = {_place_of(upstream): upstream for upstream in self._times}
        if captured.times.keys() != upstreams.keys():
            raise ValueError(f"it was fed by {sorted(captured.times)}, and is fed by {sorted(upstreams)} now")
        self._times = {upstreams[place]: time for place, time in captured.times.items()}
        self._idle = {upstreams[place] for place in captured.idle}
        self.watermark = captured.watermark

    def begin(self, times: Mapping[Address, int], idle: Collection[Address], watermark: int | None) -> None:
        """Go on from a savepoint, with each channel as far as its sender; without ``watermark`` as far as these are."""
        self._times = dict(times)
        self._idle = set(idle)
        self.watermark = self._reached() if watermark is None else watermark

    def end(self) -> None:
        """Be where all channels have ended."""
        self._times = dict.fromkeys(self._times, END)
        self._idle.clear()
        self.watermark = END

    def _reached(self) -> int:
        open_ones = {upstream: time for upstream, time in self._times.items() if time < END}
        active = [time for upstream, time in open_ones.items() if upstream not in self._idle]
        if active:
            return min(active)
        # With every open channel idle, nobody holds back the one that is furthest; but what is idle has not ended.
        return max(open_ones.values(), default=END)

    @property
    def is_idle(self) -> bool:
        """Whether all channels that have not ended are idle."""
        return bool(self._idle) and all(upstream in self._idle or time >= END for upstream, time in self._times.items())

    @property
    def has_ended(self) -> bool:
        return self.watermark >= END


def _place_of(address: Address) -> str:
    """An address without the job."""
    return address.partition("/")[2]
