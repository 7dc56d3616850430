"""Partitions that come to the cuts of snapshots one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.runtime.results import epochs as module
from dirigo.runtime.results.epochs import Channel, Epochs

CHANNELS: list[Channel] = [("a", 0), ("a", 1), ("b", 0)]


class Told:
    """What became of what was posted."""

    def __init__(self, folder: Path, channels: list[Channel] = CHANNELS) -> None:
        self.logs: dict[str, list[bytes]] = {"a": [], "b": []}
        self.cuts: dict[int, dict[str, int]] = {}
        self.ended: list[Channel] = []
        self.epochs = Epochs(
            channels,
            lambda sink, frame, _: self.logs[sink].append(frame),
            lambda snapshot: self.cuts.update({snapshot: {sink: len(log) for sink, log in self.logs.items()}}),
            lambda sink, partition: self.ended.append((sink, partition)),
            folder,
        )

    def post(self, channel: Channel, item: int | bytes | None) -> None:
        assert self.epochs.takes(channel)
        if isinstance(item, bytes):
            self.epochs.take_rows(channel, item, 1)
        elif item is None:
            self.epochs.end(channel)
        else:
            assert self.epochs.cut(channel, item)


def test_rows_behind_a_cut_wait_until_all_have_come_to_it(tmp_path: Path) -> None:
    told = Told(tmp_path)
    posted: list[tuple[Channel, int | bytes]] = [
        (("a", 0), b"1"),
        (("a", 0), 1),
        (("a", 0), b"3"),
        (("a", 1), b"2"),
        (("a", 1), 1),
    ]
    for channel, item in posted:
        told.post(channel, item)
    assert (told.logs["a"], told.cuts) == ([b"1", b"2"], {})
    told.post(("b", 0), None)  # one that has ended has come to all cuts
    assert told.cuts == {1: {"a": 2, "b": 0}}
    assert told.logs["a"] == [b"1", b"2", b"3"]


def test_nothing_comes_behind_an_end_that_waits(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.post(("a", 0), 1)
    told.post(("a", 0), None)
    assert told.ended == []
    assert not told.epochs.takes(("a", 0))
    assert not told.epochs.takes(("a", 7))
    assert not told.epochs.cut(("a", 0), 1)


@st.composite
def posts(draw: st.DrawFn) -> list[tuple[Channel, int | bytes | None]]:
    """What three partitions post, in any order: snapshots 1 to 4, some of which give way at some partitions, and ends."""
    queues: dict[Channel, list[int | bytes | None]] = {}
    for channel in CHANNELS:
        items: list[int | bytes | None] = []
        for snapshot in range(1, 5):
            items += [b"%b%d-%d-%d" % (channel[0].encode(), channel[1], snapshot, n) for n in range(draw(st.integers(0, 3)))]
            if draw(st.integers(0, 4)):
                items.append(snapshot)
        if draw(st.booleans()):
            items = items[: draw(st.integers(0, len(items)))]
            items.append(None)
        queues[channel] = items
    order = draw(st.permutations([channel for channel, items in queues.items() for _ in items]))
    return [(channel, queues[channel].pop(0)) for channel in order]


@given(posted=posts())
def test_a_cut_has_all_that_was_posted_before_it_and_nothing_else(
    posted: list[tuple[Channel, int | bytes | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    told = Told(tmp_path_factory.getbasetemp())
    module_limit, module.HELD_BYTES_MOST = module.HELD_BYTES_MOST, 12  # so that some waits on disk
    try:
        for channel, item in posted:
            told.post(channel, item)
    finally:
        module.HELD_BYTES_MOST = module_limit
        told.epochs.close()
    by_channel = {channel: [item for where, item in posted if where == channel] for channel in CHANNELS}
    for channel, items in by_channel.items():
        name = b"%b%d-" % (channel[0].encode(), channel[1])
        got = [frame for frame in told.logs[channel[0]] if frame.startswith(name)]
        rows = [item for item in items if isinstance(item, bytes)]
        assert got == rows[: len(got)]  # in their order, none twice
        for snapshot, offsets in told.cuts.items():
            before = [frame for frame in told.logs[channel[0]][: offsets[channel[0]]] if frame.startswith(name)]
            if snapshot in items:
                assert before == [item for item in items[: items.index(snapshot)] if isinstance(item, bytes)]
            else:
                assert items[-1] is None
                assert before == rows
    assert set(told.cuts) == {snapshot for snapshot in range(1, 5) if is_complete(snapshot, list(by_channel.values()))}


def is_complete(snapshot: int, posted: list[list[int | bytes | None]]) -> bool:
    """Whether all partitions have come to its cut; those that came to a later one without it have not."""
    others = [items for items in posted if snapshot not in items]
    last = [max((item for item in items if isinstance(item, int)), default=0) for items in others]
    return len(others) < len(posted) and all(None in items for items in others) and max(last, default=0) < snapshot
