"""The simulated network: how long each message is under way, in what order messages come out, and what goes wrong.

A ``Network`` is a description and can serve many runs; what one run remembers of a link is in ``SimulatedLink``. Nothing is
ever lost: loss is the business of whoever resends, and the kernel is never shown a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from random import Random

from dirigo.kernel import WorkerId
from dirigo.sim.delay import Delay, constant, uniform
from dirigo.sim.interval import Intervals

LinkName = tuple[WorkerId, WorkerId]  # (from, to)


class DeliveryOrder(Enum):
    """What the network promises about order. The protocol must be content with NONE."""

    CHANNEL = "first in, first out per link and lane; control overtakes data and the reverse"
    NONE = "none: every message takes its own time, and ties are broken at random"


class SimulatedLink:
    """One direction between two workers, during one run. Data and control travel on lanes of their own."""

    __slots__ = ("_clogs", "_delay", "_is_ordered", "_last", "_rng")

    def __init__(self, delay: Delay, order: DeliveryOrder, clogs: Intervals, rng: Random) -> None:
        self._delay = delay
        self._is_ordered = order is DeliveryOrder.CHANNEL
        self._clogs = clogs
        self._rng = rng
        self._last = [0.0, 0.0]  # when the last message on each lane comes out

    def arrival(self, lane: int, now: float) -> float:
        """When a message that enters a lane now comes out of it."""
        t = now + self._delay(self._rng)
        if t < now:
            raise ValueError(f"a delay cannot be negative, but a message that was sent at {now} arrives at {t}")
        if self._is_ordered:
            last = self._last
            if t < last[lane]:
                t = last[lane]
            if self._clogs:
                t = self._clogs.open_at(t)
            last[lane] = t
        elif self._clogs:
            t = self._clogs.open_at(t)
        return t


class Network:
    """All links between all workers, and from each worker to itself."""

    def __init__(
        self,
        delay: Delay | float = 0.001,
        *,
        local: Delay | float = 0.0,
        order: DeliveryOrder = DeliveryOrder.CHANNEL,
        links: Mapping[LinkName, Delay | float] | None = None,
        duplicates: float = 0.0,
    ) -> None:
        if not 0.0 <= duplicates <= 1.0:
            raise ValueError(f"the probability of a duplicate must be between 0 and 1, but is {duplicates}")
        self.order = order
        self.duplicates = duplicates  # the probability that a control message comes twice
        self._delay = _as_delay(delay)
        self._local = _as_delay(local)
        self._links = {name: _as_delay(each) for name, each in (links or {}).items()}
        self._clogs: list[tuple[LinkName | WorkerId, float, float]] = []
        self._clogs_of: dict[LinkName, Intervals] = {}

    def clog(self, where: LinkName | WorkerId, from_t: float, to_t: float) -> None:
        """Let nothing out of a link, or out of any link from and to a worker, in an interval; what comes due then waits.

        A worker's link to itself is clogged only by name. A clog concerns what is sent after this call.
        """
        Intervals().add(from_t, to_t)  # refuses what is no interval, even if there is no such link yet
        self._clogs.append((where, from_t, to_t))
        for name, intervals in self._clogs_of.items():
            if _concerns(where, name):
                intervals.add(from_t, to_t)

    def _intervals(self, name: LinkName) -> Intervals:
        intervals = self._clogs_of.get(name)
        if intervals is None:
            intervals = self._clogs_of[name] = Intervals()
            for where, from_t, to_t in self._clogs:
                if _concerns(where, name):
                    intervals.add(from_t, to_t)
        return intervals

    def link(self, origin: WorkerId, destination: WorkerId, rng: Random) -> SimulatedLink:
        """A fresh link for one run."""
        name = (origin, destination)
        delay = self._links.get(name, self._local if origin == destination else self._delay)
        return SimulatedLink(delay, self.order, self._intervals(name), rng)


def disorderly_network() -> Network:
    """Every message takes its own time, control messages come twice now and then."""
    return Network(delay=uniform(0.0001, 0.02), order=DeliveryOrder.NONE, duplicates=0.05)


def _as_delay(delay: Delay | float) -> Delay:
    return delay if callable(delay) else constant(delay)


def _concerns(where: LinkName | WorkerId, name: LinkName) -> bool:
    if isinstance(where, tuple):
        return where == name
    return where in name and name[0] != name[1]
