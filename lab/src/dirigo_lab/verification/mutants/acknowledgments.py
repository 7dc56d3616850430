"""Mistakes with acknowledgments, with the two granularities and with the end of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dirigo.kernel import lessor as lessor_module
from dirigo.kernel.barrier import Barrier, Upstream
from dirigo.kernel.interface.message import CriticalAck, Granularity, ProgramAck, SyncRequestAck
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.outbox import Outbox, Route
from dirigo_lab.verification.mutants.mutant import mutant, without_sends


@mutant("no-wait-for-ack", "the sender goes on before its cut is installed", Outbox, "_send_program", "no-lessee", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Outbox, route: Route) -> None:
        original(self, route)
        route.awaiting = 0
        self.busy.discard(route.to)

    return mistaken


@mutant("any-ack", "an acknowledgment of another program is taken", Outbox, "on_program_ack", "twice-in-a-row")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Outbox, ack: Any) -> bool:
        route = self.route(ack.sender)
        if route.awaiting <= 0:
            return False
        return bool(original(self, ProgramAck(ack.to, ack.worker, ack.sender, route.awaiting)))

    return mistaken


@mutant("unsync-before-ack", "UNSYNC leaves before the own programs are acknowledged", Lessor, "_do_agenda", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> bool:
        busy, self.outbox.busy = self.outbox.busy, set()
        try:
            return bool(original(self))
        finally:
            self.outbox.busy |= busy

    return mistaken


@mutant("drop-receipt-ack", "a lessee does not acknowledge SYNC_REQUEST", Lessee, "on_sync_request", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return without_sends(SyncRequestAck, original)


@mutant("drop-critical-ack", "executed critical messages are not acknowledged", Lessor, "_end_round", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return without_sends(CriticalAck, original)


@mutant("one-is-enough", "a SYNC_ONE runs when its first program comes", lessor_module, "ready_barriers", "two-sync-ones")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda upstreams, _: [Barrier((u.programs[0],)) for _, u in sorted(upstreams.items()) if u.programs]


@mutant(
    "incomplete-blocks-others",
    "an incomplete SYNC_ONE keeps its members from running what is ahead of it",
    lessor_module,
    "ready_barriers",
    "incomplete-sync-one",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(upstreams: Any, last_snapshot: int) -> list[Barrier]:
        heads = [upstream.programs[0].message for upstream in upstreams.values() if upstream.programs]
        blocked = {member for head in heads if head.granularity is Granularity.ONE for member in head.blocks}
        ready = original(upstreams, last_snapshot)
        return [b for b in ready if len(b.programs) > 1 or b.programs[0].message.sender not in blocked]

    return mistaken


@mutant(
    "end-when-installed", "an upstream counts as ended when its last cut is installed", Lessor, "on_program", "upstream-ends"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, program: Any) -> None:
        original(self, program)
        if program.final:
            self.upstreams[program.sender].ended = True
            self.settle()

    return mistaken


@mutant("wait-for-the-ended", "a SYNC_ONE waits for an upstream that has ended", Upstream, "finish_head", "upstream-ends")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Upstream) -> Any:
        message = original(self)
        self.ended = False
        return message

    return mistaken
