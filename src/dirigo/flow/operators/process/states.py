"""What one instance of a user's function keeps: its states and its timers, by key, and the function bound to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from math import inf
from typing import Any, NamedTuple

from dirigo.flow.api.function import Function
from dirigo.flow.api.function_context import FunctionContext
from dirigo.flow.operators.process.timers import Entries, Timers, TimersCapture
from dirigo.flow.rows.held_bytes import held_bytes
from dirigo.state import KeyedCapture, KeyedPartial, KeyedStateSet, bind


class ProcessPartial(NamedTuple):
    """What moves."""

    states: KeyedPartial
    event_timers: Entries[int]
    clock_timers: Entries[float]
    wake_s: float


class ProcessCapture(NamedTuple):
    """What a snapshot keeps."""

    states: KeyedCapture | None
    event_timers: TimersCapture | None
    clock_timers: TimersCapture | None
    wake_s: float


class ProcessStates:
    """The managed states and timers of one instance."""

    __slots__ = ("clock_timers", "context", "event_timers", "function", "states", "wake_s")

    def __init__(self, function: Function, states: KeyedStateSet) -> None:
        self.function = function
        self.states = states
        self.event_timers: Timers[int] = Timers()
        self.clock_timers: Timers[float] = Timers()
        self.wake_s = inf  # the earliest wake-up that the kernel knows of; it moves with the partial state, as that does
        self.context: FunctionContext | None = None
        bind(function, states)

    def keys(self) -> set[Hashable]:
        """All keys that hold a state or a timer."""
        return self.states.keys() | self.event_timers.keys() | self.clock_timers.keys()

    def peek(self) -> ProcessPartial:
        """What there is, left where it is: to be read only."""
        return ProcessPartial(self.states.peek(), self.event_timers.entries, self.clock_timers.entries, self.wake_s)

    def take(self) -> ProcessPartial:
        wake_s, self.wake_s = self.wake_s, inf
        return ProcessPartial(self.states.take(), self.event_timers.take(), self.clock_timers.take(), wake_s)

    def merge(self, partial: ProcessPartial) -> None:
        self.states.merge(partial.states)
        self.event_timers.merge(partial.event_timers)
        self.clock_timers.merge(partial.clock_timers)
        self.wake_s = min(self.wake_s, partial.wake_s)

    def _has_timers(self) -> bool:
        return bool(self.event_timers.entries or self.clock_timers.entries)

    def is_identity(self) -> bool:
        return self.states.is_identity() and not self._has_timers() and self.wake_s == inf

    def is_plain(self) -> bool:
        """Whether there is surely no object of the user's in it."""
        return self.states.is_plain() and not self._has_timers()

    def is_replicated(self) -> bool:
        return self.states.is_replicated()

    def size_bytes(self) -> int:
        timers = self.event_timers.held_bytes() + self.clock_timers.held_bytes() if self._has_timers() else 0
        return self.states.size_bytes() + timers

    def held_bytes(self) -> int:
        held = sum(held_bytes(value) for value in self.states.values())
        return held + self.event_timers.held_bytes() + self.clock_timers.held_bytes()

    def capture(self) -> ProcessCapture | None:
        parts = (self.states.capture(), self.event_timers.capture(), self.clock_timers.capture())
        return None if parts == (None, None, None) and self.wake_s == inf else ProcessCapture(*parts, self.wake_s)

    def restore(self, captured: ProcessCapture) -> None:
        """The kernel has its wake-up again, too."""
        self.states.restore(captured.states)
        self.event_timers.restore(captured.event_timers)
        self.clock_timers.restore(captured.clock_timers)
        self.wake_s = captured.wake_s

    def restore_share(
        self, captures: Sequence[ProcessCapture], belongs: Callable[[Collection[Hashable]], Iterable[Hashable]]
    ) -> None:
        """Hold what other partitions have held of the keys that belong here, of which no two had the same."""
        for captured in captures:
            self.states.restore_share(captured.states, belongs)
            self.event_timers.restore_share(captured.event_timers, belongs)
            self.clock_timers.restore_share(captured.clock_timers, belongs)
            self.wake_s = min(self.wake_s, captured.wake_s)

    def view(self) -> Any:
        return self.states.view()

    def install_view(self, view: Any) -> None:
        self.states.install_view(view)
