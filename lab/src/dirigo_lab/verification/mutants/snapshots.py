"""Mistakes with the barriers of snapshots, and with what the kernel keeps of an actor and takes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

import dirigo.kernel.lessor as lessor_module
from dirigo.kernel import CriticalRun, Granularity, Kept
from dirigo.kernel.barrier import Barrier, Fate
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.outbox import Outbox, Route
from dirigo_lab.verification.mutants.mutant import mutant


def _snapshot_heads(upstreams: Any) -> list[Any]:
    headed = [upstream for _, upstream in sorted(upstreams.items()) if upstream.programs]
    return [upstream for upstream in headed if upstream.programs[0].message.granularity is Granularity.SNAPSHOT]


@mutant(
    "snapshot-of-the-first",
    "a snapshot runs when the first of its barriers comes",
    lessor_module,
    "ready_barriers",
    "snapshot-of-two",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(upstreams: Any, last_snapshot: int) -> list[Barrier]:
        barriers: list[Barrier] = original(upstreams, last_snapshot)
        taken = {program.message.sender for barrier in barriers for program in barrier.programs}
        early = [upstream for upstream in _snapshot_heads(upstreams) if upstream.address not in taken]
        return barriers + [Barrier((upstream.programs[0],)) for upstream in early]

    return mistaken


@mutant("snapshots-counted-as-ones", "snapshots and SYNC_ONEs share a count", Outbox, "_count", "snapshot-gives-way")
def _(_original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(_self: Outbox, route: Route, granularity: Granularity) -> int:
        route.ones += granularity is not Granularity.CHANNEL
        return 0 if granularity is Granularity.CHANNEL else route.ones

    return mistaken


@mutant("never-gives-way", "a snapshot gives way to nothing", lessor_module, "ready_barriers", "snapshot-gives-way")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(upstreams: Any, last_snapshot: int) -> list[Barrier]:
        return [barrier for barrier in original(upstreams, last_snapshot) if barrier.fate is not Fate.IS_VOID]

    return mistaken


@mutant(
    "gives-way-at-once",
    "a snapshot gives way as soon as another upstream is at something else",
    lessor_module,
    "ready_barriers",
    "snapshot-of-two",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(upstreams: Any, last_snapshot: int) -> list[Barrier]:
        barriers: list[Barrier] = original(upstreams, last_snapshot)
        heads = [upstream for upstream in upstreams.values() if upstream.programs]
        waiting = _snapshot_heads(upstreams)
        ready = any(barrier.snapshot for barrier in barriers)
        if waiting and len(heads) > len(waiting) and not ready:
            barriers.append(Barrier(tuple(upstream.programs[0] for upstream in waiting), Fate.IS_VOID))
        return barriers

    return mistaken


@mutant(
    "late-barrier-runs",
    "what comes later of a snapshot that gave way runs as void once more",
    lessor_module,
    "ready_barriers",
    "snapshot-gives-way",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(upstreams: Any, last_snapshot: int) -> list[Barrier]:
        barriers: list[Barrier] = original(upstreams, last_snapshot)
        for barrier in barriers:
            if barrier.fate is Fate.IS_DROPPED:
                barrier.fate = Fate.IS_VOID
        return barriers

    return mistaken


@mutant("void-as-whole", "an actor where a snapshot gave way is captured", Barrier, "runs", "snapshot-gives-way")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Barrier, *args: Any) -> Any:
        for run in original(self, *args):
            yield replace(run, is_void=False) if isinstance(run, CriticalRun) else run

    return mistaken


@mutant("ended-forgotten", "who has ended is not kept", Lessor, "keep", "snapshot-ends")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: Kept((), original(self).timers)


@mutant("fired-timers-forgotten", "timers that have fired and have not run are not kept", Lessor, "keep", "snapshot-timer")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: Kept(original(self).ended, tuple(self.timers))


@mutant("timers-forgotten", "timers that have not fired are not kept", Lessor, "keep", "snapshot-timer")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: Kept(original(self).ended, tuple((each.created, each.payload) for each in self.alone))


@mutant(
    "restored-as-alive", "upstreams that had ended are waited for after a restore", Lessor, "restore", "snapshot-ends-in-one"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, kept: original(self, Kept((), kept.timers))


@mutant("restored-without-timers", "timers are not set again by a restore", Lessor, "restore", "snapshot-timer")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, kept: original(self, Kept(kept.ended, ()))


@mutant("restored-without-view", "lessees read nothing of what was restored", Lessor, "restore", "snapshot-replica")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, kept: Kept) -> None:
        original(self, kept)
        self.view, self.view_version = None, 0

    return mistaken


@mutant(
    "restored-view-stays",
    "the first round after a restore makes a view of the same version",
    Lessor,
    "restore",
    "snapshot-replica",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, kept: Kept) -> None:
        original(self, kept)
        self.last_round = 0

    return mistaken
