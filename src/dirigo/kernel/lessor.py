"""The lessor: the home instance of an actor, which decides when a barrier's round starts, and runs it.

A round is: freeze the lessees, let everyone finish what precedes the barriers, collect the partial states, run the
critical messages alone, release everyone. All conditions are re-evaluated in ``settle`` after every fact that could change
one of them, so no wake-up can be lost and no order of arrival is relied upon.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import force_setattr

from dirigo.kernel.barrier import Barrier, Upstream, ready_barriers, run_of_itself
from dirigo.kernel.instance import Instance
from dirigo.kernel.interface.address import Address, WorkerId
from dirigo.kernel.interface.errand import ErrandKind
from dirigo.kernel.interface.errors import PolicyError
from dirigo.kernel.interface.function import FunctionSpec
from dirigo.kernel.interface.kept import Kept
from dirigo.kernel.interface.message import (
    CriticalAck,
    CriticalOutput,
    CriticalRun,
    Data,
    Grant,
    Granularity,
    Intent,
    Lane,
    Output,
    ProgramAck,
    Registration,
    Revoke,
    RevokeAck,
    RunnableMessage,
    SyncProgram,
    SyncReply,
    SyncRequest,
    SyncRequestAck,
    Unsync,
    View,
)
from dirigo.kernel.lease import Leases
from dirigo.kernel.mailbox import Event, MailboxState, MessageKind, Role
from dirigo.kernel.participant import Participant
from dirigo.kernel.round import Round

if TYPE_CHECKING:
    from dirigo.kernel.worker import Worker

_INPUT, _RETURN = Lane.INPUT, Lane.RETURN
_RUNNABLE, _DRAINING = MailboxState.RUNNABLE, MailboxState.DRAINING
_BLOCKED, _CRITICAL = MailboxState.BLOCKED, MailboxState.CRITICAL


class Lessor(Instance):
    """The home instance of an actor."""

    __slots__ = (
        "_leases",
        "alone",
        "handed_over",
        "last_round",
        "last_snapshot",
        "ordered",
        "parked",
        "round",
        "upstreams",
        "view",
        "view_version",
        "withheld",
    )

    role: ClassVar[Role] = Role.LESSOR
    HANDLERS: ClassVar[dict[type, str]] = {
        **Participant.HANDLERS,
        SyncProgram: "on_program",
        SyncRequestAck: "on_sync_request_ack",
        SyncReply: "on_sync_reply",
        Intent: "on_intent",
        Registration: "on_registration",
        RevokeAck: "on_revoke_ack",
    }

    def __init__(self, host: Worker, spec: FunctionSpec) -> None:
        super().__init__(host, spec)
        self.upstreams: dict[Address, Upstream] = {address: Upstream(address) for address in spec.upstreams}
        self.ordered = spec.ordered
        self._leases: Leases | None = None  # most actors never have any, and it is larger than all the rest
        self.round: Round | None = None
        self.last_round = 0
        self.last_snapshot = 0  # the last one that ran here, or gave way
        self.withheld: deque[Output | CriticalOutput] = deque()  # own outputs that wait for a barrier on itself
        self.handed_over: list[Intent] = []  # those of lessees, in any order
        self.alone: deque[CriticalOutput] = deque()  # what is to run alone: asked for by the function, a timer, a strategy
        self.view: Any | None = None  # the replicated states as of the last round
        self.view_version = 0  # the round that made the view; 0 where nothing is replicated
        self.parked: dict[tuple[Address, WorkerId], dict[int, Data]] = {}  # ordered: what came before a predecessor

    @property
    def leases(self) -> Leases:
        leases = self._leases
        if leases is None:
            leases = self._leases = Leases()
        return leases

    def has_lessees_among(self, workers: Collection[WorkerId]) -> bool:
        leased = self._leases is not None and not self._leases.leased.isdisjoint(workers)
        return leased or (self.round is not None and not set(self.round.lessees).isdisjoint(workers))

    # --- messages in ---------------------------------------------------------------------------------------------------

    def accept(self, message: Data) -> None:
        if message.lane is not _INPUT:
            self._accept_returned(message)
            return
        upstream = self.upstreams.get(message.sender)
        if upstream is None:
            raise self.error("send-along-edges", f"{message.sender} sent to it but is not among its upstream actors")
        channel = upstream.channels.get(message.origin) or upstream.channel(message.origin)
        if not channel.admit(message.seq):
            return
        if self.ordered and message.seq != channel.done + 1:
            self.parked.setdefault((message.sender, message.origin), {})[message.seq] = message
        elif upstream.ended:
            raise self.error("nothing-after-the-end", f"{message.sender} has ended but sent {message.payload!r}")
        elif self.state is _RUNNABLE and not upstream.programs:
            self.offer(message)
        else:
            self._place(message, upstream)

    def _place(self, message: Data, upstream: Upstream) -> None:
        pending = upstream.is_pending(message.origin, message.seq)
        self.admit(message, MessageKind.PENDING if pending else MessageKind.FREE)

    def _accept_returned(self, message: Data) -> None:
        if message.lane is not Lane.RETURN:
            raise self.error("one-hop", f"{message} was forwarded to the lessor")
        if self.leases.return_channel(message.origin).admit(message.seq):
            self.admit(message, MessageKind.RETURNED)
            self.settle()

    def kind_of(self, message: RunnableMessage) -> MessageKind:
        if message.critical:
            return MessageKind.CRITICAL
        return MessageKind.RETURNED if message.lane is Lane.RETURN else MessageKind.FREE  # type: ignore[union-attr]

    def count_as_done(self, message: RunnableMessage) -> None:
        if message.critical:
            assert self.round is not None
            self.round.task = None
            return
        data: Data = message  # type: ignore[assignment]  # isinstance costs 3% of the hot path
        if data.lane is _RETURN:
            self.leases.returns[data.origin].done += 1
        else:
            self.upstreams[data.sender].channels[data.origin].done += 1
            if self.ordered:
                self._unpark(data)

    def _unpark(self, message: Data) -> None:
        key = (message.sender, message.origin)
        following = self.parked.get(key, {}).pop(message.seq + 1, None)
        if following is not None:
            if not self.parked[key]:
                del self.parked[key]
            self._place(following, self.upstreams[message.sender])

    def is_awaited(self, message: RunnableMessage) -> bool:
        if self.round_began is None:
            return False
        if message.critical or message.lane is not _INPUT:  # type: ignore[union-attr]
            return True
        return bool(self.upstreams[message.sender].programs)  # type: ignore[union-attr]

    # --- forwards ------------------------------------------------------------------------------------------------------

    def may_forward(self, message: RunnableMessage, worker: WorkerId) -> bool:
        return (
            self.state is _RUNNABLE
            and not message.critical
            and message.lane is Lane.INPUT  # type: ignore[union-attr]
            and self.may_lease(worker)
        )

    def may_lease(self, worker: WorkerId) -> bool:
        if worker == self.worker or self.ordered:
            return False
        leased = self._leases.leased if self._leases is not None else ()
        return worker in leased or len(leased) < self.spec.lessees_max

    def forward(self, message: Data, worker: WorkerId) -> None:
        """Forward: from now on the message counts as handed over, and the forward channel answers for it."""
        if not self.may_forward(message, worker):
            raise PolicyError(
                f"the strategy at w{self.worker} forwards a message of {self.address} to w{worker}, but "
                f"{self._why_not(message, worker)}; ask may_forward first"
            )
        self._lease(worker)
        self.upstreams[message.sender].channels[message.origin].done += 1
        self.host.outgoing.append(
            Data(
                message.to,
                worker,
                message.sender,
                self.worker,
                Lane.FORWARD,
                self.leases.next_forward(worker),
                self.view_version,
                message.payload,
                message.created,
                message.deadline,
                self.host.now,
                self.trail_of(message),
            )
        )

    def _why_not(self, message: Data, worker: WorkerId) -> str:
        if self.state is not _RUNNABLE:
            return f"the actor is {self.state.value}"
        if self.ordered:
            return "the function is ordered and runs at its home only"
        if message.lane is not _INPUT:
            return "a lessee handed it back, so it has to run at its home"
        if worker == self.worker:
            return "that is where it is"
        return f"the actor already has its {self.spec.lessees_max} lessees"

    def _lease(self, worker: WorkerId) -> None:
        self.leases.leased.add(worker)
        if self.view_version and worker not in self.leases.up_to_date:
            self.leases.up_to_date.add(worker)
            self.host.outgoing.append(View(self.address, worker, self.worker, self.view_version, self.view))

    # --- barriers in ---------------------------------------------------------------------------------------------------

    def on_program(self, program: SyncProgram) -> None:
        upstream = self.upstreams.get(program.sender)
        if upstream is None:
            raise self.error("send-along-edges", f"{program.sender} sent a barrier but is not among its upstream actors")
        if program.number <= upstream.last_program:
            self.tell(f"dropped a stale program {program.number} of {program.sender}")
            return
        if (broken := upstream.install(program, self.host.now)) is not None:
            raise self.error(*broken)
        self.tell(f"program {program.number} of {program.sender}: cut {program.dependencies}")
        self.host.barriers.setdefault(self.address, self.host.now)
        if self._leases is not None:
            self._leases.forget_deferred(program.sender)  # sent before this program, and void since it left
        self.host.outgoing.append(ProgramAck(program.sender, program.origin, self.address, program.number))
        self.settle()

    def release(self, outputs: list[Output | CriticalOutput]) -> None:
        if self.state is not _CRITICAL:
            Instance.release(self, outputs)
            return
        # The actor is alone already: critical outputs leave, and what it asks to run alone runs next, before the outputs
        # that follow. Another round would let what is pending run before them.
        assert self.round is not None
        trail, now = self.context.trail, self.host.now
        for output in outputs:
            force_setattr(output, "trail", trail)
            force_setattr(output, "sent", now)
        self.round.agenda.extendleft(reversed(outputs))

    def intend(self, outputs: tuple[Output | CriticalOutput, ...]) -> None:
        for output in outputs:
            if output.critical and output.to == self.address:
                self.alone.append(output)  # type: ignore[arg-type]
            else:
                self.withheld.append(output)
        if self.running is None:
            self.settle()

    def inject(self, output: CriticalOutput) -> None:
        """Send a critical message of a strategy's: after all that was emitted here so far, before all that will be.

        Nothing follows the end, of which a strategy need not know.
        """
        if self.outbox.route(output.to).ended:
            return
        if self.state is not _CRITICAL:
            self.withholding = True
            self.intend((output,))
            return
        assert self.round is not None
        if not self.round.put_behind_outputs(output):
            self.outbox.emit(output)

    def on_intent(self, intent: Intent) -> None:
        channel = self.leases.return_channel(intent.origin)
        if channel.admit(intent.seq):
            channel.done += 1
            self.handed_over.append(intent)
            self.settle()

    # --- the round -----------------------------------------------------------------------------------------------------

    def executed(self, message: RunnableMessage, elapsed_s: float = 0.0) -> None:
        Instance.executed(self, message, elapsed_s)  # super() costs 4% of the hot path
        if (self.withheld or self.alone) and self.state is _RUNNABLE:
            self.settle()

    def settle(self) -> None:
        while self._advance():
            pass

    def _advance(self) -> bool:
        """Make the one transition that is possible, if any."""
        if self.state is _RUNNABLE:
            return self._start_round()
        if self.round is not None and self.round.is_apart:
            return False
        if self.state is _DRAINING:
            if not self._is_drained():
                return False
            self.enter(Event.DRAINED)
            return True
        if self.state is _BLOCKED:
            if not self._is_drained():
                self.enter(Event.HANDED_BACK)
                return False
            return self._consolidate()
        return self._do_agenda() and self._take_view() and self._end_round()

    def _start_round(self) -> bool:
        barriers = ready_barriers(self.upstreams, self.last_snapshot)
        scales_in = self._leases is not None and self._leases.can_scale_in()
        if not (barriers or self.withheld or self.alone or self.handed_over or scales_in):
            return False
        for barrier in barriers:
            if len({program.message.final for program in barrier.programs}) > 1:
                raise self.error("one-end", f"SYNC_ONE {barrier.programs[0].message.barrier} ends only some upstreams")
            self.last_snapshot = max(self.last_snapshot, barrier.snapshot)
        self.last_round += 1
        lessees = self._lessees_of(barriers)
        self.round = Round(self.last_round, barriers, lessees, scales_in)
        self.outbox.send_all_waiting_home()
        self.host.barriers.setdefault(self.address, self.host.now)
        self.enter(Event.ROUND_STARTS)
        self.begin_round()
        for worker in lessees:
            self.host.outgoing.append(
                SyncRequest(
                    self.address,
                    worker,
                    self.worker,
                    self.last_round,
                    self.leases.forwarded.get(worker, 0),
                    self.round.cuts_of(worker, self.leases.revoked.get(worker, {})),
                )
            )
        return True

    def _lessees_of(self, barriers: list[Barrier]) -> tuple[WorkerId, ...]:
        """Everybody who may have something of this actor's: the leased, and whom the cuts name."""
        workers = set(self._leases.leased) if self._leases is not None else set()
        workers.update(*(program.at_lessees for barrier in barriers for program in barrier.programs))
        return tuple(sorted(workers))

    def _is_drained(self) -> bool:
        """All that must precede the critical messages has finished at this instance, as far as it is known."""
        if self.running is not None:
            return False
        assert self.round is not None
        undrained = self.round.undrained
        while undrained and self.upstreams[undrained[-1].message.sender].head_is_drained():
            undrained.pop()  # for good: nothing that is done is undone
        return not undrained and self._returns_are_done()

    def _returns_are_done(self) -> bool:
        """What lessees handed back has run; those that replied have told how much that is."""
        if self._leases is None:
            return True
        assert self.round is not None
        for lessee, channel in self._leases.returns.items():
            reply = self.round.replies.get(lessee)
            if channel.done < (reply.returned if reply is not None else channel.arrived) or channel.ahead:
                return False
        return True

    def on_sync_request_ack(self, ack: SyncRequestAck) -> None:
        if self.round is not None and ack.round == self.round.number:
            self.round.unacknowledged.discard(ack.origin)

    def on_sync_reply(self, reply: SyncReply) -> None:
        if self.round is None or reply.round != self.round.number or reply.origin in self.round.replies:
            self.tell(f"dropped a stale reply of w{reply.origin} to round {reply.round}")
            return
        if reply.origin not in self.round.lessees:
            raise self.error("lessees-are-frozen", f"w{reply.origin} replied but takes no part in round {reply.round}")
        self.tell(f"w{reply.origin} replied to round {reply.round}")
        if reply.returned:
            self.leases.return_channel(reply.origin)
        self.round.replies[reply.origin] = reply
        self.settle()

    def _consolidate(self) -> bool:
        """Put the partial states together, in the order of the workers, once all of them are here."""
        current = self.round
        assert current is not None
        if len(current.replies) < len(current.lessees):
            return False
        if not current.lessees:
            self._consolidated(current)
            return True
        merge = partial(current.merge_into, self.states)
        return current.handle_states(self, ErrandKind.MERGE, merge, lambda _: self._consolidated(current))

    def _consolidated(self, current: Round) -> None:
        for worker in current.lessees:
            self.add_timers(current.replies[worker].timers)
            self.outbox.collect(worker, current.replies[worker].sent)
        self._plan(current)
        self.enter(Event.CONSOLIDATED)

    def _plan(self, current: Round) -> None:
        """The agenda of CRITICAL: outputs that waited for it, each instance's in their order; then what runs alone; then the
        barriers from upstream. What runs now emits later than all that waited."""
        agenda = current.agenda
        agenda.extend(self.withheld)
        for intent in sorted(self.handed_over, key=lambda each: (each.origin, each.seq)):
            for output in intent.outputs:
                if output.critical and output.to == self.address:
                    self.alone.append(output)  # type: ignore[arg-type]
                else:
                    agenda.append(output)
        agenda.extend(self.alone)
        self.withheld.clear()
        self.handed_over.clear()
        self.alone.clear()
        self.withholding = False
        for barrier in current.barriers:
            agenda.extend(barrier.runs(self.address, self.worker, self.host.now))

    def _do_agenda(self) -> bool:
        """Work off the agenda; True once all critical messages ran and every program they caused is acknowledged."""
        current = self.round
        assert current is not None
        while current.agenda and current.task is None:
            item = current.agenda.popleft()
            if isinstance(item, CriticalOutput) and item.to == self.address:
                item = run_of_itself(item, self.worker, self.host.now)
            if isinstance(item, CriticalRun):
                current.task = item
                if self.host.strategy.enqueue(self.host, item) is not None:
                    raise PolicyError(f"the strategy at w{self.worker} forwards a critical message of {self.address}")
            else:
                self.outbox.emit(item)
        return current.task is None and self.running is None and not self.outbox.busy

    def _take_view(self) -> bool:
        """See what lessees may read from now on; False while the host does so elsewhere."""
        current = self.round
        assert current is not None
        return current.view is not None or current.handle_states(self, ErrandKind.VIEW, self.states.view, current.note_view)

    def _end_round(self) -> bool:
        current = self.round
        assert current is not None
        for program in current.programs():
            done = self.upstreams[program.message.sender].finish_head()
            if self._leases is not None:
                self._leases.end_grants_of(done.sender)
            self.host.outgoing.append(CriticalAck(done.sender, done.origin, self.address, done.number))
        if current.scales_in:
            self.leases.end_revocation()
        if self._leases is not None:
            self._leases.end_round()
        self._unsync(current)
        self.host.count_round(self.address, bool(current.lessees))
        self.host.barriers.pop(self.address, None)
        arrived = [upstream.programs[0].arrived for upstream in self.upstreams.values() if upstream.programs]
        if arrived:
            self.host.barriers[self.address] = min(arrived)  # the next one, or a SYNC_ONE that is not complete yet
        self.round = None
        self.round_began = None
        self.enter(Event.ROUND_ENDS)
        self._release()
        self._offer_again()
        self._answer_deferred()
        return True

    def _release(self) -> None:
        """What the barrier held may run. What the next one of its upstream actor holds too stays as it is: an actor that is
        far behind has thousands of those, and goes through them with every barrier."""
        held, self.held = self.held, []
        for message in held:
            if self.upstreams[message.sender].is_pending(message.origin, message.seq):
                self.held.append(message)
            else:
                self.note_held(message)
                self.admit(message, MessageKind.FREE)

    def _offer_again(self) -> None:
        """During a round nothing is forwarded: let the strategy decide anew about what it had to keep meanwhile."""
        if self.ordered:
            return
        for message in self.host.extras.give_back(self.host, self.address):
            if message.critical or message.lane is not _INPUT:  # type: ignore[union-attr]
                raise PolicyError(
                    f"the strategy at w{self.worker} gives back a message of {self.address} that has to run here"
                )
            self.offer(message)  # type: ignore[arg-type]

    def _unsync(self, current: Round) -> None:
        (self.view,) = current.view  # type: ignore[misc]  # it is known by now
        if self.view is not None:
            self.view_version = current.number
            if self._leases is not None:
                self._leases.up_to_date = set(current.lessees)
        closed = tuple(sorted(self.outbox.informed))
        self.outbox.informed.clear()
        for worker in current.lessees:
            ended = worker not in self.leases.leased
            self.host.outgoing.append(
                Unsync(self.address, worker, self.worker, current.number, closed, ended, self.view_version, self.view)
            )

    # --- snapshots -----------------------------------------------------------------------------------------------------

    def keep(self) -> Kept:
        """What has to be known here to go on from the snapshot that runs now; ask before its execution is finished."""
        run = self.running
        if run is None or not run.critical or run.granularity is not Granularity.SNAPSHOT or run.is_void:  # type: ignore[union-attr]
            raise self.error("kept-at-the-cut", "what is to be kept of it was asked for while no snapshot runs")
        ended = tuple(sorted(upstream.address for upstream in self.upstreams.values() if upstream.ended))
        # What fires from now on waits until the snapshot has run. What fired before has run, or runs alone before it.
        fired = ((output.created, output.payload) for output in self.alone)
        return Kept(ended, (*fired, *self.timers, *self.context.timers))

    def restore(self, kept: Kept) -> None:
        """Go on from what was kept; the states are those of the cut already. Lessees read them from the beginning."""
        if self.last_round or any(upstream.channels or upstream.last_program for upstream in self.upstreams.values()):
            raise self.error("restored-first", "it has taken part in something before it was restored")
        for address in kept.ended:
            self.upstreams[address].ended = True
        self.add_timers(kept.timers)
        self.view = self.states.view()
        self.last_round = 1
        self.view_version = int(self.view is not None)

    # --- registrations and scale-in ------------------------------------------------------------------------------------

    def on_registration(self, registration: Registration) -> None:
        if registration.sender not in self.upstreams:
            raise self.error("send-along-edges", f"{registration.sender} registers but is not among its upstream actors")
        if not self.leases.is_new(registration):
            return
        if self._defers(registration.sender):
            self.leases.deferred[registration.sender, registration.origin] = registration
        else:
            self._grant(registration)

    def _defers(self, upstream: Address) -> bool:
        """Nothing is granted during a round or a scale-in, nor to an actor whose barrier has not been executed yet."""
        return self.state is not _RUNNABLE or bool(self.upstreams[upstream].programs) or self.leases.revoking is not None

    def _grant(self, registration: Registration) -> None:
        if self.upstreams[registration.sender].ended:
            return  # it was overtaken by the last barrier of its sender, which can send no more
        granted = []
        for worker in registration.wanted:
            if self.may_lease(worker):
                self._lease(worker)
                granted.append(worker)
        self.leases.grant(registration, granted)
        asker, origin, number = registration.sender, registration.origin, registration.number
        self.host.outgoing.append(Grant(asker, origin, self.address, number, tuple(granted), self.view_version))

    def _answer_deferred(self) -> None:
        if self._leases is None:
            return
        for key, registration in list(self._leases.deferred.items()):
            if not self._defers(registration.sender):
                del self.leases.deferred[key]
                self._grant(registration)

    def scale_in(self) -> None:
        """End all leases: take the grants back first, then hold a round that works off what the lessees have."""
        if self.leases.revoking is not None or not self.leases.leased:
            return
        self.tell("scales in")
        self.host.barriers.setdefault(self.address, self.host.now)
        for address, worker in sorted(self.leases.start_revocation()):
            self.host.outgoing.append(Revoke(address, worker, self.address, self.worker, self.leases.revocation))
        self.settle()

    def on_revoke_ack(self, ack: RevokeAck) -> None:
        if self.leases.acknowledge_revocation(ack):
            self.settle()
