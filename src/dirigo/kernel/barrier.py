"""What a lessor knows of one upstream actor: its channels, and the FIFO of its barriers with their cuts.

Each SYNC program installs its cut at once, but only the *head* of the FIFO separates dependency from pending: a message
between the first and the second program of an upstream belongs after the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum

from dirigo.kernel.channel import Inbound
from dirigo.kernel.interface.address import Address, WorkerId
from dirigo.kernel.interface.message import Critical, CriticalOutput, CriticalRun, Granularity, SyncProgram, Trail


class WaitingProgram:
    """A SYNC program that waits for its round, its cut sorted by where it applies."""

    __slots__ = ("arrived", "at_home", "at_lessees", "message")

    def __init__(self, message: SyncProgram, arrived: float = 0.0) -> None:
        self.message = message
        self.arrived = arrived
        self.at_home: dict[WorkerId, int] = {}
        self.at_lessees: dict[WorkerId, list[tuple[WorkerId, int]]] = {}
        for sender, receiver, last in message.dependencies:
            if receiver == message.worker:
                self.at_home[sender] = last
            else:
                self.at_lessees.setdefault(receiver, []).append((sender, last))


class Upstream:
    """One upstream actor, seen from a lessor."""

    __slots__ = ("address", "channels", "cuts", "ended", "last_barrier", "last_program", "last_snapshot", "programs")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.channels: dict[WorkerId, Inbound] = {}
        self.programs: deque[WaitingProgram] = deque()
        self.cuts: dict[WorkerId, int] = {}  # of the last program that was executed
        self.last_program = 0
        self.last_barrier = 0  # the SYNC_ONE it sent last
        self.last_snapshot = 0  # the snapshot it sent last
        self.ended = False

    def channel(self, origin: WorkerId) -> Inbound:
        channel = self.channels.get(origin)
        if channel is None:
            channel = self.channels[origin] = Inbound()
        return channel

    def install(self, program: SyncProgram, now: float) -> tuple[str, str] | None:
        """Put the next program behind the others; if it cannot be the next one, the rule that it breaks, and how."""
        number, sender, barrier = program.number, program.sender, program.barrier
        if number != self.last_program + 1:
            return "one-program-at-a-time", f"program {number} of {sender} came too early"
        if self.ended or (self.programs and self.programs[-1].message.final):
            return "nothing-after-the-end", f"{sender} has ended but sent program {number}"
        # Two upstreams that send two SYNC_ONEs in different orders would wait for each other for ever; or two snapshots.
        if program.granularity is Granularity.ONE:
            if barrier <= self.last_barrier:
                return "one-order", f"{sender} sent SYNC_ONE {barrier} after SYNC_ONE {self.last_barrier}"
            self.last_barrier = barrier
        elif program.granularity is Granularity.SNAPSHOT:
            if barrier <= self.last_snapshot:
                return "one-order", f"{sender} sent snapshot {barrier} after snapshot {self.last_snapshot}"
            self.last_snapshot = barrier
        self.last_program = number
        self.programs.append(WaitingProgram(program, now))
        return None

    def head_cut(self, origin: WorkerId) -> int:
        """The last id that precedes the head barrier; a channel that its payload does not name keeps its former cut."""
        return self.programs[0].at_home.get(origin, self.cuts.get(origin, 0))

    def is_pending(self, origin: WorkerId, seq: int) -> bool:
        return bool(self.programs) and seq > self.head_cut(origin)

    def head_is_drained(self) -> bool:
        """Everything before the head barrier was executed here or handed over."""
        return all(self.channel(origin).done >= cut for origin, cut in self.programs[0].at_home.items())

    def finish_head(self) -> SyncProgram:
        """The head barrier's critical messages have run: the next program, if any, becomes the head."""
        program = self.programs.popleft()
        self.cuts.update(program.at_home)
        # An upstream leaves the sets of later barriers only now: until its last barrier has run, others wait for it.
        self.ended = self.ended or program.message.final
        return program.message


class Fate(Enum):
    """What becomes of a barrier whose turn has come. Only those of snapshots do anything but run."""

    RUNS = "runs"
    IS_VOID = "gave way to a SYNC_ONE: it is told so, and passed on as void"
    IS_DROPPED = "belongs to a snapshot that has given way already"


