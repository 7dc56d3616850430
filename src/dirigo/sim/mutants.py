"""Deliberate mistakes in the protocol. Each must be caught by a named invariant, or the checks have a hole.

A mutant replaces one function of the kernel for the time of a search. Most are mistakes that were made, or nearly made, when
the protocol was designed; the others are the slips that anybody could make when changing it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dirigo.kernel import lessor as lessor_module
from dirigo.kernel.barrier import Barrier, Program, Upstream
from dirigo.kernel.instance import Instance
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor, Round
from dirigo.kernel.mailbox import Event, Kind, MailboxState
from dirigo.kernel.message import CriticalAck, Granularity, RevokeAck, SyncReply, SyncRequest, SyncRequestAck
from dirigo.kernel.outbox import Outbox, Route

Make = Callable[[Callable[..., Any]], Callable[..., Any]]  # from the function as it is to the mistaken one


@dataclass(frozen=True)
class Mutant:
    """One mistake: where it is, what it is, and the worlds most likely to show it."""

    name: str
    mistake: str
    owner: Any
    attribute: str
    make: Make
    worlds: tuple[str, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The kernel with this mistake in it."""
        original = getattr(self.owner, self.attribute)
        setattr(self.owner, self.attribute, self.make(original))
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, original)


MUTANTS: list[Mutant] = []


