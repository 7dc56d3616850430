"""The barrier clock, by rounds made by hand."""

from pathlib import Path

import pytest

from dirigo.kernel import Role
from dirigo.kernel.mailbox import ADMISSIONS, NEXT_STATE, Event, MailboxState
from dirigo_lab.experiments.overhead.barrier_clock import BarrierClock, BarrierMark, read_marks, timed_rounds

ACTOR, OTHER = "job/sum/0", "neighbour/sum/0"
RUNNABLE, DRAINING, BLOCKED = MailboxState.RUNNABLE, MailboxState.DRAINING, MailboxState.BLOCKED
START = (Role.LESSOR, RUNNABLE, Event.ROUND_STARTS)
DRAINED = (Role.LESSOR, DRAINING, Event.DRAINED)
BACK = (Role.LESSOR, BLOCKED, Event.HANDED_BACK)
COMBINED = (Role.LESSOR, BLOCKED, Event.CONSOLIDATED)
ENDED = (Role.LESSOR, MailboxState.CRITICAL, Event.ROUND_ENDS)
ASKED = (Role.LESSEE, RUNNABLE, Event.SYNC_REQUESTED)
REPLIED = (Role.LESSEE, DRAINING, Event.DRAINED)
RELEASED = (Role.LESSEE, BLOCKED, Event.UNSYNCED)

Step = tuple[float, int, tuple[Role, MailboxState, Event]]
# Work is handed back, so that the lessor is blocked twice. The second round starts before lessee 2 hears of the first's end.
STORY: list[Step] = [
    (1.0, 0, START),
    (1.1, 0, DRAINED),
    (1.2, 1, ASKED),
    (1.2, 1, REPLIED),
    (1.3, 2, ASKED),
    (1.4, 0, BACK),
    (1.5, 0, DRAINED),
    (1.5, 2, REPLIED),
    (1.6, 0, COMBINED),
    (1.7, 0, ENDED),
    (1.8, 1, RELEASED),
    (1.9, 0, START),
    (1.9, 0, DRAINED),
    (2.0, 1, ASKED),
    (2.1, 2, RELEASED),
    (2.1, 2, ASKED),
    (2.2, 0, COMBINED),
    (2.3, 0, ENDED),
    (2.4, 2, RELEASED),
    (2.5, 1, RELEASED),
]


class Told:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def play(story: list[Step], clocks: dict[int, BarrierClock], told: Told, actor: str = ACTOR) -> None:
    for now, worker, step in story:
        told.now = now
        clocks[worker].moved(actor, worker, NEXT_STATE[step])


def test_rounds_are_timed_from_the_last_blocked_and_from_the_start_to_the_last_unsync() -> None:
    told = Told()
    clock = BarrierClock(told)
    play(STORY, dict.fromkeys(range(3), clock), told)
    first, second = timed_rounds(clock.marks)
    assert (first.started_s, first.blocked_s, first.unsynced_s, first.lessees) == (1.0, 1.5, 2.1, 2)
    assert first.blocked_ms == pytest.approx(600)
    assert first.whole_ms == pytest.approx(1100)
    assert (second.started_s, second.blocked_s, second.unsynced_s, second.lessees) == (1.9, 1.9, 2.5, 2)


def test_files_of_several_workers_come_to_the_same(tmp_path: Path) -> None:
    told = Told()
    whole = BarrierClock(told)
    play(STORY, dict.fromkeys(range(3), whole), told)
    clocks = {worker: BarrierClock(told, "job", tmp_path / f"{worker}.jsonl") for worker in range(3)}
    play(STORY[:9], clocks, told)
    for clock in clocks.values():
        clock.write()
        assert clock.marks == []
    play(STORY[9:], clocks, told)
    for clock in clocks.values():
        clock.write()
        clock.write()  # which has nothing to add
    assert timed_rounds(read_marks(tmp_path)) == timed_rounds(whole.marks)


def test_a_round_without_lessees_or_without_an_end_does_not_count() -> None:
    told = Told()
    clock = BarrierClock(told)
    play([step for step in STORY if step[1] == 0], {0: clock}, told)
    assert timed_rounds(clock.marks) == []
    play(STORY[:9], dict.fromkeys(range(3), fresh := BarrierClock(told)), told)
    assert timed_rounds(fresh.marks) == []


def test_other_jobs_and_messages_are_not_noted() -> None:
    told = Told()
    clock = BarrierClock(told, "job")
    play(STORY, dict.fromkeys(range(3), clock), told, OTHER)
    clock.moved(ACTOR, 0, ADMISSIONS[0])
    assert clock.marks == []
    clock.moved(ACTOR, 0, NEXT_STATE[START])
    assert clock.marks == [BarrierMark(2.5, ACTOR, 0, "ROUND_STARTS")]
