"""What the partitions of a job post to its logs, put into an order in which each snapshot is one cut through all of them.

Partitions come to a snapshot's cut one after the other. What one of them posts behind the cut must not lie before it in the
log, so it is held back until the others have come to the cut too: in memory, and on disk if it is much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from dirigo.runtime.results.spill import Spill

HELD_BYTES_MOST = 32 << 20  # in memory, of one job
Channel = tuple[str, int]  # (sink, partition)
Rows = tuple[bytes | range, int]  # (a frame, or where it lies on disk; how many rows)


class Epochs:
    """The channels of one job. ``append`` and ``on_cut`` are called from within ``take_rows``, ``cut`` and ``end``."""

    def __init__(
        self,
        channels: Collection[Channel],
        append: Callable[[str, bytes, int], None],
        on_cut: Callable[[int], None],
        on_end: Callable[[str, int], None],
        folder: Path,
    ) -> None:
        """`append` puts rows into the log of a sink. `on_cut`: all that belongs to a snapshot is in the logs, and nothing
        else. `on_end`: all that a partition has posted is there. What is too much for memory waits in `folder`.
        """
        self._append = append
        self._on_cut = on_cut
        self._on_end = on_end
        self._open = set(channels)
        self._held: dict[Channel, deque[Rows | int | None]] = {}  # behind a cut, which comes first; None is the end
        self._last: dict[Channel, int] = {}  # the last snapshot that a channel came to
        self._held_bytes = 0  # in memory
        self._spill = Spill(folder)

    def takes(self, channel: Channel) -> bool:
        """Whether more may come from a channel."""
        held = self._held.get(channel)
        return channel in self._open and (held is None or held[-1] is not None)

    def take_rows(self, channel: Channel, frame: bytes, rows: int) -> None:
        held = self._held.get(channel)
        if held is None:
            self._append(channel[0], frame, rows)
        elif self._held_bytes + len(frame) > HELD_BYTES_MOST:
            held.append((self._spill.put(frame), rows))
        else:
            held.append((frame, rows))
            self._held_bytes += len(frame)

    def cut(self, channel: Channel, snapshot: int) -> bool:
        """A channel has come to the cut of a snapshot. False: it has been there."""
        if snapshot <= self._last.get(channel, 0):
            return False
        self._last[channel] = snapshot
        self._held.setdefault(channel, deque()).append(snapshot)
        self._advance()
        return True

    def end(self, channel: Channel) -> None:
        """Nothing more comes from a channel: it counts as having come to the cuts of all later snapshots."""
        held = self._held.get(channel)
        if held is None:
            self._note_end(channel)
            self._advance()
        else:
            held.append(None)

    def _advance(self) -> None:
        """Let channels go on that need not wait any more.

        A snapshot that gave way to a barrier of the user has cut some channels and not others. It is known by a channel that
        has come to a later one.
        """
        while self._held:
            cuts = {channel: held[0] for channel, held in self._held.items()}
            newest = max(cut for cut in cuts.values() if isinstance(cut, int))
            behind = [channel for channel, cut in cuts.items() if cut != newest]
            if not behind:
                if len(cuts) < len(self._open):
                    return
                self._on_cut(newest)
                behind = list(cuts)
            for channel in behind:
                self._let_on(channel)

    def _let_on(self, channel: Channel) -> None:
        """Take up what a channel posted behind its first cut, as far as the next one."""
        held = self._held[channel]
        held.popleft()
        while held:
            item = held[0]
            if isinstance(item, int):
                return
            held.popleft()
            if item is None:
                self._note_end(channel)
            else:
                self._append(channel[0], self._frame(item[0]), item[1])
        del self._held[channel]

    def _frame(self, held: bytes | range) -> bytes:
        if isinstance(held, range):
            return self._spill.take(held)
        self._held_bytes -= len(held)
        return held

    def close(self) -> None:
        """Forget what is held back."""
        self._held.clear()
        self._held_bytes = 0
        self._spill.close()

    def _note_end(self, channel: Channel) -> None:
        self._open.discard(channel)
        self._on_end(*channel)


def channels_of(open_partitions: Mapping[str, Collection[int]]) -> list[Channel]:
    """The channels that have not ended."""
    return [(sink, partition) for sink, partitions in open_partitions.items() for partition in partitions]