def _mutant(name: str, mistake: str, owner: Any, attribute: str, *worlds: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        MUTANTS.append(Mutant(name, mistake, owner, attribute, make, worlds))
        return make

    return register


def _always(value: Any) -> Make:
    return lambda original: lambda *args, **kwargs: value


def _without_sends(kind: type, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with what it sends of one kind thrown away."""

    def mistaken(self: Any, *args: Any) -> Any:
        before = len(self.host.outgoing)
        result = original(self, *args)
        kept = [message for message in self.host.outgoing[before:] if not isinstance(message, kind)]
        self.host.outgoing[before:] = kept
        return result

    return mistaken


# --- cuts ----------------------------------------------------------------------------------------------------------------


@_mutant("ignore-payload", "the dependency payload is not read", Program, "__init__", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Program, message: Any) -> None:
        original(self, message)
        self.at_home, self.at_lessees = {}, {}

    return mistaken


@_mutant(
    "cut-off-by-one", "drained when all but the last dependency is done", Upstream, "head_is_drained", "fork", "overlap"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: all(self.channel(o).done >= cut - 1 for o, cut in self.programs[0].at_home.items())


@_mutant("last-is-pending", "'<' for '<=': the last dependency counts as pending", Upstream, "is_pending", "fork", "overlap")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, origin, seq: bool(self.programs) and seq >= self.head_cut(origin)


@_mutant("nothing-pending", "no message is ever pending", Upstream, "is_pending", "fork", "two-sync-ones")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, origin, seq: False


@_mutant(
    "unnamed-is-uncut", "a channel that the payload does not name is not cut", Upstream, "head_cut", "no-lessee", "chain"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, origin: self.programs[0].at_home.get(origin, 1 << 30)


@_mutant("forget-forward-cut", "SYNC_REQUEST does not name the last forward", Lessor, "_start_round", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> bool:
        forwarded, self.leases.forwarded = self.leases.forwarded, {}
        try:
            return bool(original(self))
        finally:
            self.leases.forwarded = forwarded

    return mistaken


@_mutant(
    "unknown-is-flushed", "a channel with no entry yet counts as flushed", Lessee, "_is_drained", "two-barriers", "scale-in"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee) -> bool:
        request = self.request
        assert request is not None
        cuts = tuple(cut for cut in request.cuts if cut[:2] in self.direct)
        self.request = SyncRequest(*(request.to, request.worker, request.origin, request.round, request.forwards, cuts))
        try:
            return bool(original(self))
        finally:
            self.request = request

    return mistaken


@_mutant(
    "ids-to-first-target", "ids collected for all targets go with the first program", Outbox, "_take_dependencies", "fork"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Outbox, route: Route) -> Any:
        taken = original(self, route)
        for other in self.routes.values():
            other.collected = {}
        return taken

    return mistaken


@_mutant("forget-swallowed-ids", "ids are dropped after a barrier that goes no further", Lessor, "_end_round", "swallowed")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> Any:
        for route in self.outbox.routes.values():
            route.collected = {}
        return original(self)

    return mistaken


# --- rounds --------------------------------------------------------------------------------------------------------------


@_mutant("unblock-early", "a lessee goes on as soon as it has replied", Lessee, "_reply", "chain", "two-barriers")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee) -> None:
        original(self)
        self.enter(Event.UNSYNCED)

    return mistaken


@_mutant("merge-twice", "a partial state is combined twice", Lessor, "_consolidate", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> Any:
        current = self.round
        assert current is not None
        consolidates = len(current.replies) == len(current.participants)
        result = original(self)
        if consolidates:
            for reply in current.replies.values():
                self.states.merge(reply.partial)
        return result

    return mistaken


@_mutant("lose-a-partial", "the last reply's partial state is not combined", Lessor, "_consolidate", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> Any:
        current = self.round
        assert current is not None
        replies = current.replies
        if replies and len(replies) == len(current.participants):
            last = max(replies)
            nothing = self.spec.states().take()
            reply = replies[last]
            replies[last] = SyncReply(reply.to, reply.worker, reply.origin, reply.round, nothing, reply.sent, reply.returned)
        return original(self)

    return mistaken


@_mutant("copy-not-move", "SYNC_REPLY copies the partial state and keeps it", Lessee, "_reply", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee) -> None:
        original(self)
        reply = self.host.outgoing[-1]
        assert isinstance(reply, SyncReply)
        self.states.merge(reply.partial)

    return mistaken


@_mutant("reply-while-running", "a lessee replies while a message runs", Lessee, "_is_drained", "overlap-direct")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee) -> bool:
        running, self.running = self.running, None
        try:
            return bool(original(self))
        finally:
            self.running = running

    return mistaken


@_mutant("critical-while-running", "a lessor blocks while a message runs", Lessor, "_is_drained", "no-lessee", "overlap")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> bool:
        running, self.running = self.running, None
        try:
            return bool(original(self))
        finally:
            self.running = running

    return mistaken


@_mutant("wipe-other-programs", "the end of a round wipes what came during it", Lessor, "_end_round", "no-lessee", "overlap")
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


@_mutant("lost-wake-up", "a program starts no round when there are no lessees", Lessor, "on_program", "no-lessee")
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


@_mutant("two-programs-a-round", "a round takes all programs of an upstream", lessor_module, "ready_barriers", "no-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(upstreams: Any) -> list[Barrier]:
        barriers = original(upstreams)
        for upstream in upstreams.values():
            for program in list(upstream.programs)[1:]:
                if program.message.granularity is Granularity.CHANNEL:
                    barriers.append(Barrier((program,)))
        return list(barriers)

    return mistaken


@_mutant(
    "skip-silent-lessees", "only lessees that got a forward take part", Lessor, "_participants", "two-barriers", "scale-in"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, barriers: tuple(w for w in original(self, barriers) if w in self.leases.forwarded)


@_mutant("drop-early-request", "a SYNC_REQUEST that overtakes UNSYNC is dropped", Lessee, "on_sync_request", "two-barriers")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee, request: SyncRequest) -> None:
        original(self, request)
        self.held_request = None

    return mistaken


@_mutant("any-unsync", "an UNSYNC of another round is taken", Lessee, "on_unsync", "twice-in-a-row", "twice")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee, unsync: Any) -> None:
        round_, self.round = self.round, unsync.round
        try:
            original(self, unsync)
        finally:
            self.round = max(self.round, round_)

    return mistaken


@_mutant("program-taken-twice", "a program that comes twice is taken twice", Lessor, "on_program", "twice")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, program: Any) -> None:
        self.upstreams[program.sender].last_program = program.number - 1
        original(self, program)

    return mistaken


@_mutant("drop-what-was-held", "messages held during a round are not released", Lessor, "_end_round", "no-lessee", "fork")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> Any:
        self.held = []
        return original(self)

    return mistaken


@_mutant(
    "release-unchecked", "what was held runs without looking at the next cut", Lessor, "_place", "no-lessee", "two-barriers"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, message: Any, upstream: Upstream) -> None:
        if self.state is MailboxState.RUNNABLE:
            self.admit(message, Kind.FREE)
        else:
            original(self, message, upstream)

    return mistaken


# --- forwards and what comes back ----------------------------------------------------------------------------------------


@_mutant("forward-in-round", "the lessor forwards while it drains", Lessor, "may_forward", "chain", "two-barriers")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, message: Any, worker: int) -> bool:
        state = self.state
        if state is MailboxState.DRAINING:
            self.state = MailboxState.RUNNABLE
        try:
            return bool(original(self, message, worker))
        finally:
            self.state = state

    return mistaken


@_mutant(
    "forward-pending", "a pending message is offered, and forwarded", Instance, "admit", "incomplete-sync-one", "sync-one"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Any, message: Any, kind: Kind) -> None:
        pending = kind is Kind.PENDING and self.state is MailboxState.RUNNABLE
        original(self, message, Kind.FREE if pending else kind)

    return mistaken


@_mutant(
    "returns-overtaken", "the lessor does not wait for what is on its way back", Lessor, "_returns_are_done", "handed-back"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> bool:
        return all(channel.done >= channel.arrived for channel in self.leases.returns.values())

    return mistaken


@_mutant("intent-overtaken", "a lessee's intents are put off to a round of their own", Lessor, "on_intent", "born-on-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, intent: Any) -> None:
        runnable_before = self.state is MailboxState.RUNNABLE
        channel = self.leases.return_channel(intent.origin)
        if runnable_before:
            original(self, intent)
        elif channel.admit(intent.seq):
            channel.done += 1
            others, self.intents = self.intents, deque()
            self.settle()  # as if the reply had not named it
            self.intents = deque([*others, *self.intents, intent.outputs])
            self.settle()

    return mistaken


@_mutant("intents-last", "what the actor asked for runs after the barriers from upstream", Lessor, "_plan", "born-on-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, current: Round) -> None:
        for barrier in current.barriers:
            current.agenda.extend(barrier.runs(self.address, self.worker))
        while self.intents:
            current.agenda.extend(self.intents.popleft())

    return mistaken


@_mutant("critical-from-lessee", "a lessee sends a critical message itself", Lessee, "intend", "born-on-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee, outputs: Any) -> None:
        for output in outputs:
            self.outbox.emit(output)

    return mistaken


@_mutant("lose-timers", "timers set at a lessee do not move with its partial state", Instance, "take_timers", "timers")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Instance) -> tuple[Any, ...]:
        original(self)
        return ()

    return mistaken


# --- leases and channels -------------------------------------------------------------------------------------------------


@_mutant("grant-in-round", "a registration is granted during a round", Lessor, "_defers", "registration-race", "overlap")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, upstream: bool(self.upstreams[upstream].programs) or self.leases.revoking is not None


@_mutant(
    "grant-behind-cut", "a registration is granted although the cut is installed", Lessor, "_defers", "incomplete-sync-one"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, upstream: self.state is not MailboxState.RUNNABLE or self.leases.revoking is not None


@_mutant("grant-in-scale-in", "a registration is granted while grants are taken back", Lessor, "_defers", "scale-in-race")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, upstream: self.state is not MailboxState.RUNNABLE or bool(self.upstreams[upstream].programs)


@_mutant(
    "stale-grant", "the answer to an old registration is taken", Outbox, "on_grant", "registration-race", "two-barriers"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Outbox, grant: Any) -> bool:
        route = self.route(grant.sender)
        number, asked = route.number, route.asked
        route.number, route.asked = grant.number, asked or frozenset(grant.workers)
        try:
            return bool(original(self, grant))
        finally:
            route.number = max(number, route.number)

    return mistaken


@_mutant("sender-keeps-channels", "a lessor keeps its channels after a program", Outbox, "close", "overlap", "scale-in")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, route: self.send_waiting_home(route)


@_mutant(
    "lessee-keeps-channels", "a lessee keeps its channels after UNSYNC", Outbox, "close_all", "two-barriers", "scale-in"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: None


@_mutant("grants-end-too-early", "grants end when the cut is installed", Lessor, "on_program", "incomplete-sync-one")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, program: Any) -> None:
        self.leases.end_grants_of(program.sender)
        original(self, program)

    return mistaken


@_mutant(
    "waiting-left-behind", "outputs that wait for a grant are not sent home", Outbox, "send_waiting_home", "overlap", "chain"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, route: None


@_mutant(
    "revoke-without-ids", "REVOKE is acknowledged without the last ids", Outbox, "on_revoke", "scale-in-race", "scale-in"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Outbox, revoke: Any) -> None:
        original(self, revoke)
        ack = self.party.host.outgoing.pop()
        assert isinstance(ack, RevokeAck)
        self.party.host.outgoing.append(RevokeAck(ack.to, ack.worker, ack.sender, ack.origin, ack.number, ()))

    return mistaken


@_mutant("lease-an-ordered", "an ordered function is leased", Lessor, "may_lease", "ordered")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, worker: worker != self.worker


@_mutant("old-view", "a lessee runs messages before it knows the view", Lessee, "accept", "read-replica")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee, message: Any) -> None:
        version, self.view_version = self.view_version, 1 << 30
        try:
            original(self, message)
        finally:
            self.view_version = version

    return mistaken


# --- acknowledgments and the two granularities ---------------------------------------------------------------------------


@_mutant("no-wait-for-ack", "the sender goes on before its cut is installed", Outbox, "_send_program", "no-lessee", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Outbox, route: Route) -> None:
        original(self, route)
        route.awaiting = 0
        self.busy.discard(route.to)

    return mistaken


@_mutant(
    "unsync-before-ack", "UNSYNC leaves before the own programs are acknowledged", Lessor, "_do_agenda", "fork", "chain"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> bool:
        busy, self.outbox.busy = self.outbox.busy, set()
        try:
            return bool(original(self))
        finally:
            self.outbox.busy |= busy

    return mistaken


@_mutant("drop-receipt-ack", "a lessee does not acknowledge SYNC_REQUEST", Lessee, "on_sync_request", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return _without_sends(SyncRequestAck, original)


@_mutant("drop-critical-ack", "executed critical messages are not acknowledged", Lessor, "_end_round", "fork", "chain")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return _without_sends(CriticalAck, original)


@_mutant("one-is-enough", "a SYNC_ONE runs when its first program comes", lessor_module, "ready_barriers", "two-sync-ones")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda upstreams: [Barrier((u.programs[0],)) for _, u in sorted(upstreams.items()) if u.programs]


@_mutant(
    "incomplete-blocks-others",
    "an incomplete SYNC_ONE keeps its members from running what is ahead of it",
    lessor_module,
    "ready_barriers",
    "incomplete-sync-one",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(upstreams: Any) -> list[Barrier]:
        heads = [upstream.programs[0].message for upstream in upstreams.values() if upstream.programs]
        blocked = {member for head in heads if head.granularity is Granularity.ONE for member in head.blocks}
        ready = original(upstreams)
        return [b for b in ready if len(b.programs) > 1 or b.programs[0].message.sender not in blocked]

    return mistaken


@_mutant(
    "end-when-installed", "an upstream counts as ended when its last cut is installed", Lessor, "on_program", "upstream-ends"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, program: Any) -> None:
        original(self, program)
        if program.final:
            self.upstreams[program.sender].ended = True
            self.settle()

    return mistaken


@_mutant("wait-for-the-ended", "a SYNC_ONE waits for an upstream that has ended", Upstream, "finish_head", "upstream-ends")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Upstream) -> Any:
        message = original(self)
        self.ended = False
        return message

    return mistaken
