"""Part files: what one worker wrote for one snapshot, blob after blob.

Each blob begins at a multiple of 64, so that what is decoded in place lies as Arrow and NumPy like it. The zeros that fill
the gap behind a blob belong to its checksum: so there is no byte in a part file that nobody checks.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from dirigo.runtime.snapshots.errors import DamagedSnapshot, SnapshotError
from dirigo.runtime.snapshots.places import Buffer, Place

ALIGNMENT: Final = 64
_MAGIC: Final = b"dirigo-p"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sII48x")  # magic, version, checksum of both
_PART: Final = re.compile(r"part-(\d+)-(\d+)-w(\d+)(?:-(\d+))?\.bin")


class BlobRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a blob is: in a part file of the same job. The checksum covers the blob and the zeros behind it."""

    file: str
    offset: int
    length: int
    crc32: int


def part_name(number: int, generation: int, worker: int, piece: int = 0) -> str:
    return f"part-{number}-{generation}-w{worker}{f'-{piece}' if piece else ''}.bin"


def number_and_generation(name: str) -> tuple[int, int] | None:
    """Of which snapshot and generation a part file is; none if it is no part file."""
    found = _PART.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


def end_of(ref: BlobRef) -> int:
    """How long the file of a blob is at least."""
    return ref.offset + _padded(ref.length)


def write_blobs(place: Place, name: str, blobs: Iterable[Iterable[Buffer]]) -> list[BlobRef]:
    """Write a part file, buffer by buffer, none of which is copied. On return it is durable."""
    refs: list[BlobRef] = []
    place.write(name, _content(name, blobs, refs))
    return refs


def read_blob(place: Place, ref: BlobRef, checked: set[str]) -> memoryview:
    """A blob, in memory of its own. ``checked`` are the files whose header was looked at already."""
    if number_and_generation(ref.file) is None or ref.offset < ALIGNMENT or ref.length < 0:
        raise DamagedSnapshot(f"A blob of a snapshot in '{place.shown}' is said to be where none can be: '{ref.file}'.")
    if ref.file not in checked:
        _check_header(place, ref.file)
        checked.add(ref.file)
    span = place.read(ref.file, ref.offset, _padded(ref.length))
    if zlib.crc32(span) != ref.crc32:
        raise DamagedSnapshot(f"'{ref.file}' in '{place.shown}' is damaged: a checksum is not what it was.")
    return span[: ref.length]


def _content(name: str, blobs: Iterable[Iterable[Buffer]], refs: list[BlobRef]) -> Iterator[Buffer]:
    yield _header()
    offset = _HEADER.size
    for buffers in blobs:
        length = crc32 = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            length += len(view)
            crc32 = zlib.crc32(view, crc32)
            yield view
        gap = bytes(_padded(length) - length)
        refs.append(BlobRef(name, offset, length, zlib.crc32(gap, crc32)))
        if gap:
            yield gap
        offset += length + len(gap)


def _check_header(place: Place, name: str) -> None:
    found = bytes(place.read(name, 0, _HEADER.size))
    if found == _header():
        return
    magic, version, crc32 = _HEADER.unpack(found)
    if magic == _MAGIC and crc32 == _checksum(version) and not any(found[16:]):
        raise SnapshotError(
            f"'{name}' in '{place.shown}' is in format {version} and this version of Dirigo reads format {_VERSION}; use "
            "the version that wrote it."
        )
    raise DamagedSnapshot(f"'{name}' in '{place.shown}' is damaged: it does not begin as a part of a snapshot does.")


def _header() -> bytes:
    return _HEADER.pack(_MAGIC, _VERSION, _checksum(_VERSION))


def _checksum(version: int) -> int:
    return zlib.crc32(_MAGIC + version.to_bytes(4, "little"))


def _padded(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
