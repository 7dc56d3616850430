"""Everything that travels between instances: one small record per kind of message.

A message is a header and a payload. The kernel reads headers only; a payload is opaque and is never touched, copied or
decoded here. Forwarding is therefore a header rewrite.

Records are frozen, but for three stamps of times (``sent``, ``ready``, ``trail``), which the instance that has a message
sets in place. They are for accounts of where time went; no rule of the protocol reads them.

Fields that all kinds share: ``to`` and ``worker`` name the receiving instance. ``origin`` is the sending worker where that
matters, and ``sender`` the sending actor where it is another one. Every kind carries a stamp (a sequence id, a number or a
round) by which a copy that arrives late or twice is recognised; nothing in the protocol relies on the order of the wire.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar

import msgspec

from dirigo.kernel.interface.address import Address, WorkerId

NO_DEADLINE = float("inf")

# Where the time of a result went, in seconds: (under way between workers, waiting for a barrier, queued, executing). It
# travels along, from each message to those that its execution produces. What is missing to the whole was lost at the source.
Trail = tuple[float, float, float, float]
NO_TRAIL: Trail = (0.0, 0.0, 0.0, 0.0)


class Lane(IntEnum):
    """Which counted channel a data message travels on."""

    INPUT = 0  # from an instance of an upstream actor
    FORWARD = 1  # from the lessor to one of its lessees
    RETURN = 2  # handed back by a lessee to its lessor


class Granularity(IntEnum):
    """Which upstream actors a barrier cuts."""

    CHANNEL = 0  # SYNC_CHANNEL: exactly the upstream actor that sent it
    ONE = 1  # SYNC_ONE: all upstream actors together
    SNAPSHOT = 2  # the same, for a snapshot: counted on its own, and it gives way where it and a SYNC_ONE exclude each other


class _Record(msgspec.Struct, frozen=True, gc=False, tag=True, array_like=True):
    """Immutable, without cycles, and tagged with its kind on the wire."""


# --- what user code produces -------------------------------------------------------------------------------------------


class Output(_Record, frozen=True):
    """A message that a function wants sent, before it has an id and a recipient instance."""

    critical: ClassVar[bool] = False
    to: Address
    payload: Any
    created: float = 0.0  # when the oldest row in it, or the row that caused it, was meant to be sent
    deadline: float = NO_DEADLINE
    sent: float = 0.0  # when the execution that produced it was over
    trail: Trail = NO_TRAIL


class CriticalOutput(_Record, frozen=True):
    """A critical message that a function wants sent. Addressed to the function itself it means: run alone, on everything."""

    critical: ClassVar[bool] = True
    to: Address
    payload: Any
    granularity: Granularity = Granularity.CHANNEL
    final: bool = False  # the sender has ended: nothing follows
    created: float = 0.0
    deadline: float = NO_DEADLINE
    sent: float = 0.0
    trail: Trail = NO_TRAIL


# --- user messages -----------------------------------------------------------------------------------------------------


class Data(_Record, frozen=True):
    """A regular message, on one counted channel."""

    critical: ClassVar[bool] = False
    to: Address
    worker: WorkerId
    sender: Address
    origin: WorkerId
    lane: Lane
    seq: int  # contiguous from 1 on its channel
    view: int  # the recipient must know at least this version of the actor's shared view
    payload: Any
    created: float = 0.0
    deadline: float = NO_DEADLINE
    sent: float = 0.0
    trail: Trail = NO_TRAIL
    ready: float = 0.0  # since when it waits at its worker; noted there, whatever the sender says


class Critical(_Record, frozen=True):
    """One critical message as it travels inside a SYNC program."""

    payload: Any
    created: float = 0.0
    deadline: float = NO_DEADLINE
    sent: float = 0.0
    trail: Trail = NO_TRAIL


class CriticalRun(_Record, frozen=True):
    """What a lessor executes in CRITICAL: one critical message, or the whole set of one SYNC_ONE or snapshot barrier."""

    critical: ClassVar[bool] = True
    to: Address
    worker: WorkerId
    parts: tuple[tuple[Address, int, Any], ...]  # (upstream actor, its program number, payload); itself for a self-barrier
    granularity: Granularity
    barrier: int
    final: bool
    created: float = 0.0
    deadline: float = NO_DEADLINE
    sent: float = 0.0
    trail: Trail = NO_TRAIL
    ready: float = 0.0
    is_void: bool = False  # a snapshot that gave way here: only some upstream actors have it, and it cuts nothing

    @property
    def payload(self) -> Any:
        """The payload of a barrier with a single critical message, which is the common case."""
        return self.parts[0][2]


RunnableMessage = Data | CriticalRun


# --- the barrier, seen from upstream -----------------------------------------------------------------------------------


class SyncProgram(_Record, frozen=True):
    """SP: critical messages, merged into one message with the cut that separates what precedes them from what follows."""

    to: Address
    worker: WorkerId
    sender: Address
    origin: WorkerId
    number: int  # contiguous from 1 per (sender, to)
    granularity: Granularity
    barrier: int
    blocks: tuple[Address, ...]  # the upstream actors that this barrier holds
    final: bool
    criticals: tuple[Critical, ...]
    dependencies: tuple[tuple[WorkerId, WorkerId, int], ...]  # DEPENDENCY_PAYLOAD: (from, to, last id), sorted


class ProgramAck(_Record, frozen=True):
    """SP_ACK: the cut is installed, so the sender may go on."""

    to: Address
    worker: WorkerId
    sender: Address
    number: int


class CriticalAck(_Record, frozen=True):
    """CM_ACK: the critical messages of a program have been executed. Snapshots will need it."""

    to: Address
    worker: WorkerId
    sender: Address
    number: int


# --- the barrier, between a lessor and its lessees ---------------------------------------------------------------------


class SyncRequest(_Record, frozen=True):
    """The lessor asks a lessee to finish its dependencies and to hand over its partial state."""

    to: Address
    worker: WorkerId
    origin: WorkerId
    round: int
    forwards: int  # the last id the lessor forwarded to this lessee
    cuts: tuple[tuple[Address, WorkerId, int], ...]  # this lessee's slice of the dependency payloads


class SyncRequestAck(_Record, frozen=True):
    """The lessee has the request. It tells who is missing when a round takes long; nothing waits for it."""

    to: Address
    worker: WorkerId
    origin: WorkerId
    round: int


class SyncReply(_Record, frozen=True):
    """A blocked lessee's partial states, and the last ids on its channels."""

    to: Address
    worker: WorkerId
    origin: WorkerId
    round: int
    partial: Any
    sent: tuple[tuple[Address, WorkerId, int], ...]  # (downstream actor, its worker, last id)
    returned: int  # the last id on the channel from this lessee to its lessor
    timers: tuple[tuple[float, Any], ...] = ()  # (due time, payload) of processing-time timers, which move too


