"""A source in the simulator: what it emits, and when in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

from dirigo.errors import DirigoError
from dirigo.kernel import Address, CriticalOutput, Output
from dirigo.sim.host import Host

Emission = tuple[float, Output | CriticalOutput]


class ScheduleError(DirigoError):
    """A source was told to do something that it cannot."""


@final
class Feed:
    """A source on one worker, to be told what it emits and when."""

    __slots__ = ("_push", "_schedule", "address", "host", "source")

    def __init__(
        self, push: Callable[[float, Feed, Any], None], host: Host, address: Address, downstreams: tuple[Address, ...]
    ) -> None:
        self._push = push
        self.host = host
        self.address = address
        self.source = host.worker.add_source(address, downstreams)
        self._schedule: Iterator[Emission] | None = None

    def emit_at(self, t: float, output: Output | CriticalOutput) -> None:
        """Emit at a time. If the source then waits for an acknowledgment, the kernel keeps the output until it may go."""
        self._push(t, self, output)

    def play(self, schedule: Iterable[Emission]) -> None:
        """Emit along a schedule in the order of time. It is read as time goes by, so it may be long, or endless."""
        if self._schedule is not None:
            raise ScheduleError(f"{self.address} is playing a schedule already")
        self._schedule = iter(schedule)
        self.advance()

    def advance(self) -> None:
        """Have the next emission of the schedule in the heap; called when the one before it is done."""
        if self._schedule is not None:
            following = next(self._schedule, None)
            if following is None:
                self._schedule = None
            else:
                self._push(following[0], self, following)
