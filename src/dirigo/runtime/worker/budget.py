"""How much of a job may wait in memory, over all workers, before its sources stop; other jobs do not notice.

Each worker tells the workers that read the job's sources how many bytes wait at its place, whenever that has changed by a
good part of the budget. While more waits than the budget allows, all sources of the job stand still: what waits runs without
them, so they go on soon.

Sources that are ahead of the furthest behind in event time stand still earlier, from a quarter of the budget on. Otherwise
one could fill the budget again and again, as its own worker is the first to know that there is room, and the furthest
behind, without whose watermark there are no results, would never be read. They also stand still while the *states* are
larger than the budget, as when one side of a join waits for the other: the watermark of the furthest behind frees them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dirigo.flow.event_time.watermark import BEGINNING
from dirigo.kernel import WorkerId
from dirigo.runtime.transport.wire import Pressure
from dirigo.runtime.worker.row_costs import FunctionCost

TOLD_PARTS = 16  # a change by this part of the budget is told
# From this part of the budget on, a source that is ahead leaves the rest to the one that is furthest behind. That one goes
# on once half is free, and what it was told may be off: so a quarter, and not half.
AHEAD_PARTS = 4


class Budget:
    """One job's, at one worker."""

    __slots__ = (
        "_is_over",
        "_others",
        "_queued_total",
        "_state_total",
        "_told",
        "behind_ms",
        "limit",
        "queued",
        "state_bytes",
    )

    def __init__(self, limit: int, others: Iterable[WorkerId] = ()) -> None:
        """``others``: workers where sources of the job are read too. Until one tells of its own, they count as behind."""
        self.limit = limit
        self.queued = 0  # waiting in this worker's kernel
        self.state_bytes = 0  # of its states here, when last looked at
        self.behind_ms: int | None = None  # event time of the furthest behind of its sources here
        self._told: tuple[int, int, int | None] = (0, 0, BEGINNING)
        self._others = {worker: Pressure("", worker, 0, 0, BEGINNING) for worker in others}
        self._is_over = False
        self._queued_total = self._state_total = 0  # of the others

    # --- as others should know it --------------------------------------------------------------------------------------

    def news(
        self, job: str, worker: WorkerId, under_way: int, is_time: bool, costs: tuple[FunctionCost, ...] = ()
    ) -> Pressure | None:
        """What to tell the others, if it has changed enough or rides along. ``under_way``: bytes sent, not acknowledged.

        How far the sources are changes all the time, and matters once much waits or states are large: it is told once, and
        then from half of what matters on, when there is time for it.
        """
        waiting = self.queued + under_way
        step = self.limit // TOLD_PARTS
        told, told_state, told_behind = self._told
        moved = abs(waiting - told) > step or (told and not waiting) or abs(self.state_bytes - told_state) > step
        has_gone_on = is_time and self.behind_ms != told_behind and (told_behind == BEGINNING or self._is_crowded(waiting))
        if not moved and not costs and not has_gone_on:
            return None
        self._told = (waiting, self.state_bytes, self.behind_ms)
        return Pressure(job, worker, waiting, self.state_bytes, self.behind_ms, costs)

    def _is_crowded(self, waiting: int) -> bool:
        """Whether it may matter soon to others how far the sources here are."""
        all_waiting = waiting + self._queued_total
        return 2 * AHEAD_PARTS * all_waiting > self.limit or self.state_bytes + self._state_total > self.limit // 2

    # --- for the sources here ------------------------------------------------------------------------------------------

    def note(self, pressure: Pressure) -> None:
        self._others[pressure.worker] = pressure
        self._queued_total = sum(each.queued_bytes for each in self._others.values())
        self._state_total = sum(each.state_bytes for each in self._others.values())

    def is_over(self, under_way: int) -> bool:
        """Whether all sources have to wait. Once they do, they wait until half of the budget is free."""
        waiting = self.queued + under_way + self._queued_total
        self._is_over = waiting > (self.limit // 2 if self._is_over else self.limit)
        return self._is_over

    def is_ahead(self, newest_ms: int, here: Iterable[int], under_way: int) -> bool:
        """Whether a source has to wait for those that are behind it in event time, because messages or states pile up."""
        waiting = self.queued + under_way + self._queued_total
        if AHEAD_PARTS * waiting <= self.limit and self.state_bytes + self._state_total <= self.limit:
            return False
        behind = [each.behind_ms for each in self._others.values() if each.behind_ms is not None]
        return newest_ms > min((*here, *behind), default=newest_ms)
