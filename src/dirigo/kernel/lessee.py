"""A lessee: a shadow instance of an actor at another worker, for as long as it is leased.

It runs what the lessor forwards and what upstream instances send it directly, on a partial state of its own. When the
lessor asks, it finishes what precedes the barrier, hands its partial state over, and waits. It never forwards; it can only
hand a message back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from dirigo.kernel.channel import Inbound
from dirigo.kernel.instance import Instance
from dirigo.kernel.interface.address import Address, WorkerId
from dirigo.kernel.interface.errand import ErrandKind
from dirigo.kernel.interface.errors import PolicyError
from dirigo.kernel.interface.function import FunctionSpec
from dirigo.kernel.interface.message import (
    CriticalOutput,
    Data,
    Intent,
    Lane,
    Output,
    RunnableMessage,
    SyncReply,
    SyncRequest,
    SyncRequestAck,
    Unsync,
    View,
)
from dirigo.kernel.mailbox import Event, MailboxState, MessageKind, Role
from dirigo.kernel.participant import Participant

if TYPE_CHECKING:
    from dirigo.kernel.worker import Worker

_RUNNABLE, _DRAINING, _BLOCKED = MailboxState.RUNNABLE, MailboxState.DRAINING, MailboxState.BLOCKED


class Lessee(Instance):
    """An instance of an actor away from its home."""

    __slots__ = ("direct", "early", "forwards", "held_request", "request", "returned", "round", "view_version")

    role: ClassVar[Role] = Role.LESSEE
    HANDLERS: ClassVar[dict[type, str]] = {
        **Participant.HANDLERS,
        SyncRequest: "on_sync_request",
        Unsync: "on_unsync",
        View: "on_view",
    }

    def __init__(self, host: Worker, spec: FunctionSpec) -> None:
        super().__init__(host, spec)
        self.forwards = Inbound()  # the channel from the lessor
        self.direct: dict[tuple[Address, WorkerId], Inbound] = {}  # the channels from upstream instances
        self.returned = 0  # the last id on the channel to the lessor
        self.round = 0  # the last round this lessee entered
        self.request: SyncRequest | None = None  # of the round it is in
        self.held_request: SyncRequest | None = None  # of the next round, when it overtook the UNSYNC of this one
        self.view_version = 0
        self.early: list[Data] = []  # sent by somebody who knows a newer view than this lessee

    # --- messages in ---------------------------------------------------------------------------------------------------

    def accept(self, message: Data) -> None:
        if message.lane is Lane.RETURN:
            raise self.error("one-hop", f"{message} was handed back to a lessee")
        if not self._channel_of(message).admit(message.seq):
            return
        if message.view > self.view_version:
            self.early.append(message)
        elif self.state is _RUNNABLE:
            self.offer(message)
        else:
            self.admit(message, MessageKind.FREE)

    def _channel_of(self, message: Data) -> Inbound:
        if message.lane is Lane.FORWARD:
            return self.forwards
        return self._direct_channel(message.sender, message.origin)

    def _direct_channel(self, sender: Address, origin: WorkerId) -> Inbound:
        channel = self.direct.get((sender, origin))
        if channel is None:
            if sender not in self.spec.upstreams:
                raise self.error("send-along-edges", f"{sender} sent to it but is not among its upstream actors")
            channel = self.direct[sender, origin] = Inbound()
        return channel

    def kind_of(self, message: RunnableMessage) -> MessageKind:
        return MessageKind.CRITICAL if message.critical else MessageKind.FREE

    def count_as_done(self, message: RunnableMessage) -> None:
        assert isinstance(message, Data)
        self._channel_of(message).done += 1

    # --- back to the lessor --------------------------------------------------------------------------------------------

    def may_forward(self, message: RunnableMessage, worker: WorkerId) -> bool:
        return worker == self.spec.home and self.state is not _BLOCKED and not message.critical

    def forward(self, message: Data, worker: WorkerId) -> None:
        """Hand a message back, which is all the forwarding that a lessee may do.

        It is done here; the lessor runs it, and the return channel answers for that.
        """
        if not self.may_forward(message, worker):
            raise PolicyError(
                f"the strategy at w{self.worker} sends a message of the lessee {self.address} to w{worker}, but a lessee "
                f"can only hand back to its lessor at w{self.spec.home}"
            )
        self._channel_of(message).done += 1
        self.returned += 1
        self.host.outgoing.append(
            Data(
                message.to,
                worker,
                message.sender,
                self.worker,
                Lane.RETURN,
                self.returned,
                0,
                message.payload,
                message.created,
                message.deadline,
                self.host.now,
                self.trail_of(message),
            )
        )
        self.settle()

    def intend(self, outputs: tuple[Output | CriticalOutput, ...]) -> None:
        self.returned += 1
        self.host.outgoing.append(Intent(self.address, self.spec.home, self.worker, self.returned, outputs))

    # --- rounds --------------------------------------------------------------------------------------------------------

    def on_sync_request(self, request: SyncRequest) -> None:
        if request.round <= self.round or self.held_request is not None:
            self.tell(f"dropped a stale request of round {request.round}")
            return
        if self.state is _DRAINING:
            raise self.error("one-round-at-a-time", f"round {request.round} was requested in round {self.round}")
        self.host.outgoing.append(SyncRequestAck(self.address, request.origin, self.worker, request.round))
        if self.state is _RUNNABLE:
            self._enter_round(request)
        else:
            self.held_request = request

    def _enter_round(self, request: SyncRequest) -> None:
        self.round = request.round
        self.request = request
        self.outbox.send_all_waiting_home()
        self.enter(Event.SYNC_REQUESTED)
        self.begin_round()
        self.settle()

    def settle(self) -> None:
        if self.state is _DRAINING and self._is_drained():
            self._reply()

    def _is_drained(self) -> bool:
        request = self.request
        assert request is not None
        return (
            self.running is None
            and self.forwards.done >= request.forwards
            and all(self._direct_channel(sender, origin).done >= cut for sender, origin, cut in request.cuts)
        )

    def _reply(self) -> None:
        self.enter(Event.DRAINED)
        sent, timers = self.outbox.take_sent(), self.take_timers()

        def send(partial: Any) -> None:  # nothing else happens here before UNSYNC, which follows the reply
            self.host.outgoing.append(
                SyncReply(self.address, self.spec.home, self.worker, self.round, partial, sent, self.returned, timers)
            )

        self.handle_states(ErrandKind.TAKE, self.states.take, send)

    def on_unsync(self, unsync: Unsync) -> None:
        if self.state is not _BLOCKED or unsync.round != self.round:
            self.tell(f"dropped a stale UNSYNC of round {unsync.round}")
            return
        if unsync.lease_ended:
            self.outbox.close_all()
        else:
            for to in unsync.closed:
                self.outbox.close(self.outbox.route(to))
        self.request = None
        self.round_began = None
        self.withholding = False  # the round has sent all that was handed over
        self.enter(Event.UNSYNCED)
        held, self.held = self.held, []
        for message in held:
            self.note_held(message)
            self.offer(message)
        self._install(unsync.view_version, unsync.view)
        if self.held_request is not None:
            request, self.held_request = self.held_request, None
            self._enter_round(request)

    # --- the shared view -----------------------------------------------------------------------------------------------

    def on_view(self, view: View) -> None:
        self._install(view.view_version, view.view)

    def _install(self, version: int, view: Any) -> None:
        """Adopt a newer view, and release what waited for it."""
        if version <= self.view_version:
            return
        self.view_version = version
        self.states.install_view(view)
        early, self.early = self.early, []
        for message in early:
            if message.view > version:
                self.early.append(message)
            elif self.state is _RUNNABLE:
                self.offer(message)
            else:
                self.admit(message, MessageKind.FREE)
