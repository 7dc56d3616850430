"""Snapshots of jobs in a folder, local or in an object store: written, found again whole, and removed.

It knows files, not what is in them: who asks for snapshots and brings jobs back is the controller. Start reading at
``store``; ``savepoint`` copies a snapshot elsewhere, and ``codec`` makes bytes of captures.
"""

from dirigo.runtime.snapshots.blobs import BlobRef
from dirigo.runtime.snapshots.codec import decode, encode
from dirigo.runtime.snapshots.errors import DamagedSnapshot, SnapshotError
from dirigo.runtime.snapshots.manifest import ActorEntry, SnapshotManifest, StoredJob
from dirigo.runtime.snapshots.savepoint import Savepoint, copy_to
from dirigo.runtime.snapshots.store import SnapshotInfo, SnapshotStore, list_snapshots, prepare_folder, stored_jobs

__all__ = [
    "ActorEntry",
    "BlobRef",
    "DamagedSnapshot",
    "Savepoint",
    "SnapshotError",
    "SnapshotInfo",
    "SnapshotManifest",
    "SnapshotStore",
    "StoredJob",
    "copy_to",
    "decode",
    "encode",
    "list_snapshots",
    "prepare_folder",
    "stored_jobs",
]
