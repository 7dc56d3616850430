"""The invariants, checked on what happens and not on what the protocol believes.

One ``Ledger`` per actor is a fold over events that concern the actor: what its upstreams *emitted* and in which order with
respect to their critical messages, what was *executed* and where, which messages were sent. It knows nothing of cuts,
rounds or leases, so a mistake there cannot make a check agree with it.

Outputs are noted twice: when the function *produced* them, in the order of its calls, and when the kernel *emitted* them.
So a kernel that lets one output overtake another is found out, whatever it does with the two afterwards.

An *epoch* of an edge is the number of critical messages emitted on it so far: a message of epoch e must run after the first
e critical messages of its edge, and before the one that follows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn

from dirigo.kernel import Address, Kept, WorkerId
from dirigo.kernel.interface.message import (
    CriticalAck,
    Data,
    Intent,
    Lane,
    Message,
    ProgramAck,
    SyncProgram,
    SyncRequest,
    SyncRequestAck,
    Unsync,
)
from dirigo.kernel.mailbox import Event, Role, Transition
from dirigo_lab.verification.snapshots.naming import CaptureInWorld, snapshot_of

Fact = tuple[Any, ...]  # (name of a Ledger method, arguments ...)


class ViolationError(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what

    def __reduce__(self) -> tuple[type[ViolationError], tuple[str, str]]:
        return ViolationError, (self.invariant, self.what)


INVARIANTS: dict[str, str] = {
    "dependency-before-critical": "all that an upstream emitted before a critical message runs before it",
    "critical-before-pending": "all that an upstream emitted after a critical message runs after it",
    "order-of-production": "what an instance produced before a critical message runs before it, what it produced later runs "
    "after it; of a critical message that an actor produced alone this holds for what all its instances produced",
    "exactly-once": "each message runs once, and only if it was emitted",
    "critical-log": "critical messages of an edge run once each, in the order they were emitted",
    "sync-one-complete": "a SYNC_ONE runs once, with one critical message of every upstream that has not ended",
    "lessor-alone": "in CRITICAL the lessor is alone: nothing else of the actor runs",
    "consolidated-state": "at a critical message the lessor's state is the fold of all that ran, no more and no less",
    "no-partial-left": "at a critical message no lessee holds a partial state, and none is running",
    "replica-current": "what a lessee reads is the state of the last round, and its own updates since",
    "ids-gapless": "ids on a channel are 1, 2, 3 ...",
    "one-hop": "only lessors forward, only to their lessees, and what comes back runs at the lessor",
    "ordered-at-home": "messages of an ordered function run at its lessor, in the order of each channel",
    "acknowledged": "every program and every request is acknowledged once, programs before the sender's UNSYNC",
    "no-deadlock": "when nothing can happen any more, every message ran and every queue is empty",
    "snapshot-once": "each actor that has not ended runs each snapshot once, and who has ended and all that "
    "it has yet to do alone is kept; the barriers of a snapshot that gave way do nothing",
    "snapshot-cut": "what was captured is the result of exactly what the sources emitted before the barrier",
    "snapshot-gives-way": "a snapshot is void if and only if a SYNC_ONE that was emitted before it cannot run before it",
    "leases-consistent": "at the end, whoever may be sent to or holds a partial state is known to the lessor",
}


class UpstreamLedger:
    """One upstream actor or source, as the ledger of the downstream actor sees it."""

    __slots__ = ("due", "emitted", "ended", "executed", "waiting")

    def __init__(self) -> None:
        self.emitted = 0  # critical messages emitted
        self.executed = 0  # critical messages executed
        self.due: list[str] = []  # critical messages emitted and not executed, in order
        self.waiting: dict[str, int] = {}  # payloads emitted and not executed, with their epochs
        self.ended = False

    def copy(self) -> UpstreamLedger:
        twin = UpstreamLedger()
        twin.emitted, twin.executed, twin.ended = self.emitted, self.executed, self.ended
        twin.due, twin.waiting = self.due.copy(), self.waiting.copy()
        return twin

    def freeze(self) -> Hashable:
        return (self.emitted, self.executed, tuple(self.due), tuple(sorted(self.waiting.items())), self.ended)


class Produced(NamedTuple):
    """An output that a function produced and that has not run yet."""

    worker: WorkerId  # of the instance that produced it
    payload: str
    kind: str  # one of the three below
    fence: bool  # a critical message of an actor that was alone: it concerns what all instances produced


DATA, CRITICAL = "data", "critical"
ALONE = "alone"  # where an actor that was alone asked to run once more: what it produces then belongs here


class Ledger:
    """What happened to one actor."""

    __slots__ = (
        "actor",
        "alone",
        "base",
        "coverage",
        "critical",
        "edges",
        "executed_counts",
        "gave_way",
        "home",
        "ordered",
        "outstanding",
        "owed",
        "produced_by",
        "running",
        "seqs",
        "snapshots",
    )

    COUNTS_CRITICALS: ClassVar[bool] = True  # whether the functions count critical messages like others

    def __init__(self, actor: Address, home: WorkerId, upstreams: tuple[Address, ...], ordered: bool = False) -> None:
        self.actor = actor
        self.home = home
        self.ordered = ordered
        self.edges = {upstream: UpstreamLedger() for upstream in upstreams}
        self.executed_counts: dict[str, int] = {}
        self.critical = False
        self.running: set[WorkerId] = set()
        self.produced_by: dict[Address, list[Produced]] = {upstream: [] for upstream in upstreams}  # and not run yet
        self.alone: set[str] = set()  # what the function asked to run alone, at once or by a timer
        self.base: dict[str, int] = {}  # the state as of the last round
        self.owed: set[tuple[Any, ...]] = set()  # acknowledgments that this actor's instances have to send
        self.outstanding: set[tuple[Address, int]] = set()  # programs of this actor that are not acknowledged
        self.seqs: dict[tuple[Any, ...], int] = {}
        self.snapshots: dict[int, CaptureInWorld | None] = {}  # those that ran, and what was captured; None for a void one
        self.gave_way: set[int] = set()  # the snapshots that gave way here
        self.coverage: set[tuple[str, int]] = set()  # (kind of channel, epoch) of what was sent; not part of the state

    def freeze(self) -> Hashable:
        return (
            tuple(edge.freeze() for edge in self.edges.values()),
            tuple(sorted(self.executed_counts.items())),
            self.critical,
            tuple(sorted(self.running)),
            tuple(tuple(_in_normal_order(outputs)) for outputs in self.produced_by.values()),
            tuple(sorted(self.alone)),
            tuple(sorted(self.base.items())),
            tuple(sorted(self.owed)),
            tuple(sorted(self.outstanding)),
            tuple(sorted(self.seqs.items())),
            tuple(self.snapshots.items()),
            tuple(sorted(self.gave_way)),
        )

    def copy(self) -> Ledger:
        twin = Ledger(self.actor, self.home, (), self.ordered)
        for name, edge in self.edges.items():
            twin.edges[name] = edge.copy()
        twin.produced_by = {upstream: outputs.copy() for upstream, outputs in self.produced_by.items()}
        twin.critical = self.critical
        for name in (
            "executed_counts",
            "running",
            "alone",
            "base",
            "owed",
            "outstanding",
            "seqs",
            "snapshots",
            "gave_way",
        ):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def note(self, fact: Fact) -> None:
        """Take a fact in; raises ViolationError if it should not have happened."""
        getattr(self, fact[0])(*fact[1:])

    # --- outputs towards this actor ------------------------------------------------------------------------------------

    def produced(
        self, sender: Address, worker: WorkerId, outputs: tuple[tuple[str, str], ...], sequential: bool, alone: str = ""
    ) -> None:
        """One execution produced these (payload, kind) for this actor, in this order.

        Nothing else of the sender runs if it is sequential. ``alone`` is the name of the execution if it was asked for.
        """
        log = self.produced_by[sender]
        place = next((i for i, each in enumerate(log) if each.kind == ALONE and each.payload == alone), len(log))
        entries = [Produced(worker, payload, kind, sequential and kind == CRITICAL) for payload, kind in outputs]
        log[place : place + 1] = entries

    def _check_order(self, sender: Address, payload: str, critical: bool) -> None:
        """A message of an upstream runs: nothing that has to run before it may be left."""
        log = self.produced_by[sender]
        index = next((i for i, each in enumerate(log) if each.payload == payload and each.kind != ALONE), None)
        if index is None:
            self._fail("exactly-once", f"{payload} of {sender} ran, but was not produced, or ran before")
        output = log.pop(index)
        for earlier in log[:index]:
            concerned = earlier.worker == output.worker or earlier.fence or output.fence
            if earlier.kind != ALONE and concerned and (critical or earlier.kind == CRITICAL):
                self._fail("order-of-production", f"{payload} of {sender} ran before {earlier.payload}, produced earlier")

    def emitted(self, sender: Address, payload: str, critical: bool) -> None:
        edge = self.edges[sender]
        if critical:
            edge.emitted += 1
            edge.due.append(payload)
            self._drop_void(sender)
        elif payload in edge.waiting:
            self._fail("exactly-once", f"{payload} of {sender} was emitted twice")
        else:
            edge.waiting[payload] = edge.emitted

    def sent(self, channel: tuple[Any, ...], seq: int, kind: str, sender: Address, payload: str) -> None:
        if seq != self.seqs.get(channel, 0) + 1:
            self._fail("ids-gapless", f"id {seq} follows {self.seqs.get(channel, 0)} on {kind} {channel}")
        self.seqs[channel] = seq
        epoch = self.edges[sender].waiting.get(payload)
        if epoch is not None:
            self.coverage.add((kind, epoch))

    def intended(self, origin: WorkerId, worker: WorkerId, seq: int) -> None:
        """An intent has its id on the channel of what is handed back."""
        channel = ("return", origin, worker)
        if seq != self.seqs.get(channel, 0) + 1:
            self._fail("ids-gapless", f"intent {seq} follows {self.seqs.get(channel, 0)} on {channel}")
        self.seqs[channel] = seq

    # --- executions ----------------------------------------------------------------------------------------------------

    def started(self, worker: WorkerId, critical: bool) -> None:
        if self.critical and not (critical and worker == self.home):
            self._fail("lessor-alone", f"a message starts at w{worker} while the lessor is CRITICAL")
        if critical and self.running:
            self._fail("lessor-alone", f"a critical message starts while w{sorted(self.running)} run")
        self.running.add(worker)

    def executed(
        self,
        worker: WorkerId,
        sender: Address,
        origin: WorkerId,
        payload: str,
        lane: Lane,
        seq: int,
        own: tuple[tuple[str, int], ...],
        readable: tuple[tuple[str, int], ...] | None,
    ) -> None:
        self._check_place(worker, sender, origin, payload, lane, seq)
        edge = self.edges[sender]
        epoch = edge.waiting.pop(payload, None)
        if epoch is None:
            self._fail("exactly-once", f"{payload} of {sender} ran at w{worker}, but was not waiting to run")
        if epoch > edge.executed:
            self._fail(
                "critical-before-pending",
                f"{payload} of {sender} follows critical message {epoch}, but ran at w{worker} after {edge.executed}",
            )
        self._check_order(sender, payload, critical=False)
        self.executed_counts[payload] = self.executed_counts.get(payload, 0) + 1
        if readable is not None and worker != self.home:
            self._check_replica(worker, dict(own), dict(readable))
        self.running.discard(worker)

    def _check_place(self, worker: WorkerId, sender: Address, origin: WorkerId, payload: str, lane: Lane, seq: int) -> None:
        if (worker == self.home) != (lane is Lane.RETURN) and lane is not Lane.INPUT:
            self._fail("one-hop", f"{payload} of {sender} on lane {lane.name} ran at w{worker}")
        if self.ordered:
            if worker != self.home:
                self._fail("ordered-at-home", f"{payload} of {sender} ran at w{worker}")
            last = self.seqs.get(("ran", sender, origin), 0)
            if seq != last + 1:
                self._fail("ordered-at-home", f"{payload} of {sender} with id {seq} ran after id {last}")
            self.seqs["ran", sender, origin] = seq

    def _check_replica(self, worker: WorkerId, own: Mapping[str, int], readable: Mapping[str, int]) -> None:
        base = {payload: count - own.get(payload, 0) for payload, count in readable.items()}
        base = {payload: count for payload, count in base.items() if count}
        if base != self.base:
            self._fail("replica-current", f"w{worker} reads {base}, but the last round left {self.base}")

    def executed_critical(
        self,
        worker: WorkerId,
        parts: tuple[tuple[Address, str], ...],
        one: bool,
        final: bool,
        contents: tuple[tuple[str, int], ...],
    ) -> None:
        if worker != self.home or not self.critical:
            self._fail("lessor-alone", f"a critical message ran at w{worker}, not at a lessor in CRITICAL")
        alone = parts[0][0] == self.actor
        if alone:
            self._check_alone(parts[0][1])
        elif one:
            self._check_complete(parts)
        for sender, payload in () if alone else parts:
            self._check_critical(sender, payload)
        if self.COUNTS_CRITICALS:
            self.executed_counts[parts[0][1]] = self.executed_counts.get(parts[0][1], 0) + 1
        self._check_contents(dict(contents))
        self.running.discard(worker)
        for sender, _ in () if alone else parts:
            edge = self.edges[sender]
            edge.executed += 1
            edge.due.pop(0)
            edge.ended = edge.ended or final
            self._drop_void(sender)

    def executed_snapshot(
        self,
        worker: WorkerId,
        parts: tuple[tuple[Address, str], ...],
        capture: CaptureInWorld | None,
        contents: tuple[tuple[str, int], ...],
    ) -> None:
        """A snapshot's barrier ran. Without a capture it is void, here or since upstream."""
        if worker != self.home or not self.critical:
            self._fail("lessor-alone", f"a snapshot ran at w{worker}, not at a lessor in CRITICAL")
        senders = sorted(sender for sender, _ in parts)
        expected = sorted(upstream for upstream, edge in self.edges.items() if not edge.ended)
        numbers = {snapshot_of(payload) for _, payload in parts}
        number = numbers.pop()
        assert number is not None
        if number in self.snapshots or numbers:
            self._fail("snapshot-once", f"{parts} ran, but {sorted(self.snapshots)} had run before")
        if senders != expected and (capture is not None or not set(senders) <= set(expected)):
            self._fail("snapshot-once", f"{parts} ran and was captured, but not of all of {expected}")
        for sender, payload in parts:
            self._check_critical(sender, payload)
        self._check_contents(dict(contents))
        if capture is not None:
            self._check_kept(capture.kept)
        self.running.discard(worker)
        self.snapshots[number] = capture
        if senders != expected:
            self.gave_way.add(number)
        for sender, _ in parts:
            self.edges[sender].executed += 1
            self.edges[sender].due.pop(0)
        for sender in self.edges:
            self._drop_void(sender)

    def _check_kept(self, kept: Kept) -> None:
        ended = tuple(sorted(upstream for upstream, edge in self.edges.items() if edge.ended))
        if kept.ended != ended:
            self._fail("snapshot-once", f"{kept.ended} are kept as ended, but those that have ended are {ended}")
        kept_alone = sorted(payload for _, payload in kept.timers)
        # A strategy may have asked for something, and the worker is about to tell the actor.
        alone = sorted(payload for payload in self.alone if payload in kept_alone or not payload.startswith("injected"))
        if kept_alone != alone:
            self._fail("snapshot-once", f"{kept_alone} are kept to run alone, but {alone} have not run")

    def _drop_void(self, sender: Address) -> None:
        """The barriers of a snapshot that gave way here do nothing when their turn comes."""
        edge = self.edges[sender]
        while edge.due and snapshot_of(edge.due[0]) in self.gave_way:
            payload = edge.due.pop(0)
            edge.executed += 1
            log = self.produced_by[sender]
            del log[next(i for i, each in enumerate(log) if each.payload == payload and each.kind == CRITICAL)]

    def restore(self, capture: CaptureInWorld, counts: Mapping[str, int]) -> None:
        """Begin where a capture was made, in which the actor had counted this."""
        self.executed_counts = dict(counts)
        self.base = dict(counts)
        self.alone = {payload for _, payload in capture.kept.timers}
        for upstream in capture.kept.ended:
            self.edges[upstream].ended = True

    def asked(self, payload: str) -> None:
        self.alone.add(payload)

    def _check_alone(self, payload: str) -> None:
        if payload not in self.alone:
            self._fail("exactly-once", f"{payload} ran alone, but was not asked for, or ran before")
        self.alone.discard(payload)

    def _check_contents(self, contents: Mapping[str, int]) -> None:
        if contents != self.executed_counts:
            payloads = sorted({*contents, *self.executed_counts})
            off = {p: contents.get(p, 0) - self.executed_counts.get(p, 0) for p in payloads}
            lacks = {payload: -count for payload, count in off.items() if count < 0}
            extra = {payload: count for payload, count in off.items() if count > 0}
            self._fail("consolidated-state", f"the state lacks {lacks or 'nothing'} and has {extra or 'nothing'} too many")

    def _check_complete(self, parts: tuple[tuple[Address, str], ...]) -> None:
        senders = sorted(sender for sender, _ in parts)
        expected = sorted(upstream for upstream, edge in self.edges.items() if not edge.ended)
        if senders != expected or len({payload for _, payload in parts}) != 1:
            self._fail("sync-one-complete", f"{parts} ran, but the upstreams that have not ended are {expected}")

    def _check_critical(self, sender: Address, payload: str) -> None:
        edge = self.edges[sender]
        if not edge.due or edge.due[0] != payload:
            self._fail("critical-log", f"{payload} of {sender} ran, but {edge.due[:1] or 'nothing'} was due")
        late = sorted(waiting for waiting, epoch in edge.waiting.items() if epoch <= edge.executed)
        if late:
            self._fail("dependency-before-critical", f"{payload} of {sender} ran before {late}, emitted earlier")
        self._check_order(sender, payload, critical=True)

    def moved(self, row: Transition) -> None:
        if row.role is Role.LESSEE:
            return
        if row.event is Event.CONSOLIDATED:
            self.critical = True
            if self.running:
                self._fail("lessor-alone", f"the lessor becomes CRITICAL while w{sorted(self.running)} run")
        elif row.event is Event.ROUND_ENDS:
            self.critical = False
            self.base = dict(self.executed_counts)

    # --- acknowledgments -----------------------------------------------------------------------------------------------

    def owes(self, *what: Any) -> None:
        self.owed.add(what)

    def pays(self, *what: Any) -> None:
        if what not in self.owed:
            self._fail("acknowledged", f"{what} was sent twice, or without cause")
        self.owed.discard(what)

    def program_sent(self, to: Address, number: int) -> None:
        if any(target == to for target, _ in self.outstanding):
            self._fail("acknowledged", f"a second program went to {to} before the first was acknowledged")
        self.outstanding.add((to, number))

    def program_acknowledged(self, to: Address, number: int) -> None:
        self.outstanding.discard((to, number))

    def unsynced(self) -> None:
        if self.outstanding:
            self._fail("acknowledged", f"UNSYNC left before {sorted(self.outstanding)} were acknowledged")

    # --- the end -------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Nothing can happen any more: everything must have happened."""
        for upstream, edge in self.edges.items():
            if edge.waiting or edge.due:
                self._fail("no-deadlock", f"{sorted(edge.waiting) + edge.due} of {upstream} never ran")
            left = [output.payload for output in self.produced_by[upstream]]
            if left:
                self._fail("exactly-once", f"{left} were produced by {upstream} and never ran")
        if self.alone:
            self._fail("exactly-once", f"{sorted(self.alone)} should have run alone and never did")
        if self.owed or self.outstanding:
            self._fail("acknowledged", f"{sorted(self.owed, key=repr) or sorted(self.outstanding)} are still owed")

    def _fail(self, invariant: str, what: str) -> NoReturn:
        raise ViolationError(invariant, f"at {self.actor}: {what}")


