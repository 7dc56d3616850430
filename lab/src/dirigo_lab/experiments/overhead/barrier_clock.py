"""Times barriers: when a round of an actor began, when its lessor was BLOCKED, and when the last lessee was released.

Two durations of a round matter. The paper measures from BLOCKED at the lessor to the last UNSYNC. What a user feels begins
earlier, when the round starts: at an actor without another round under way, that is the receipt of the SYNC program.

In the simulator one clock observes all workers. On real ones each process has its own, which keeps what it notes in memory
until it is told to write it to a file; whoever wants to know puts the files of all workers together. The clock of the system
is the same for all processes of one machine, and so are the times; over several machines they would not be.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dirigo.kernel import Address, CriticalOutput, Output, Role, RunnableMessage, WorkerId, job_of
from dirigo.kernel.mailbox import Event, Transition

_NOTED = {
    (Role.LESSOR, Event.ROUND_STARTS),
    (Role.LESSOR, Event.DRAINED),
    (Role.LESSOR, Event.CONSOLIDATED),
    (Role.LESSEE, Event.SYNC_REQUESTED),
    (Role.LESSEE, Event.UNSYNCED),
}
_encoder = msgspec.json.Encoder()


class BarrierMark(NamedTuple):
    """Something that happened to a mailbox."""

    at_s: float
    actor: Address
    worker: WorkerId
    event: str  # the name of one of the kernel's events


class TimedRound(NamedTuple):
    """One round with lessees."""

    actor: Address
    started_s: float
    blocked_s: float
    unsynced_s: float  # the last lessee
    lessees: int

    @property
    def blocked_ms(self) -> float:
        """From BLOCKED to the last UNSYNC, as the paper measures."""
        return (self.unsynced_s - self.blocked_s) * 1000

    @property
    def whole_ms(self) -> float:
        """From the start to the last UNSYNC, as a user feels it."""
        return (self.unsynced_s - self.started_s) * 1000


class BarrierClock:
    """An observer of one worker, or of all of a simulation."""

    def __init__(self, clock: Callable[[], float], job: str | None = None, file: Path | None = None) -> None:
        """``job``: note its actors only. ``file``: where ``write`` appends to."""
        self.marks: list[BarrierMark] = []
        self._clock = clock
        self._job = job
        self._file = file

    def moved(self, address: Address, worker: WorkerId, row: Any) -> None:
        if type(row) is Transition and (row.role, row.event) in _NOTED and self._job in (None, job_of(address)):
            self.marks.append(BarrierMark(self._clock(), address, worker, row.event.name))

    def write(self) -> None:
        """Append what was noted to the file, and forget it. Not at the end of a round: others wait for its messages."""
        if self._file is None or not self.marks:
            return
        lines = b"".join(_encoder.encode(mark) + b"\n" for mark in self.marks)
        self.marks.clear()
        with self._file.open("ab") as file:
            file.write(lines)

    def emitted(self, sender: Address, worker: WorkerId, output: Output | CriticalOutput) -> None:
        """Of no interest here, as are the following."""

    def started(self, worker: WorkerId, message: RunnableMessage) -> None: ...

    def executed(self, worker: WorkerId, message: RunnableMessage) -> None: ...


def read_marks(folder: Path) -> list[BarrierMark]:
    """What the clocks of all workers wrote to the files of a folder."""
    decoder = msgspec.json.Decoder(BarrierMark)
    return [mark for file in sorted(folder.glob("*.jsonl")) for mark in decoder.decode_lines(file.read_bytes())]


def timed_rounds(marks: Iterable[BarrierMark]) -> list[TimedRound]:
    """The rounds of all actors that had lessees and were seen to their end, in the order of time."""
    by_actor: dict[Address, dict[WorkerId, list[BarrierMark]]] = defaultdict(lambda: defaultdict(list))
    for mark in marks:  # those of one worker are in order; nothing is assumed of the others
        by_actor[mark.actor][mark.worker].append(mark)
    rounds = [each for actor, by_worker in by_actor.items() for each in _rounds_of(actor, by_worker)]
    return sorted(rounds, key=lambda each: each.started_s)


def _rounds_of(actor: Address, by_worker: dict[WorkerId, list[BarrierMark]]) -> Iterator[TimedRound]:
    lessor = next((its for its in by_worker.values() if its[0].event == Event.ROUND_STARTS.name), [])
    rounds = list(_at_lessor(lessor))
    starts = [started_s for started_s, _, _ in rounds]
    released: dict[int, list[float]] = defaultdict(list)
    for its in by_worker.values():
        for requested_s, unsynced_s in _at_lessee(its):
            number = bisect_right(starts, requested_s) - 1
            # A lessee enters a round between its start and the combination of the states, which waits for the lessee.
            # When it is released, the next round may have started already.
            if number >= 0 and requested_s <= rounds[number][2]:
                released[number].append(unsynced_s)
    for number, times in sorted(released.items()):
        started_s, blocked_s, _ = rounds[number]
        yield TimedRound(actor, started_s, blocked_s, max(times), len(times))


def _at_lessor(marks: Iterable[BarrierMark]) -> Iterator[tuple[float, float, float]]:
    """(start, BLOCKED for the last time, states combined) of each round."""
    started_s = blocked_s = 0.0
    for mark in marks:
        if mark.event == Event.ROUND_STARTS.name:
            started_s = mark.at_s
        elif mark.event == Event.DRAINED.name:
            blocked_s = mark.at_s
        elif mark.event == Event.CONSOLIDATED.name:
            yield started_s, blocked_s, mark.at_s


def _at_lessee(marks: Iterable[BarrierMark]) -> Iterator[tuple[float, float]]:
    """(request, release) of each round."""
    requested_s = 0.0
    for mark in marks:
        if mark.event == Event.SYNC_REQUESTED.name:
            requested_s = mark.at_s
        elif mark.event == Event.UNSYNCED.name:
            yield requested_s, mark.at_s
