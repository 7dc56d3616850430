"""What the simulator knows of one worker: its links, what it runs and since when, and what is wrong with it."""

from __future__ import annotations

from collections import defaultdict
from typing import final

from dirigo.kernel import Message, StrategyExtras, Worker, WorkerId
from dirigo.kernel.worker_loads import TELL_EVERY_S, ToldLoad
from dirigo.sim.interval import Intervals
from dirigo.sim.network import SimulatedLink

_GOLDEN = 0.618  # multiples of it, modulo 1, are nowhere near to each other


@final
class Told:
    """A message on its way to another worker, with what its sender had waiting when it was sent; or that alone."""

    __slots__ = ("by", "load", "message")

    def __init__(self, message: Message | None, by: WorkerId, load: tuple[float, float]) -> None:
        self.message = message
        self.by = by
        self.load = load


@final
class Arriving:
    """A message, or what is told along with it, that its receiver still has to take in, which takes some time of its own."""

    __slots__ = ("item",)

    def __init__(self, item: Message | Told) -> None:
        self.item = item


@final
class Host:
    """One worker in virtual time."""

    __slots__ = (
        "fetched_at",
        "freezes",
        "is_applied",
        "is_noted",
        "links",
        "loads_told",
        "may_wake",
        "service_s",
        "slowdowns",
        "started",
        "tells_at",
        "tells_load",
        "timer_at",
        "worker",
    )

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        kind = type(worker.extras)  # most need neither, and are spared being asked for every message
        self.may_wake = kind.wake_at is not StrategyExtras.wake_at
        self.tells_load = kind.backlog_s is not StrategyExtras.backlog_s
        self.loads_told: defaultdict[WorkerId, ToldLoad] = defaultdict(ToldLoad)
        self.tells_at = float("-inf")  # when it sees, or has seen, whether its load is news for others
        self.links: dict[WorkerId, tuple[SimulatedLink, Host]] = {}
        self.started = 0.0  # of the message that is running
        self.service_s = 0.0
        self.is_applied = False
        self.is_noted = False  # among those to look at, once all events of this instant are in
        self.fetched_at = 0.0  # when the last message that is on its way here will have been taken in
        self.timer_at = float("inf")  # when it will be looked for timers that are due
        self.freezes = Intervals()
        self.slowdowns: list[tuple[float, float, float]] = []  # (from, to, factor)

    def slowed(self, seconds: float, now: float) -> float:
        for from_t, to_t, factor in self.slowdowns:
            if from_t <= now < to_t:
                seconds *= factor
        return seconds

    def next_tick(self, now: float) -> float:
        """When it sees again whether its load is news. Workers do so at moments of their own."""
        phase_s = self.worker.id * _GOLDEN % 1.0 * TELL_EVERY_S
        # Rounding must not put it into the past, where nothing can be scheduled.
        return max(now, phase_s + ((now - phase_s) // TELL_EVERY_S + 1) * TELL_EVERY_S)
