"""Savepoints: a snapshot copied into a folder of its own that needs no other file, and that only its user removes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from dirigo.runtime.snapshots.addresses import place_at
from dirigo.runtime.snapshots.blobs import BlobRef, part_name, read_blob, write_blobs
from dirigo.runtime.snapshots.errors import DamagedSnapshot, SnapshotError
from dirigo.runtime.snapshots.manifest import (
    JOB_FILE,
    SnapshotManifest,
    StoredJob,
    manifest_name,
    read_record,
    write_record,
)
from dirigo.runtime.snapshots.places import Place
from dirigo.runtime.snapshots.store import SnapshotInfo, SnapshotStore, numbers_in, snapshots_in, verified, whole_manifest

_FILE_BYTES: Final = 4 << 30  # an object of an object store has a largest size


class Savepoint:
    """A savepoint that lies in a folder. No cluster is needed to look at it."""

    def __init__(self, place: Place, manifest: SnapshotManifest, job: StoredJob | None) -> None:
        self.place = place
        self.manifest = manifest
        self.job = job
        self._checked: set[str] = set()

    @classmethod
    def open(cls, uri: str) -> Savepoint:
        """The savepoint in a folder; one that is not whole is refused."""
        place = place_at(uri)
        files = place.files()
        numbers = numbers_in(files)
        if len(numbers) != 1:
            raise SnapshotError(
                f"'{place.shown}' holds {'no finished savepoint' if not numbers else 'many snapshots'}; name the folder of "
                "one savepoint."
            )
        try:
            manifest = whole_manifest(place, numbers[0], files)
            job = read_record(place, JOB_FILE, StoredJob) if JOB_FILE in files else None
        except DamagedSnapshot as error:
            raise DamagedSnapshot(f"The savepoint in '{place.shown}' cannot be used: {error} Use another one.") from error
        return cls(place, manifest, job)

    def read(self, ref: BlobRef) -> memoryview:
        """A blob, in memory that is the caller's own. Raises ``DamagedSnapshot`` if it is not what was written."""
        return read_blob(self.place, ref, self._checked)

    def verify(self) -> list[str]:
        """Read all blobs, and say what is wrong with them."""
        return verified(self.place, self.manifest)


def savepoint_in(uri: str) -> list[SnapshotInfo]:
    """A savepoint as it is listed, with the job that it is of; nothing if the folder holds none."""
    place = place_at(uri)
    return snapshots_in(place, "")


def copy_to(
    store: SnapshotStore, manifest: SnapshotManifest, uri: str, is_wanted: Callable[[], bool] = lambda: True
) -> SnapshotManifest:
    """Copy a snapshot into an empty folder, and return its manifest there. Until it is complete it is no savepoint.

    ``is_wanted`` is asked before each state: if nobody wants the copy any more, nothing of it stays.
    """
    place = place_at(uri)
    place.make()
    if place.files() or place.folders():
        raise SnapshotError(f"'{place.shown}' is not empty, and a savepoint needs a folder of its own; name another folder.")
    job = store.read_job()
    try:
        bodies = _copy_bodies(store, manifest, place, is_wanted)
        actors = {
            actor: msgspec.structs.replace(entry, body=bodies[actor]) if entry.body is not None else entry
            for actor, entry in manifest.actors.items()
        }
        if job is not None:
            write_record(place, JOB_FILE, job)
        copied: SnapshotManifest = msgspec.structs.replace(manifest, actors=actors)
        write_record(place, manifest_name(manifest.number), copied)
    except BaseException:
        with contextlib.suppress(SnapshotError):
            place.remove_files(list(place.files()))
        raise
    return copied


def _copy_bodies(
    store: SnapshotStore, manifest: SnapshotManifest, place: Place, is_wanted: Callable[[], bool]
) -> dict[str, BlobRef]:
    """Copy blob by blob, each checked, so that one of them at a time is in memory."""

    def read(ref: BlobRef) -> memoryview:
        if not is_wanted():
            raise SnapshotError(f"The savepoint in '{place.shown}' was given up before it was complete; take another one.")
        return store.read(ref)

    copied: dict[str, BlobRef] = {}
    for index, chunk in enumerate(_chunks(list(manifest.bodies()))):
        name = part_name(manifest.number, manifest.generation, index)
        blobs = ((read(ref),) for _, ref in chunk)
        refs = write_blobs(place, name, blobs)
        copied.update(zip((actor for actor, _ in chunk), refs, strict=True))
    return copied


def _chunks(bodies: list[tuple[str, BlobRef]]) -> Iterator[list[tuple[str, BlobRef]]]:
    """What goes into one file each."""
    chunk: list[tuple[str, BlobRef]] = []
    size = 0
    for actor, ref in bodies:
        if chunk and size + ref.length > _FILE_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append((actor, ref))
        size += ref.length
    if chunk:
        yield chunk
