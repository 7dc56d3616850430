"""How much of a job may wait in memory, over all workers, before its sources stop; other jobs do not notice.

Each worker tells the workers that read the job's sources how many bytes wait at its place, whenever that has changed by a
good part of the budget. While more waits than the budget allows, all sources of the job stand still: what waits runs without
them, so they go on soon. While the *states* are larger than the budget, which is the case when one side of a join waits for
the other, only those sources stand still that are ahead of the furthest behind: its watermark frees the states.
"""

from __future__ import annotations

from collections.abc import Iterable

from dirigo.kernel import WorkerId
from dirigo.runtime.transport.wire import Pressure
from dirigo.runtime.worker.row_costs import FunctionCost

TOLD_PARTS = 16  # a change by this part of the budget is told


class Budget:
    """One job's, at one worker."""

    __slots__ = ("_is_over", "_others", "_state_total", "_told", "behind_ms", "limit", "queued", "state_bytes")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.queued = 0  # waiting in this worker's kernel
        self.state_bytes = 0  # of its states here, when last looked at
        self.behind_ms: int | None = None  # event time of the furthest behind of its sources here
        self._told: tuple[int, int, int | None] = (0, 0, None)
        self._others: dict[WorkerId, Pressure] = {}
        self._is_over = False
        self._state_total = 0

    # --- as others should know it --------------------------------------------------------------------------------------

    def news(
        self, job: str, worker: WorkerId, under_way: int, is_time: bool, costs: tuple[FunctionCost, ...] = ()
    ) -> Pressure | None:
        """What to tell the others, if it has changed enough or rides along. ``under_way``: bytes sent, not acknowledged.

        How far the sources are changes all the time, and matters once states are large: it is told from half of the budget
        on, and then when there is time for it.
        """
        waiting = self.queued + under_way
        step = self.limit // TOLD_PARTS
        told, told_state, told_behind = self._told
        moved = abs(waiting - told) > step or (told and not waiting) or abs(self.state_bytes - told_state) > step
        is_crowded = self.state_bytes + self._state_total > self.limit // 2
        if not moved and not costs and not (is_time and is_crowded and self.behind_ms != told_behind):
            return None
        self._told = (waiting, self.state_bytes, self.behind_ms)
        return Pressure(job, worker, waiting, self.state_bytes, self.behind_ms, costs)

    # --- for the sources here ------------------------------------------------------------------------------------------

    def note(self, pressure: Pressure) -> None:
        self._others[pressure.worker] = pressure
        self._state_total = sum(each.state_bytes for each in self._others.values())

    def is_over(self, under_way: int) -> bool:
        """Whether all sources have to wait. Once they do, they wait until half of the budget is free."""
        waiting = self.queued + under_way + sum(each.queued_bytes for each in self._others.values())
        self._is_over = waiting > (self.limit // 2 if self._is_over else self.limit)
        return self._is_over

    def is_ahead(self, newest_ms: int, here: Iterable[int]) -> bool:
        """Whether a source has to wait for those that are behind it in event time, because states pile up."""
        if self.state_bytes + self._state_total <= self.limit:
            return False
        behind = [each.behind_ms for each in self._others.values() if each.behind_ms is not None]
        return newest_ms > min((*here, *behind), default=newest_ms)
