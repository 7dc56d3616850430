"""One file of a log: records one after the other, each a frame behind a short header, and where each of them begins.

Header and frame have check sums. Headers are checked when a file is opened, frames when they are read: what is not as it was
written is never given out. ``zlib.crc32`` takes about 0.25 ms per megabyte.
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

from dirigo.runtime.results.log.errors import LogError, damaged, reason_of

_CHECKED: Final = struct.Struct("<IQQqI")  # rows, bytes of the frame, offset, milliseconds since the epoch, the frame's sum
_CHECKSUM: Final = struct.Struct("<I")
HEADER_BYTES: Final = _CHECKSUM.size + _CHECKED.size
ROWS_MOST: Final = (1 << 32) - 1  # in one record
_SUFFIX: Final = ".frames"

Buffer = bytes | memoryview


def header(rows: int, frame: Buffer, size: int, offset: int, time_ms: int) -> bytes:
    """What stands before a frame of `size` bytes."""
    checked = _CHECKED.pack(rows, size, offset, time_ms, zlib.crc32(frame))
    return _CHECKSUM.pack(zlib.crc32(checked)) + checked


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

    def load(self, *, with_frames: bool) -> int:
        """Find the records that are in the file; returns how many bytes behind the last good one are none.

        `with_frames`: a record whose frame is not what was written is none either, nor is anything behind it.
        """
        with self.path.open("rb", buffering=0) as file:
            descriptor = file.fileno()
            file_size = os.fstat(descriptor).st_size
            while self.size + HEADER_BYTES <= file_size:
                head = os.pread(descriptor, HEADER_BYTES, self.size)
                if len(head) < HEADER_BYTES:  # somebody cut the file just now
                    break
                rows, size, offset, time_ms, frame_sum = _CHECKED.unpack_from(head, _CHECKSUM.size)
                if not _is_header(head) or offset != self.next or self.size + HEADER_BYTES + size > file_size:
                    break
                if with_frames:
                    frame = _read_fully(descriptor, size, self.size + HEADER_BYTES)
                    if len(frame) < size or zlib.crc32(frame) != frame_sum:
                        break
                self.add(rows, size, time_ms)
        return file_size - self.size

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
            piece = _read_fully(file.fileno(), end - begin, begin)
        bounds = [start - begin for start in self.starts[number:after]]
        bounds.append(end - begin)
        frames: list[bytes] = []
        for i in range(after - number):
            if not _is_intact(memoryview(piece)[bounds[i] : bounds[i + 1]], offset + i):
                break
            frames.append(piece[bounds[i] + HEADER_BYTES : bounds[i + 1]])
        return frames


def _is_intact(record: memoryview, offset: int) -> bool:
    """Whether this is a record as it was written, at its place."""
    if len(record) < HEADER_BYTES or not _is_header(record):
        return False
    _, size, its_offset, _, frame_sum = _CHECKED.unpack_from(record, _CHECKSUM.size)
    frame = record[HEADER_BYTES:]
    return bool((its_offset, size, frame_sum) == (offset, len(frame), zlib.crc32(frame)))


def _is_header(record: Buffer) -> bool:
    (checksum,) = _CHECKSUM.unpack_from(record)
    return bool(checksum == zlib.crc32(memoryview(record)[_CHECKSUM.size : HEADER_BYTES]))


def _read_fully(descriptor: int, size: int, begin: int) -> bytes:
    """That many bytes, or as many as there are."""
    piece = os.pread(descriptor, size, begin)
    while len(piece) < size:  # the system gives at most 2 GiB at once
        more = os.pread(descriptor, size - len(piece), begin + len(piece))
        if not more:
            break
        piece += more
    return piece


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
            return frames or _raise(damaged(folder, offset, offset + 1))
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
