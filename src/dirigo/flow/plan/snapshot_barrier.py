"""What travels through a job when a snapshot is taken: see docs/internals/snapshots.md."""

from __future__ import annotations

import msgspec


class SnapshotBarrier(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The cut of one snapshot: what was emitted before it belongs to it, and what follows does not."""

    number: int
    is_void: bool = False
    """It gave way to a SYNC_ONE somewhere upstream: nobody captures anything any more, and it is passed on as void."""
