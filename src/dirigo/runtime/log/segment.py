"""One file of a log: frames one after the other, each behind a short header, and where each of them begins.

A frame is cut off, not believed, when its header does not add up or its end is missing. The payload has no check sum of
its own: it would cost more than the write, and after the crash of a process a file is always a prefix of what was written.
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dirigo.runtime.log.errors import LogError, reason_of

_CHECKED: Final = struct.Struct("<IQQq")  # rows, payload bytes, offset, milliseconds since the epoch
_CHECKSUM: Final = struct.Struct("<I")
HEADER_BYTES: Final = _CHECKSUM.size + _CHECKED.size
_SUFFIX: Final = ".frames"


def header(rows: int, size: int, offset: int, time_ms: int) -> bytes:
    """What stands before a frame of `size` bytes."""
    checked = _CHECKED.pack(rows, size, offset, time_ms)
    return _CHECKSUM.pack(zlib.crc32(checked)) + checked


@dataclass(slots=True)
class Segment:
    """A file and the index of its frames, which costs 8 bytes of memory per frame."""

    path: Path
    first: int  # offset of its first frame
    starts: array[int] = field(default_factory=lambda: array("Q"))  # of the headers
    size: int = 0  # bytes of whole frames, with their headers
    rows: int = 0
    newest_ms: int = 0  # when the last frame came

    @classmethod
    def beginning(cls, folder: Path, first: int) -> Segment:
        return cls(folder / f"{first:020d}{_SUFFIX}", first)

    @property
    def next(self) -> int:
        return self.first + len(self.starts)

    def add(self, rows: int, size: int, time_ms: int) -> None:
        """A frame has been written behind the last one."""
        self.starts.append(self.size)
        self.size += HEADER_BYTES + size
        self.rows += rows
        self.newest_ms = time_ms

    def load(self) -> int:
        """Find the frames that are in the file; returns how many bytes behind the last whole one are no frame."""
        with self.path.open("rb", buffering=0) as file:
            descriptor = file.fileno()
            file_size = os.fstat(descriptor).st_size
            while self.size + HEADER_BYTES <= file_size:
                head = os.pread(descriptor, HEADER_BYTES, self.size)
                if len(head) < HEADER_BYTES:  # somebody cut the file just now
                    break
                rows, size, offset, time_ms = _CHECKED.unpack_from(head, _CHECKSUM.size)
                (checksum,) = _CHECKSUM.unpack_from(head)
                is_ours = checksum == zlib.crc32(memoryview(head)[_CHECKSUM.size :]) and offset == self.next
                if not is_ours or self.size + HEADER_BYTES + size > file_size:
                    break
                self.add(rows, size, time_ms)
        return file_size - self.size

    def read(self, offset: int, bytes_max: int) -> list[bytes]:
        """Frames from `offset` on, together at most `bytes_max` bytes with their headers, but at least one."""
        number = offset - self.first
        begin = self.starts[number]
        after = bisect_right(self.starts, begin + bytes_max, lo=number + 1)  # the frames before it may be read ...
        end = self.size if after == len(self.starts) else self.starts[after]
        if end - begin > bytes_max and after - 1 > number:  # ... but for the last, whose end may lie too far
            after -= 1
            end = self.starts[after]
        with self.path.open("rb", buffering=0) as file:
            piece = os.pread(file.fileno(), end - begin, begin)
            while len(piece) < end - begin:  # the system gives at most 2 GiB at once
                more = os.pread(file.fileno(), end - begin - len(piece), begin + len(piece))
                if not more:
                    raise LogError(f"'{self.path}' is shorter than it was; the log is damaged, remove its folder.")
                piece += more
        bounds = [start - begin for start in self.starts[number:after]]
        bounds.append(end - begin)
        return [piece[bounds[i] + HEADER_BYTES : bounds[i + 1]] for i in range(after - number)]


def find_segments(folder: Path) -> list[Segment]:
    """The segments in a folder, oldest first, not loaded."""
    return [Segment(path, int(path.name.removesuffix(_SUFFIX))) for path in sorted(folder.glob(f"*{_SUFFIX}"))]


def load_segments(segments: Sequence[Segment]) -> int:
    """Load them all; returns the bytes behind the last frame of the last one. The others must be whole."""
    behind = 0
    for number, segment in enumerate(segments):
        behind = segment.load()
        if number + 1 < len(segments) and (behind or segment.next != segments[number + 1].first):
            raise LogError(f"'{segment.path}' is damaged at byte {segment.size}; remove the folder of this log.")
    return behind


def read_frames(segments: Sequence[Segment], offset: int, bytes_max: int) -> list[bytes]:
    """Frames from `offset` on, which must not lie before the first segment; empty at the end of the log."""
    if not segments or offset >= segments[-1].next:
        return []
    frames: list[bytes] = []
    number = bisect_right(segments, offset, key=lambda segment: segment.first) - 1
    left = bytes_max
    while number < len(segments) and segments[number].starts:
        segment = segments[number]
        if frames and _frame_size(segment, offset) > left:
            break
        try:
            piece = segment.read(offset, left)
        except OSError as error:
            raise LogError(f"'{segment.path}' cannot be read ({reason_of(error)}); start from a later offset.") from error
        frames += piece
        offset += len(piece)
        left -= sum(map(len, piece)) + HEADER_BYTES * len(piece)
        if offset < segment.next:
            break
        number += 1
    return frames


def _frame_size(segment: Segment, offset: int) -> int:
    """Bytes of a frame and its header."""
    after = offset - segment.first + 1
    end = segment.size if after == len(segment.starts) else segment.starts[after]
    return end - segment.starts[after - 1]
