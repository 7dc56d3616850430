"""The timers of one instance of a function. They are part of its partial state: they move with it, and are combined.

What the kernel knows is one wake-up, at which the function looks at what is due.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Generic, NamedTuple, TypeVar

from dirigo.flow.rows.held_bytes import held_bytes
from dirigo.flow.rows.keys import in_order
from dirigo.state import Agenda, capture_of, restored

EVENT, CLOCK = 0, 1  # the two times, as axes that lifetimes are measured on; both in milliseconds

Number = TypeVar("Number", int, float)
Name = str | int  # a timer without a name gets a number
Entries = dict[tuple[Hashable, Name], tuple[Number, Any]]


class TimersCapture(NamedTuple):
    """What a snapshot keeps of them."""

    entries: Any
    numbered: int


class Timers(Generic[Number]):
    """The timers by one kind of time: by key and name, when each is due and with what payload."""

    __slots__ = ("_agenda", "_numbered", "entries")

    def __init__(self) -> None:
        self.entries: Entries[Number] = {}
        self._agenda: Agenda[tuple[Hashable, Name], Number] = Agenda()
        self._numbered = 0

    def set(self, key: Hashable, name: Name | None, due: Number, payload: Any, *, replaces: bool) -> None:
        """Without ``replaces``, of two timers with one name the later one counts, whoever sets which, and when."""
        if name is None:
            self._numbered += 1
            name = self._numbered
        item = (key, name)
        before = self.entries.get(item)
        if before is None or replaces or due > before[0]:
            self.entries[item] = (due, payload)
            self._agenda.note(item, due)

    def delete(self, key: Hashable, name: str) -> None:
        self.entries.pop((key, name), None)

    def take_next(self, until: Number) -> tuple[Number, list[tuple[Hashable, Name]]] | None:
        """The time that comes first, if it is not after ``until``, and whose timers are due then: see ``pop``."""
        taken = self._agenda.take_next(until, self._due)
        return None if taken is None else (taken[0], in_order(taken[1]))

    def pop(self, item: tuple[Hashable, Name], due: Number) -> tuple[Any] | None:
        """The payload of a timer that is due; None if it was deleted or put off meanwhile."""
        entry = self.entries.get(item)
        if entry is None or entry[0] != due:
            return None
        del self.entries[item]
        return (entry[1],)

    def _due(self, item: tuple[Hashable, Name]) -> Number | None:
        entry = self.entries.get(item)
        return None if entry is None else entry[0]

    def next_due(self) -> Number | None:
        """None is due before this time; None if there are none."""
        return self._agenda.next_due() if self.entries else None

    def keys(self) -> AbstractSet[Hashable]:
        return {key for key, _ in self.entries}

    def take(self) -> Entries[Number]:
        entries, self.entries = self.entries, {}
        self._agenda.clear()
        return entries

    def merge(self, entries: Entries[Number]) -> None:
        for (key, name), (due, payload) in entries.items():
            self.set(key, name if isinstance(name, str) else None, due, payload, replaces=False)

    def capture(self) -> TimersCapture | None:
        return TimersCapture(capture_of(self.entries), self._numbered) if self.entries or self._numbered else None

    def restore(self, captured: TimersCapture | None) -> None:
        """Have the timers that were captured, with their numbers: they may decide which of two comes first."""
        if captured is None:
            return
        self.entries, self._numbered = restored(captured.entries), captured.numbered
        for item, (due, _) in self.entries.items():
            self._agenda.note(item, due)

    def restore_share(
        self, captured: TimersCapture | None, belongs: Callable[[Collection[Hashable]], Iterable[Hashable]]
    ) -> None:
        """Add the timers of those keys of another partition that belong here."""
        if captured is None:
            return
        entries = restored(captured.entries)
        own = set(belongs({key for key, _ in entries}))
        for item, (due, payload) in entries.items():
            if item[0] in own:
                self.entries[item] = (due, payload)
                self._agenda.note(item, due)
        self._numbered = max(self._numbered, captured.numbered)  # so that no timer to come has the number of one of these

    def held_bytes(self) -> int:
        return held_bytes(self.entries)


class Wake(NamedTuple):
    """The kernel's timer: look at what is due."""

    due_s: float


class Alone(NamedTuple):
    """A key's wish to run alone."""

    key: Hashable
    payload: Any
