"""Owns an order in which things are due whose due number often moves on; must not know what the things are."""

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

N = TypeVar("N", int, float)
I = TypeVar("I", bound=Hashable)  # noqa: E741


class Agenda(Generic[I, N]):
    """Things by the number at which they are due.

    A thing that is put off is not moved: it comes up at its first number, and is then put in again. So it costs nothing to
    put it off a thousand times, and the agenda is never longer than the things that are in it (but for those that were
    brought forward).
    """

    __slots__ = ("_counter", "_heap", "_queued")

    def __init__(self) -> None:
        self._heap: list[tuple[N, int, I]] = []
        self._queued: dict[I, N] = {}  # the number at which each will come up
        self._counter = 0

    def note(self, item: I, due: N) -> None:
        """A thing is due at a number, or later than it was noted for."""
        before = self._queued.get(item)
        if before is None or due < before:
            self._push(item, due)

    def _push(self, item: I, due: N) -> None:
        self._queued[item] = due
        self._counter += 1
        heappush(self._heap, (due, self._counter, item))

    def next_due(self) -> N | None:
        """Nothing is due before this number; None if there is nothing at all."""
        return self._heap[0][0] if self._heap else None

    def take_next(self, until: N, due_of: Callable[[I], N | None]) -> tuple[N, list[I]] | None:
        """Take out what is due first, if that is not after ``until``: its number, and all things that have the same.

        ``due_of`` says when a thing is really due; None: no more.
        """
        heap, queued = self._heap, self._queued
        taken: list[I] = []
        number: N | None = None
        while heap and heap[0][0] <= until and (number is None or heap[0][0] == number):
            due, _, item = heappop(heap)
            if queued.get(item) != due:
                continue  # it was brought forward, and has come up before
            really = due_of(item)
            if really is not None and really > due:
                self._push(item, really)
                continue
            del queued[item]
            if really is not None:
                number = due
                taken.append(item)
        return None if number is None else (number, taken)

    def clear(self) -> None:
        self._heap.clear()
        self._queued.clear()

    def __len__(self) -> int:
        return len(self._queued)