def _in_normal_order(outputs: list[Produced]) -> Iterator[Produced]:
    """Between two fences nothing depends on which of two instances produced something first."""
    part: list[Produced] = []
    for output in outputs:
        if output.fence or output.kind == ALONE:
            yield from sorted(part, key=lambda each: each.worker)
            yield output
            part = []
        else:
            part.append(output)
    yield from sorted(part, key=lambda each: each.worker)


def control_facts(message: Message) -> list[tuple[Address, Fact]]:
    """What a control message that was just sent means for the ledgers of the actors it concerns."""
    if isinstance(message, SyncProgram):
        return [
            (message.to, ("owes", "SP_ACK", message.sender, message.number)),
            (message.to, ("owes", "CM_ACK", message.sender, message.number)),
            (message.sender, ("program_sent", message.to, message.number)),
        ]
    if isinstance(message, ProgramAck):
        return [
            (message.sender, ("pays", "SP_ACK", message.to, message.number)),
            (message.to, ("program_acknowledged", message.sender, message.number)),
        ]
    if isinstance(message, CriticalAck):
        return [(message.sender, ("pays", "CM_ACK", message.to, message.number))]
    if isinstance(message, SyncRequest):
        return [(message.to, ("owes", "receipt", message.worker, message.round))]
    if isinstance(message, SyncRequestAck):
        return [(message.to, ("pays", "receipt", message.origin, message.round))]
    if isinstance(message, Intent):
        return [(message.to, ("intended", message.origin, message.worker, message.seq))]
    if isinstance(message, Unsync):
        return [(message.to, ("unsynced",))]
    return []


def data_fact(message: Data, homes: Mapping[Address, WorkerId], actors: Mapping[Address, Any]) -> Fact:
    """What a data message that was just sent means for the ledger of its target."""
    if message.lane is Lane.INPUT:
        if message.sender not in actors:
            kind = "source"
        else:
            kind = "lessor" if message.origin == homes[message.sender] else "lessee"
        kind += " to " + ("lessor" if message.worker == homes[message.to] else "lessee")
        channel: tuple[Any, ...] = ("input", message.sender, message.origin, message.worker)
    else:
        kind = message.lane.name.lower()
        channel = (kind, message.origin, message.worker)
    return ("sent", channel, message.seq, kind, message.sender, message.payload)
