"""Snapshots in worlds: the names of their barriers, and what an actor captures.

The payload of a snapshot's barrier is its name, ``snap2``, or ``snap2~`` once it is void. It is no message of the world's:
no function counts it, so that a world with snapshots has to compute what it computes without them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dirigo.kernel import CriticalRun, Kept

_NAME, _VOID = "snap", "~"


class CaptureInWorld(NamedTuple):
    """What is known of one actor at the cut of one snapshot."""

    content: Any  # of its states, as its function captured it
    kept: Kept  # by the kernel


def snapshot_name(number: int, *, is_void: bool = False) -> str:
    return f"{_NAME}{number}{_VOID if is_void else ''}"


def snapshot_of(payload: str) -> int | None:
    """The number of the snapshot whose barrier this is; None for any other payload."""
    return int(payload[len(_NAME) :].rstrip(_VOID)) if payload.startswith(_NAME) else None


def is_void(run: CriticalRun) -> bool:
    """Whether a snapshot has given way here, or anywhere upstream."""
    return run.is_void or any(payload.endswith(_VOID) for _, _, payload in run.parts)


def passed_on(run: CriticalRun) -> str:
    """The name under which its barrier goes on."""
    number = snapshot_of(run.payload)
    assert number is not None
    return snapshot_name(number, is_void=is_void(run))