class Barrier:
    """Programs that run together: one for SYNC_CHANNEL, one per upstream actor for SYNC_ONE and for a snapshot."""

    __slots__ = ("fate", "programs")

    def __init__(self, programs: tuple[WaitingProgram, ...], fate: Fate = Fate.RUNS) -> None:
        self.programs = programs
        self.fate = fate

    @property
    def snapshot(self) -> int:
        """The number of the snapshot that it belongs to; 0 if to none."""
        message = self.programs[0].message
        return message.barrier if message.granularity is Granularity.SNAPSHOT else 0

    def runs(self, address: Address, worker: WorkerId, now: float) -> Iterator[CriticalRun]:
        """The critical executions of this barrier, in order. A SYNC_ONE runs, and so propagates, once; a snapshot too."""
        if self.fate is Fate.IS_DROPPED:
            return
        first = self.programs[0].message
        arrived = self.programs[0].arrived
        if first.granularity is not Granularity.CHANNEL:
            criticals = [program.message.criticals[0] for program in self.programs]
            oldest = min(range(len(criticals)), key=lambda index: criticals[index].created)
            yield CriticalRun(
                address,
                worker,
                tuple((p.message.sender, p.message.number, p.message.criticals[0].payload) for p in self.programs),
                first.granularity,
                first.barrier,
                first.final,
                criticals[oldest].created,
                min(critical.deadline for critical in criticals),
                criticals[oldest].sent,
                _waited(criticals[oldest], self.programs[oldest].arrived, now),
                now,
                self.fate is Fate.IS_VOID,
            )
            return
        last = len(first.criticals) - 1
        for index, critical in enumerate(first.criticals):
            yield CriticalRun(
                address,
                worker,
                ((first.sender, first.number, critical.payload),),
                first.granularity,
                first.barrier,
                first.final and index == last,
                critical.created,
                critical.deadline,
                critical.sent,
                _waited(critical, arrived, now),
                now,
            )


def run_of_itself(output: CriticalOutput, worker: WorkerId, now: float) -> CriticalRun:
    """The execution that an actor asked for itself: a barrier of its own, which cuts no upstream actor."""
    parts = ((output.to, 0, output.payload),)
    hop, held, queued, ran = output.trail
    trail = (hop, held + now - output.sent, queued, ran)
    return CriticalRun(
        output.to, worker, parts, Granularity.CHANNEL, 0, False, output.created, output.deadline, now, trail, now
    )


def _waited(critical: Critical, arrived: float, now: float) -> Trail:
    """Its trail, with the way here and the wait for its barrier."""
    hop, held, queued, ran = critical.trail
    return (hop + arrived - critical.sent, held + now - arrived, queued, ran)


def ready_barriers(upstreams: Mapping[Address, Upstream], last_snapshot: int) -> list[Barrier]:
    """The barriers that can run now, at most one per upstream actor, in the order of the upstream actors' addresses.

    A SYNC_CHANNEL is ready as soon as it heads its FIFO, a SYNC_ONE when it heads the FIFO of every upstream actor that it
    blocks and that has not ended. An incomplete SYNC_ONE delays nothing ahead of it. The same holds for a snapshot, but it
    gives way where it could never run. ``last_snapshot`` is the last one that ran or gave way here.
    """
    barriers: list[Barrier] = []
    judged: set[tuple[Granularity, int]] = set()  # those of several upstreams, each by the first upstream that it heads
    for upstream in sorted((u for u in upstreams.values() if u.programs), key=lambda u: u.address):
        message = upstream.programs[0].message
        kind = (message.granularity, message.barrier)
        if message.granularity is Granularity.CHANNEL:
            barriers.append(Barrier((upstream.programs[0],)))
        elif message.granularity is Granularity.SNAPSHOT and message.barrier <= last_snapshot:
            barriers.append(Barrier((upstream.programs[0],), Fate.IS_DROPPED))
        elif kind not in judged:
            judged.add(kind)
            members = [upstreams[member] for member in sorted(message.blocks) if not upstreams[member].ended]
            headed = [member for member in members if _is_headed_by(member, message)]
            if len(headed) == len(members):
                barriers.append(Barrier(tuple(member.programs[0] for member in headed)))
            elif message.granularity is Granularity.SNAPSHOT and _excludes(members, headed):
                barriers.append(Barrier(tuple(member.programs[0] for member in headed), Fate.IS_VOID))
    return barriers


def _is_headed_by(upstream: Upstream, barrier: SyncProgram) -> bool:
    if not upstream.programs:
        return False
    head = upstream.programs[0].message
    return head.granularity is barrier.granularity and head.barrier == barrier.barrier


def _excludes(members: list[Upstream], headed: list[Upstream]) -> bool:
    """Whether a snapshot that heads some of its members waits for one whose SYNC_ONE in turn waits for one of those."""
    waiting = {member.address for member in headed}
    heads = [member.programs[0].message for member in members if member.programs]
    return any(head.granularity is Granularity.ONE and not waiting.isdisjoint(head.blocks) for head in heads)
