"""What every addressable participant at a worker has: a name, an outbox, and the handlers for answers to what it sent."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar

from dirigo.kernel.interface.address import Address, WorkerId, instance_name
from dirigo.kernel.interface.errors import ProtocolError
from dirigo.kernel.interface.message import CriticalAck, Data, Grant, Message, ProgramAck, Revoke
from dirigo.kernel.mailbox import Transition
from dirigo.kernel.outbox import Outbox

if TYPE_CHECKING:
    from dirigo.kernel.worker import Worker

_STORY_LINES_MAX = 48


class Participant:
    """A source or an instance of an actor, at one worker."""

    __slots__ = ("address", "critical_acked", "host", "outbox", "spec_downstreams", "story", "worker")

    HANDLERS: ClassVar[dict[type, str]] = {
        ProgramAck: "on_program_ack",
        CriticalAck: "on_critical_ack",
        Grant: "on_grant",
        Revoke: "on_revoke",
    }

    def __init__(self, host: Worker, address: Address, downstreams: tuple[Address, ...]) -> None:
        self.host = host
        self.address = address
        self.worker: WorkerId = host.id
        self.spec_downstreams = downstreams
        self.outbox = Outbox(self)
        self.critical_acked: dict[Address, int] = {}  # the last program whose critical messages a target has executed
        self.story: deque[str | Transition] | None = None

    @property
    def name(self) -> str:
        return instance_name(self.address, self.worker)

    def may_register(self) -> bool:
        """Whether outputs may wait for a grant now."""
        raise NotImplementedError

    def settle(self) -> None:
        """Re-evaluate every condition until nothing changes any more."""

    def accept(self, message: Data) -> None:
        raise self.error("addressed", f"it received a data message from {message.sender}, but it takes none")

    def handle(self, message: Message) -> None:
        """Control messages; the host sends data messages straight to ``accept``."""
        handler = self.HANDLERS.get(type(message))
        if handler is None:
            raise self.error("addressed", f"it cannot handle {message}")
        getattr(self, handler)(message)

    def on_program_ack(self, ack: ProgramAck) -> None:
        if self.outbox.on_program_ack(ack):
            self.settle()
        else:
            self.tell(f"dropped a stale acknowledgment of program {ack.number} by {ack.sender}")

    def on_critical_ack(self, ack: CriticalAck) -> None:
        self.critical_acked[ack.sender] = max(ack.number, self.critical_acked.get(ack.sender, 0))

    def on_grant(self, grant: Grant) -> None:
        if not self.outbox.on_grant(grant):
            self.tell(f"dropped a stale grant {grant.number} by {grant.sender}")

    def on_revoke(self, revoke: Revoke) -> None:
        self.tell(f"{revoke.sender} revoked its grants")
        self.outbox.on_revoke(revoke)

    def tell(self, line: str | Transition) -> None:
        """Add a line to the story that a protocol error carries. Control path only."""
        if self.story is None:
            self.story = deque(maxlen=_STORY_LINES_MAX)
        self.story.append(line)

    def error(self, rule: str, what: str) -> ProtocolError:
        return ProtocolError(rule, self.name, what, map(_told, self.story or ()))


def _told(item: str | Transition) -> str:
    if isinstance(item, str):
        return item
    return f"{item.source.value} -> {item.target.value}: {item.event.value}"
