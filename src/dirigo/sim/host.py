"""What the simulator knows of one worker: its links, what it runs and since when, and what is wrong with it."""

from __future__ import annotations

from typing import final

from dirigo.kernel import Worker, WorkerId
from dirigo.sim.interval import Intervals
from dirigo.sim.network import Link


@final
class Host:
    """One worker in virtual time."""

    __slots__ = ("freezes", "is_applied", "is_noted", "links", "service_s", "slowdowns", "started", "timer_at", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.links: dict[WorkerId, tuple[Link, Host]] = {}
        self.started = 0.0  # of the message that is running
        self.service_s = 0.0
        self.is_applied = False
        self.is_noted = False  # among those to look at, once all events of this instant are in
        self.timer_at = float("inf")  # when it will be looked for timers that are due
        self.freezes = Intervals()
        self.slowdowns: list[tuple[float, float, float]] = []  # (from, to, factor)

    def slowed(self, seconds: float, now: float) -> float:
        for from_t, to_t, factor in self.slowdowns:
            if from_t <= now < to_t:
                seconds *= factor
        return seconds
