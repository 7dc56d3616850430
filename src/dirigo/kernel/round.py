"""One round of an actor: what it executes, who takes part, and how far it is. The lessor alone changes it."""

from __future__ import annotations

from collections import deque

from dirigo.kernel.address import WorkerId
from dirigo.kernel.barrier import Barrier, Program
from dirigo.kernel.message import CriticalOutput, CriticalRun, Output, SyncReply


class Round:
    """One round: the barriers it executes, the lessees that take part, and how far it is."""

    __slots__ = (
        "agenda",
        "barriers",
        "number",
        "participants",
        "replies",
        "scales_in",
        "task",
        "unacknowledged",
        "undrained",
    )

    def __init__(self, number: int, barriers: list[Barrier], participants: tuple[WorkerId, ...], scales_in: bool) -> None:
        self.number = number
        self.barriers = barriers
        self.participants = participants
        self.scales_in = scales_in  # this round ends all leases
        self.replies: dict[WorkerId, SyncReply] = {}
        self.undrained = self.programs()  # whose dependencies at the lessor were not all done when last looked at
        self.unacknowledged = set(participants)  # lessees whose receipt of SYNC_REQUEST is not known
        self.agenda: deque[Output | CriticalOutput | CriticalRun] = deque()  # what is left to do in CRITICAL
        self.task: CriticalRun | None = None  # the critical message that the worker has been given

    def programs(self) -> list[Program]:
        return [program for barrier in self.barriers for program in barrier.programs]
