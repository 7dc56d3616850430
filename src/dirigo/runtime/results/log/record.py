"""One record of a log: a frame behind a short header, both with check sums; and how to find one in a file.

``zlib.crc32`` takes about 0.25 ms per megabyte.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import Final, NamedTuple

import numpy as np

_CHECKED: Final = struct.Struct("<IQQqI")  # rows, bytes of the frame, offset, milliseconds since the epoch, the frame's sum
_CHECKSUM: Final = struct.Struct("<I")
HEADER_BYTES: Final = _CHECKSUM.size + _CHECKED.size
ROWS_MOST: Final = (1 << 32) - 1  # in one record
_OFFSET_AT: Final = 16  # in a header
_SEARCH_BYTES_LEAST: Final = 64 << 10  # at once: mostly the next record is near
_SEARCH_BYTES_MOST: Final = 8 << 20

Buffer = bytes | memoryview


class Head(NamedTuple):
    """What a header says."""

    rows: int
    size: int  # bytes of the frame
    offset: int
    time_ms: int
    frame_sum: int


def header(rows: int, frame: Buffer, size: int, offset: int, time_ms: int) -> bytes:
    """What stands before a frame of `size` bytes."""
    checked = _CHECKED.pack(rows, size, offset, time_ms, zlib.crc32(frame))
    return _CHECKSUM.pack(zlib.crc32(checked)) + checked


def is_intact(record: memoryview, offset: int) -> bool:
    """Whether this is a record as it was written, at its place."""
    head = _head_in(record)
    if head is None:
        return False
    frame = record[HEADER_BYTES:]
    return (head.offset, head.size, head.frame_sum) == (offset, len(frame), zlib.crc32(frame))


def head_at(descriptor: int, place: int, file_size: int) -> Head | None:
    """The header of the record that begins there; None if there is none, or not all of its frame is in the file."""
    head = _head_in(os.pread(descriptor, HEADER_BYTES, place))
    return head if head is not None and place + HEADER_BYTES + head.size <= file_size else None


def has_its_frame(descriptor: int, place: int, head: Head) -> bool:
    """Whether the frame behind a header is what was written."""
    frame = read_fully(descriptor, head.size, place + HEADER_BYTES)
    return len(frame) == head.size and zlib.crc32(frame) == head.frame_sum


def next_whole(descriptor: int, begin: int, file_size: int, after: int, before: int | None) -> tuple[int, Head] | None:
    """The first whole record at `begin` or behind it, and its place: one with an offset above `after` and below `before`.

    That many bytes may hold any number of records that are none any more, but not more than fit before it.
    """
    size = _SEARCH_BYTES_LEAST
    searched = begin
    while searched + HEADER_BYTES <= file_size:
        piece = read_fully(descriptor, size + HEADER_BYTES - 1, searched)
        fit = (searched + len(piece) - begin) // HEADER_BYTES
        below = after + 2 + fit
        for at in _candidates(piece, after + 1, below if before is None else min(below, before)):
            place = searched + at
            head = head_at(descriptor, place, file_size) if _head_in(piece[at : at + HEADER_BYTES]) else None
            if head is None or head.offset - after - 1 > (place - begin) // HEADER_BYTES:
                continue
            if has_its_frame(descriptor, place, head):
                return place, head
        searched += size
        size = min(2 * size, _SEARCH_BYTES_MOST)
    return None


def read_fully(descriptor: int, size: int, begin: int) -> bytes:
    """That many bytes, or as many as there are."""
    piece = os.pread(descriptor, size, begin)
    while len(piece) < size:  # the system gives at most 2 GiB at once
        more = os.pread(descriptor, size - len(piece), begin + len(piece))
        if not more:
            break
        piece += more
    return piece


def _head_in(record: Buffer) -> Head | None:
    if len(record) < HEADER_BYTES:
        return None
    (checksum,) = _CHECKSUM.unpack_from(record)
    if checksum != zlib.crc32(memoryview(record)[_CHECKSUM.size : HEADER_BYTES]):
        return None
    return Head._make(_CHECKED.unpack_from(record, _CHECKSUM.size))


def _candidates(piece: bytes, first: int, below: int) -> list[int]:
    """Where in a piece a header may begin, by its offset alone: to take the sum at every byte would take seconds."""
    found = []
    for shift in range(8):
        count = (len(piece) - shift) // 8
        if count > 0:
            numbers = np.frombuffer(piece, "<u8", count, shift)
            found.append(np.flatnonzero((numbers >= first) & (numbers < below)) * 8 + (shift - _OFFSET_AT))
    places: list[int] = np.sort(np.concatenate(found)).tolist() if found else []
    return [place for place in places if 0 <= place <= len(piece) - HEADER_BYTES]
