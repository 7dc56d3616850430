"""Snapshots for tests: what a worker and a controller would write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dirigo.runtime.snapshots import ActorEntry, BlobRef, SnapshotManifest, SnapshotStore

JOB = "orders~1"


def manifest_of(number: int, bodies: Mapping[str, BlobRef | None], generation: int = 0, job: str = JOB) -> SnapshotManifest:
    actors = {place: ActorEntry(f"head of {place}".encode(), body, ended=body is None) for place, body in bodies.items()}
    return SnapshotManifest(
        job=job,
        name="orders",
        number=number,
        generation=generation,
        began_s=1000.0 + number,
        duration_s=0.5,
        sources={"read/0": b"position", "socket/0": None},
        actors=actors,
        logs={"sink/0": number * 10},
        plan=b"plan",
    )


def take(
    store: SnapshotStore, number: int, contents: Mapping[str, Sequence[bytes]], generation: int = 0
) -> SnapshotManifest:
    """A whole snapshot by one worker, with one part file."""
    refs = store.write_part(number, generation, 1, list(contents.values()))
    manifest = manifest_of(number, dict(zip(contents, refs, strict=True)), generation, store.job)
    store.write_manifest(manifest)
    return manifest


def content_of(store: SnapshotStore, manifest: SnapshotManifest) -> dict[str, bytes]:
    return {place: bytes(store.read(ref)) for place, ref in manifest.bodies()}
