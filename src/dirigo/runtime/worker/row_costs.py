"""What a row of a job costs, over all workers: for those that read its sources, and cut rows into messages.

A worker sees only what it executes itself. The one that reads a source may never run the function that is dear, or only a
small part of it. So the workers tell those where the job has sources what they have seen.
"""

from __future__ import annotations

from dirigo.kernel import Address, WorkerId
from dirigo.scheduling.costs import Costs

FunctionCost = tuple[str, int, float]  # (function, rows, seconds per row)

_MORE_ROWS = 1.5  # times as many as were told are worth telling
_OTHER_COST = 1.2


class RowCosts:
    """One job's, at one worker."""

    __slots__ = ("_costs", "_others", "_told")

    def __init__(self) -> None:
        self._costs = Costs()
        self._told: dict[str, FunctionCost] = {}
        self._others: dict[WorkerId, tuple[FunctionCost, ...]] = {}

    def learn(self, actor: Address, rows: int, elapsed_s: float) -> None:
        self._costs.of(actor).learn(rows, elapsed_s)

    def dearest_row_s(self) -> float:
        """What a row that comes in costs at most, in all functions.

        Fixed costs do not count, because they do not shrink with a message; and a function that sees few rows, behind a
        filter or an aggregate, costs a row that comes in the less.
        """
        rows: dict[str, int] = {}
        seconds: dict[str, float] = {}
        for told in ((*self._costs.by_row(),), *self._others.values()):
            for function, its_rows, row_s in told:
                rows[function] = rows.get(function, 0) + its_rows
                seconds[function] = seconds.get(function, 0.0) + its_rows * row_s
        most = max(rows.values(), default=0)
        return max(seconds.values()) / most if most else 0.0

    # --- between workers -----------------------------------------------------------------------------------------------

    def news(self) -> tuple[FunctionCost, ...]:
        """What to tell the others: all of it, if something has changed much, otherwise nothing."""
        costs = tuple(self._costs.by_row())
        if not any(self._is_news(cost) for cost in costs):
            return ()
        self._told = {cost[0]: cost for cost in costs}
        return costs

    def _is_news(self, cost: FunctionCost) -> bool:
        function, rows, row_s = cost
        _, told_rows, told_s = self._told.get(function, (function, 0, 0.0))
        return rows > _MORE_ROWS * told_rows or row_s > _OTHER_COST * told_s or told_s > _OTHER_COST * row_s

    def note(self, worker: WorkerId, costs: tuple[FunctionCost, ...]) -> None:
        """Another worker has told something: it replaces what that one told before."""
        self._others[worker] = costs
