"""Manifests, and what else a job's folder holds in one small file each: a checksum in front, and the content."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from dirigo.runtime.snapshots.blobs import BlobRef
from dirigo.runtime.snapshots.errors import DamagedSnapshot, SnapshotError
from dirigo.runtime.snapshots.places import Place

JOB_FILE: Final = "job.msgpack"
_MAGIC: Final = b"dirigo-m"
_VERSION: Final = 1
# The same in all versions: magic, checksum of all that follows it, version.
_HEADER: Final = struct.Struct("<8sII")
_CHECKED_FROM: Final = 12
_NAME: Final = re.compile(r"manifest-(\d+)\.msgpack")

S = TypeVar("S", bound=msgspec.Struct)


class ActorEntry(msgspec.Struct, frozen=True, array_like=True):
    """What is known of an actor: its head is small and lies here, its body may lie in a file of an earlier snapshot."""

    head: bytes
    body: BlobRef | None = None
    ended: bool = False


class SnapshotManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot. Places are "operator/partition"; a source without a position (None) cannot be replayed."""

    job: str
    name: str  # of the job
    number: int
    generation: int = 0
    began_s: float  # since 1970
    duration_s: float = 0.0
    written_bytes: int = 0  # for this snapshot
    total_bytes: int = 0  # of all that it consists of, in files of earlier snapshots as well
    is_final: bool = False  # the job was stopped with it
    sources: dict[str, bytes | None] = {}
    actors: dict[str, ActorEntry] = {}
    logs: dict[str, int] = {}  # offsets in the results logs
    plan: bytes = b""

    def bodies(self) -> Iterator[tuple[str, BlobRef]]:
        """The places of actors that have a body, and where it is."""
        for place, entry in self.actors.items():
            if entry.body is not None:
                yield place, entry.body


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a service needs to begin a job again after its own death."""

    job: str
    name: str
    began_s: float
    content: bytes  # the controller knows what


def manifest_name(number: int) -> str:
    return f"manifest-{number}.msgpack"


def number_of(name: str) -> int | None:
    """Which snapshot a manifest is of, by the name of its file; none if it is no manifest."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def write_record(place: Place, file: str, record: msgspec.Struct) -> None:
    """Write one small file as a whole."""
    content = msgspec.msgpack.encode(record)
    version = _VERSION.to_bytes(4, "little")
    place.write(file, [_HEADER.pack(_MAGIC, zlib.crc32(content, zlib.crc32(version)), _VERSION), content])


def read_record(place: Place, file: str, kind: type[S]) -> S:
    """Read one small file, and check it."""
    content = place.read(file)
    if len(content) < _HEADER.size:
        raise DamagedSnapshot(f"'{file}' in '{place.shown}' is too short.")
    magic, crc32, version = _HEADER.unpack_from(content)
    if magic != _MAGIC or zlib.crc32(content[_CHECKED_FROM:]) != crc32:
        raise DamagedSnapshot(f"'{file}' in '{place.shown}' is damaged: its checksum is not what it was.")
    if version != _VERSION:
        raise SnapshotError(
            f"'{file}' in '{place.shown}' is in format {version} and this version of Dirigo reads format {_VERSION}; use "
            "the version that wrote it."
        )
    try:
        return msgspec.msgpack.decode(content[_HEADER.size :], type=kind)
    except msgspec.DecodeError as error:  # with the right checksum: somebody else's file
        raise DamagedSnapshot(f"'{file}' in '{place.shown}' is damaged: {error}.") from error


def read_manifest(place: Place, number: int) -> SnapshotManifest:
    manifest = read_record(place, manifest_name(number), SnapshotManifest)
    if manifest.number != number:
        raise DamagedSnapshot(f"'{manifest_name(number)}' in '{place.shown}' is the manifest of snapshot {manifest.number}.")
    return manifest
