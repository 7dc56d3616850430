"""The mailbox: its states, the table of transitions between them, and what each state does with a message.

Rules of this file: everything that decides *when a message may run* is in the two tables below, once a message is in order.
Before that, an ordered function parks what arrived before a predecessor (``Lessor.parked``), and a lessee what was sent by
somebody with a newer view (``Lessee.early``). The code looks rows up and never changes a state in any other way; an event
that has no row raises, and nothing happens. Only the rows for what is
free in RUNNABLE are not looked up, because they are taken for every message; the verification checks them all the same.
The diagram in docs/internals/mailbox.md is generated from these tables.

The life of a barrier at a lessor:

- RUNNABLE imposes no order: messages run here or at lessees, and the actor's state is a set of partial states.
- DRAINING: a round has started. Dependency messages finish here and, after SYNC_REQUEST, at every lessee. The lessor
  forwards nothing and makes no lessee.
- BLOCKED: all that must precede the barrier has finished *here*; nothing runs. The lessor waits for the partial states.
- CRITICAL: the state is whole and the lessor is alone. Critical messages run, and their own barriers leave.

A lessee goes through the first three only.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

# Members are compared by identity, so they are hashed by it too: the tables below are looked up on every transition, and the
# hash that Enum defines is several times slower.


class Role(Enum):
    __hash__ = object.__hash__
    LESSOR = "lessor"
    LESSEE = "lessee"


class MailboxState(Enum):
    __hash__ = object.__hash__
    RUNNABLE = "RUNNABLE"
    DRAINING = "DRAINING"
    BLOCKED = "BLOCKED"
    CRITICAL = "CRITICAL"


class Event(Enum):
    __hash__ = object.__hash__
    ROUND_STARTS = "a barrier is ready"
    SYNC_REQUESTED = "SYNC_REQUEST received"
    DRAINED = "dependencies finished, nothing running"
    HANDED_BACK = "a lessee handed work back"
    CONSOLIDATED = "all replies in, states combined"
    ROUND_ENDS = "critical messages executed, own programs acknowledged"
    UNSYNCED = "UNSYNC received"


class Transition(NamedTuple):
    role: Role
    source: MailboxState
    event: Event
    target: MailboxState
    effect: str


class MessageKind(Enum):
    """What a message is to the instance that it reached."""

    __hash__ = object.__hash__

    FREE = "not behind any installed cut"
    PENDING = "behind the head cut of its channel"
    RETURNED = "handed back by a lessee"
    CRITICAL = "a critical message of this round"


class Verdict(Enum):
    OFFER = "offered to the strategy, which may send it elsewhere"
    RUN = "runs here"
    HOLD = "held until the round is over"


class Admission(NamedTuple):
    role: Role
    state: MailboxState
    kind: MessageKind
    verdict: Verdict


_LESSOR, _LESSEE = Role.LESSOR, Role.LESSEE
_RUNNABLE, _DRAINING = MailboxState.RUNNABLE, MailboxState.DRAINING
_BLOCKED, _CRITICAL = MailboxState.BLOCKED, MailboxState.CRITICAL

TRANSITIONS: tuple[Transition, ...] = (
    Transition(_LESSOR, _RUNNABLE, Event.ROUND_STARTS, _DRAINING, "freeze the lessees, send SYNC_REQUEST"),
    Transition(_LESSOR, _DRAINING, Event.DRAINED, _BLOCKED, "wait for the replies"),
    Transition(_LESSOR, _BLOCKED, Event.HANDED_BACK, _DRAINING, "run what came back"),
    Transition(_LESSOR, _BLOCKED, Event.CONSOLIDATED, _CRITICAL, "run the critical messages"),
    Transition(_LESSOR, _CRITICAL, Event.ROUND_ENDS, _RUNNABLE, "send UNSYNC, release what was held"),
    Transition(_LESSEE, _RUNNABLE, Event.SYNC_REQUESTED, _DRAINING, "acknowledge the receipt"),
    Transition(_LESSEE, _DRAINING, Event.DRAINED, _BLOCKED, "send SYNC_REPLY with the partial state"),
    Transition(_LESSEE, _BLOCKED, Event.UNSYNCED, _RUNNABLE, "release what was held"),
)

ADMISSIONS: tuple[Admission, ...] = (
    Admission(_LESSOR, _RUNNABLE, MessageKind.FREE, Verdict.OFFER),
    Admission(_LESSOR, _RUNNABLE, MessageKind.PENDING, Verdict.HOLD),
    Admission(_LESSOR, _RUNNABLE, MessageKind.RETURNED, Verdict.RUN),
    Admission(_LESSOR, _DRAINING, MessageKind.FREE, Verdict.RUN),
    Admission(_LESSOR, _DRAINING, MessageKind.PENDING, Verdict.HOLD),
    Admission(_LESSOR, _DRAINING, MessageKind.RETURNED, Verdict.RUN),
    Admission(_LESSOR, _BLOCKED, MessageKind.FREE, Verdict.HOLD),
    Admission(_LESSOR, _BLOCKED, MessageKind.PENDING, Verdict.HOLD),
    Admission(_LESSOR, _BLOCKED, MessageKind.RETURNED, Verdict.RUN),
    Admission(_LESSOR, _CRITICAL, MessageKind.FREE, Verdict.HOLD),
    Admission(_LESSOR, _CRITICAL, MessageKind.PENDING, Verdict.HOLD),
    Admission(_LESSOR, _CRITICAL, MessageKind.CRITICAL, Verdict.RUN),
    Admission(_LESSEE, _RUNNABLE, MessageKind.FREE, Verdict.OFFER),
    Admission(_LESSEE, _DRAINING, MessageKind.FREE, Verdict.OFFER),
    Admission(_LESSEE, _BLOCKED, MessageKind.FREE, Verdict.HOLD),
)

NEXT_STATE = {(row.role, row.source, row.event): row for row in TRANSITIONS}
ADMIT = {(row.role, row.state, row.kind): row for row in ADMISSIONS}
