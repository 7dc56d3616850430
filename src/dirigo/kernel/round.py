"""One round of an actor: what it executes, who takes part, and how far it is. The lessor alone changes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dirigo.kernel.barrier import Barrier, WaitingProgram
from dirigo.kernel.interface.address import Address, WorkerId
from dirigo.kernel.interface.errand import ErrandKind
from dirigo.kernel.interface.function import States
from dirigo.kernel.interface.message import CriticalOutput, CriticalRun, Output, SyncReply

if TYPE_CHECKING:
    from dirigo.kernel.instance import Instance


class Round:
    """One round: the barriers it executes, the lessees that take part, and how far it is."""

    __slots__ = (
        "agenda",
        "barriers",
        "is_apart",
        "lessees",
        "number",
        "replies",
        "scales_in",
        "task",
        "unacknowledged",
        "undrained",
        "view",
    )

    def __init__(self, number: int, barriers: list[Barrier], lessees: tuple[WorkerId, ...], scales_in: bool) -> None:
        self.number = number
        self.barriers = barriers
        self.lessees = lessees
        self.scales_in = scales_in  # this round ends all leases
        self.replies: dict[WorkerId, SyncReply] = {}
        self.undrained = self.programs()  # whose dependencies at the lessor were not all done when last looked at
        self.unacknowledged = set(lessees)  # lessees whose receipt of SYNC_REQUEST is not known
        self.agenda: deque[Output | CriticalOutput | CriticalRun] = deque()  # what is left to do in CRITICAL
        self.task: CriticalRun | None = None  # the critical message that the worker has been given
        self.is_apart = False  # the host has its states in hand: the round waits for that
        self.view: tuple[Any] | None = None  # what the lessees may read after it, once that is known

    def cuts_of(
        self, worker: WorkerId, revoked: Mapping[tuple[Address, WorkerId], int]
    ) -> tuple[tuple[Address, WorkerId, int], ...]:
        """The cuts that concern one lessee; ``revoked``: the last ids on channels to it that were taken back."""
        cuts: dict[tuple[Address, WorkerId], int] = {}
        for program in self.programs():
            for sender, last in program.at_lessees.get(worker, ()):
                cuts[program.message.sender, sender] = last
        if self.scales_in:
            for key, last in revoked.items():
                cuts[key] = max(last, cuts.get(key, 0))
        return tuple((address, sender, last) for (address, sender), last in sorted(cuts.items()))

    def merge_into(self, states: States) -> None:
        """Put the partial states together, in the order of the workers."""
        for worker in self.lessees:
            states.merge(self.replies[worker].partial)

    def handle_states(
        self, lessor: Instance, kind: ErrandKind, work: Callable[[], Any], done: Callable[[Any], None]
    ) -> bool:
        """Do something with the lessor's states; False if its host does so elsewhere, for which the round waits."""

        def back(result: Any) -> None:
            self.is_apart = False
            done(result)

        self.is_apart = True
        return lessor.handle_states(kind, work, back)

    def note_view(self, view: Any) -> None:
        self.view = (view,)

    def put_behind_outputs(self, output: CriticalOutput) -> bool:
        """Have a critical message leave behind the outputs that wait in the agenda; False if none does."""
        waiting = [(index, item) for index, item in enumerate(self.agenda) if not isinstance(item, CriticalRun)]
        if not waiting:
            return False
        # Nothing follows an end.
        if not any(isinstance(item, CriticalOutput) and item.to == output.to and item.final for _, item in waiting):
            self.agenda.insert(waiting[-1][0] + 1, output)
        return True

    def programs(self) -> list[WaitingProgram]:
        return [program for barrier in self.barriers for program in barrier.programs]
