"""Mistakes in a round: who takes part, what is waited for, what is combined and released."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dirigo.kernel import lessor as lessor_module
from dirigo.kernel.barrier import Barrier
from dirigo.kernel.instance import Instance
from dirigo.kernel.interface.message import Granularity, SyncReply, SyncRequest
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.mailbox import Event, MessageKind
from dirigo_lab.verification.mutants.mutant import mutant


@mutant("unblock-early", "a lessee goes on as soon as it has replied", Lessee, "_reply", "chain", "two-barriers")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee) -> None:
        original(self)
        self.enter(Event.UNSYNCED)

    return mistaken


@mutant("merge-twice", "a partial state is combined twice", Lessor, "_consolidate", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> Any:
        current = self.round
        assert current is not None
        consolidates = len(current.replies) == len(current.lessees)
        result = original(self)
        if consolidates:
            for reply in current.replies.values():
                self.states.merge(reply.partial)
        return result

    return mistaken


@mutant("lose-a-partial", "the last reply's partial state is not combined", Lessor, "_consolidate", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> Any:
        current = self.round
        assert current is not None
        replies = current.replies
        if replies and len(replies) == len(current.lessees):
            last = max(replies)
            nothing = self.spec.states().take()
            reply = replies[last]
            replies[last] = SyncReply(reply.to, reply.worker, reply.origin, reply.round, nothing, reply.sent, reply.returned)
        return original(self)

    return mistaken


@mutant("copy-not-move", "SYNC_REPLY copies the partial state and keeps it", Lessee, "_reply", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee) -> None:
        original(self)
        reply = self.host.outgoing[-1]
        assert isinstance(reply, SyncReply)
        self.states.merge(reply.partial)

    return mistaken


def _as_if_idle(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as if no message were running."""

    def mistaken(self: Instance) -> bool:
        running, self.running = self.running, None
        try:
            return bool(original(self))
        finally:
            self.running = running

    return mistaken


mutant("reply-while-running", "a lessee replies while a message runs", Lessee, "_is_drained", "overlap-direct")(_as_if_idle)
mutant("critical-while-running", "a lessor blocks while a message runs", Lessor, "_is_drained", "no-lessee", "overlap")(
    _as_if_idle
)


@mutant("wipe-other-programs", "the end of a round wipes what came during it", Lessor, "_end_round", "no-lessee", "overlap")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> Any:
        assert self.round is not None
        mine = self.round.programs()
        for upstream in self.upstreams.values():
            for program in list(upstream.programs):
                if program not in mine:
                    upstream.programs.remove(program)
        return original(self)

    return mistaken


@mutant("lost-wake-up", "a program starts no round when there are no lessees", Lessor, "on_program", "no-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, program: Any) -> None:
        settle, silent = Lessor.settle, (lambda _: None)
        if not self.leases.leased:
            Lessor.settle = silent  # type: ignore[method-assign]
        try:
            original(self, program)
        finally:
            Lessor.settle = settle  # type: ignore[method-assign]

    return mistaken


@mutant("two-programs-a-round", "a round takes all programs of an upstream", lessor_module, "ready_barriers", "no-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(upstreams: Any, last_snapshot: int) -> list[Barrier]:
        barriers = original(upstreams, last_snapshot)
        for upstream in upstreams.values():
            for program in list(upstream.programs)[1:]:
                if program.message.granularity is Granularity.CHANNEL:
                    barriers.append(Barrier((program,)))
        return list(barriers)

    return mistaken


@mutant(
    "skip-silent-lessees", "only lessees that got a forward take part", Lessor, "_lessees_of", "two-barriers", "scale-in"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, barriers: tuple(w for w in original(self, barriers) if w in self.leases.forwarded)


@mutant("drop-early-request", "a SYNC_REQUEST that overtakes UNSYNC is dropped", Lessee, "on_sync_request", "two-barriers")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee, request: SyncRequest) -> None:
        original(self, request)
        self.held_request = None

    return mistaken


@mutant("any-unsync", "an UNSYNC of another round is taken", Lessee, "on_unsync", "twice-in-a-row", "twice")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee, unsync: Any) -> None:
        round_, self.round = self.round, unsync.round
        try:
            original(self, unsync)
        finally:
            self.round = max(self.round, round_)

    return mistaken


@mutant("program-taken-twice", "a program that comes twice is taken twice", Lessor, "on_program", "twice")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, program: Any) -> None:
        self.upstreams[program.sender].last_program = program.number - 1
        original(self, program)

    return mistaken


@mutant("drop-what-was-held", "messages held during a round are not released", Lessor, "_end_round", "no-lessee", "fork")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> Any:
        self.held = []
        return original(self)

    return mistaken


@mutant(
    "release-unchecked",
    "what was held runs without looking at the next cut",
    Lessor,
    "_release",
    "no-lessee",
    "two-barriers",
)
def _(_original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> None:
        held, self.held = self.held, []
        for message in held:
            self.note_held(message)
            self.admit(message, MessageKind.FREE)

    return mistaken
