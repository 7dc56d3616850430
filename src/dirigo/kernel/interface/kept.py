"""What the kernel itself keeps of an actor for a snapshot.

The rest of what it knows needs no keeping: a barrier has drained it, or it counts from one again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dirigo.kernel.interface.address import Address


class Kept(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Of one actor, at the cut of one snapshot."""

    ended: tuple[Address, ...]  # upstream actors that send nothing any more
    timers: tuple[tuple[float, Any], ...]  # (due time, payload), those included that have fired and have not run