class Unsync(_Record, frozen=True):
    """The round is over. Channels to the actors in ``closed`` are closed, all of them when the lease ended."""

    to: Address
    worker: WorkerId
    origin: WorkerId
    round: int
    closed: tuple[Address, ...]
    lease_ended: bool
    view_version: int
    view: Any


class View(_Record, frozen=True):
    """The actor's shared view, for a lessee that was not part of the round that made it."""

    to: Address
    worker: WorkerId
    origin: WorkerId
    view_version: int
    view: Any


class Intent(_Record, frozen=True):
    """Outputs of one execution on a lessee from its first critical message on: only the lessor may send those."""

    to: Address
    worker: WorkerId
    origin: WorkerId
    seq: int  # on the same counted channel as messages that are handed back
    outputs: tuple[Output | CriticalOutput, ...]


# --- leases ------------------------------------------------------------------------------------------------------------


class Registration(_Record, frozen=True):
    """LESSEE_REGISTRATION: an upstream instance asks to send directly to lessees."""

    to: Address
    worker: WorkerId
    sender: Address
    origin: WorkerId
    number: int
    wanted: tuple[WorkerId, ...]


class Grant(_Record, frozen=True):
    """The lessor's answer: the instances that the asker may send to. An empty one means: to the lessor only, for now."""

    to: Address
    worker: WorkerId
    sender: Address
    number: int
    workers: tuple[WorkerId, ...]
    view: int


class Revoke(_Record, frozen=True):
    """The lessor takes back what it granted to an upstream instance, to scale in."""

    to: Address
    worker: WorkerId
    sender: Address
    origin: WorkerId
    number: int


class RevokeAck(_Record, frozen=True):
    """The upstream instance sends no more to lessees; these are the last ids it used."""

    to: Address
    worker: WorkerId
    sender: Address
    origin: WorkerId
    number: int
    sent: tuple[tuple[WorkerId, int], ...]
    closed: int = 0  # registrations up to this number are void


# --- between strategies ------------------------------------------------------------------------------------------------


class Note(_Record, frozen=True):
    """What one strategy tells another about an actor; the protocol does not know what it means."""

    to: Address  # the actor whose strategy is told
    worker: WorkerId
    sender: Address  # the actor that it is about
    origin: WorkerId
    note: Any


Control = (
    SyncProgram
    | ProgramAck
    | CriticalAck
    | SyncRequest
    | SyncRequestAck
    | SyncReply
    | Unsync
    | View
    | Intent
    | Registration
    | Grant
    | Revoke
    | RevokeAck
    | Note
)
Message = Data | Control
