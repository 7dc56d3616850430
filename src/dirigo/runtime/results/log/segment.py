"""One file of a log: records one after the other, and where each of them begins.

Headers are checked when a file is opened, frames when they are read: what is not as it was written is never given out.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dirigo.runtime.results.log.errors import LogError, damaged, reason_of
from dirigo.runtime.results.log.record import HEADER_BYTES, has_its_frame, head_at, is_intact, next_whole, read_fully

_SUFFIX: Final = ".frames"


@dataclass(slots=True)
class Segment:
    """A file and the index of its records, which costs 8 bytes of memory per record."""

    path: Path
    first: int  # offset of its first record
    starts: array[int] = field(default_factory=lambda: array("Q"))  # of the headers
    size: int = 0  # bytes of whole records
    rows: int = 0
    newest_ms: int = 0  # when the last record came

    @classmethod
    def beginning(cls, folder: Path, first: int) -> Segment:
        return cls(folder / f"{first:020d}{_SUFFIX}", first)

    @property
    def next(self) -> int:
        return self.first + len(self.starts)

    def add(self, rows: int, size: int, time_ms: int) -> None:
        """A record has been written behind the last one."""
        self.starts.append(self.size)
        self.size += HEADER_BYTES + size
        self.rows += rows
        self.newest_ms = time_ms

    def truncate(self, offset: int) -> None:
        """Forget the records from this offset on. Their bytes are still in the file, behind ``size``."""
        number = offset - self.first
        if number >= len(self.starts):
            return
        begin = self.starts[number]
        with self.path.open("rb", buffering=0) as file:
            for place in sorted(set(self.starts[number:])):
                head = head_at(file.fileno(), place, self.size)
                self.rows -= 0 if head is None else head.rows
        del self.starts[number:]
        self.size = begin

    def load(self, *, with_frames: bool, before: int | None) -> int:
        """Find the records that are in the file; returns how many bytes behind the last one are none.

        `with_frames`: a record whose frame is not what was written is none either. If whole records follow behind one that
        is none, it keeps its offset, and whoever reads it is told. All offsets lie below `before`, if that is known.
        """
        with self.path.open("rb", buffering=0) as file:
            descriptor = file.fileno()
            status = os.fstat(descriptor)
            file_size = status.st_size
            while self.size + HEADER_BYTES <= file_size:
                place = self.size
                head = head_at(descriptor, place, file_size)
                if head is not None and head.offset != self.next:
                    head = None
                if head is None or (with_frames and not has_its_frame(descriptor, place, head)):
                    behind = place + HEADER_BYTES + (0 if head is None else head.size)
                    found = next_whole(descriptor, behind, file_size, self.next, before)
                    if found is None:
                        break
                    place, head = found
                    self.starts.extend([self.size] * (head.offset - self.next))
                    self.size = place
                self.add(head.rows, head.size, head.time_ms)
        if not self.starts:
            self.newest_ms = int(status.st_mtime * 1000)  # what cannot be read does not pass for very old
        return file_size - self.size

    def behind(self, offset: int) -> int:
        """The offset behind a record that is none, and behind those after it that have no place in the file either."""
        return self.first + bisect_right(self.starts, self.starts[offset - self.first])

    def read(self, offset: int, bytes_max: int) -> list[bytes]:
        """Frames from `offset` on, together at most `bytes_max` bytes with their headers, but at least one.

        They end before the first that is damaged; none at all if it is the first one.
        """
        number = offset - self.first
        begin = self.starts[number]
        after = bisect_right(self.starts, begin + bytes_max, lo=number + 1)  # the frames before it may be read ...
        end = self.size if after == len(self.starts) else self.starts[after]
        if end - begin > bytes_max and after - 1 > number:  # ... but for the last, whose end may lie too far
            after -= 1
            end = self.starts[after]
        with self.path.open("rb", buffering=0) as file:
            piece = read_fully(file.fileno(), end - begin, begin)
        bounds = [start - begin for start in self.starts[number:after]]
        bounds.append(end - begin)
        frames: list[bytes] = []
        for i in range(after - number):
            if not is_intact(memoryview(piece)[bounds[i] : bounds[i + 1]], offset + i):
                break
            frames.append(piece[bounds[i] + HEADER_BYTES : bounds[i + 1]])
        return frames


def find_segments(folder: Path) -> list[Segment]:
    """The segments in a folder, oldest first, not loaded."""
    return [Segment(path, int(path.name.removesuffix(_SUFFIX))) for path in sorted(folder.glob(f"*{_SUFFIX}"))]


def read_frames(folder: Path, segments: Sequence[Segment], offset: int, end: int, bytes_max: int) -> list[bytes]:
    """Frames from `offset` on, which must not lie before the first segment; empty from the end of the log on.

    They end before the first record that is damaged or missing; if that is the first one, it is an error.
    """
    frames: list[bytes] = []
    left = bytes_max
    while offset < end:
        number = bisect_right(segments, offset, key=lambda segment: segment.first) - 1
        segment = segments[number]
        if offset >= segment.next:  # its file does not have what came between it and the next one
            after = segments[number + 1].first if number + 1 < len(segments) else end
            return frames or _raise(damaged(folder, offset, after))
        if frames and _record_size(segment, offset) > left:
            break
        try:
            piece = segment.read(offset, left)
        except OSError as error:
            raise LogError(f"'{segment.path}' cannot be read ({reason_of(error)}); start from a later offset.") from error
        if not piece:
            return frames or _raise(damaged(folder, offset, segment.behind(offset)))
        piece = piece[: end - offset]
        frames += piece
        offset += len(piece)
        left -= sum(map(len, piece)) + HEADER_BYTES * len(piece)
        if offset < segment.next:
            break
    return frames


def _raise(error: LogError) -> list[bytes]:
    raise error


def _record_size(segment: Segment, offset: int) -> int:
    after = offset - segment.first + 1
    end = segment.size if after == len(segment.starts) else segment.starts[after]
    return end - segment.starts[after - 1]
