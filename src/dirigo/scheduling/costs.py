"""What messages cost: learned per function from what was executed, as a fixed part and a part per row.

Batches have all sizes, so an average per message would be off whenever the size changes. A line through what was measured,
with the past fading, tells the two parts apart; as long as all batches are alike, the cost per row is taken for all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dirigo.kernel import Address, RunnableMessage, SchedulingContext

_FADING = 0.96  # the weight of what was known, at each new measurement: some 25 messages are remembered
_OUTLIER = 8.0  # a measurement counts for at most so many times the estimate: a paused machine is not a slow function
_SETTLED = 64  # measurements from which on what is as expected is learned from only now and then: it is the hot path
_SAMPLED = 5  # every so many; odd, because what comes in turns would be half known otherwise
_WARM_UP = 8  # measurements before outliers are known as such
_GUESS_S = 0.001  # a message of which nothing is known: enough to tell where much was sent from where little was
_VARIED = 1e-3  # the variance of sizes, relative to their mean squared, from which on there are two parts to tell apart


class Cost:
    """One function, over all its actors of one job."""

    __slots__ = (
        "_rows",
        "_rows_rows",
        "_rows_seconds",
        "_seconds",
        "_weight",
        "count",
        "critical_s",
        "fixed_s",
        "row_s",
        "rows",
    )

    def __init__(self) -> None:
        self.count = 0
        self.rows = 0  # in all
        self.fixed_s = 0.0
        self.row_s = 0.0
        self.critical_s = 0.0
        self._weight = self._rows = self._seconds = self._rows_rows = self._rows_seconds = 0.0

    def learn(self, rows: int, seconds: float) -> None:
        """A message with so many rows took so long."""
        self.count += 1
        self.rows += rows
        if self.count > _WARM_UP:
            usual_s = self.fixed_s + self.row_s * rows
            if self.count > _SETTLED and self.count % _SAMPLED and 0.8 * usual_s < seconds < 1.25 * usual_s:
                return  # nothing new
            # The mean counts too: as long as all batches were alike, an empty one is expected to cost nothing.
            usual_s = max(usual_s, self._seconds / self._weight)
            if usual_s > 0.0:
                seconds = min(seconds, _OUTLIER * usual_s)
        weight = self._weight = self._weight * _FADING + 1.0
        total_rows = self._rows = self._rows * _FADING + rows
        total_s = self._seconds = self._seconds * _FADING + seconds
        squares = self._rows_rows = self._rows_rows * _FADING + rows * rows
        products = self._rows_seconds = self._rows_seconds * _FADING + rows * seconds
        variance = squares * weight - total_rows * total_rows
        if variance > _VARIED * total_rows * total_rows:
            row_s = (products * weight - total_rows * total_s) / variance
            fixed_s = (total_s - row_s * total_rows) / weight
            if row_s < 0.0:
                row_s, fixed_s = 0.0, total_s / weight
            elif fixed_s < 0.0:
                row_s, fixed_s = products / squares, 0.0
        else:
            row_s, fixed_s = (total_s / total_rows if total_rows else 0.0), 0.0
        self.row_s, self.fixed_s = row_s, fixed_s

    def learn_critical(self, seconds: float) -> None:
        self.critical_s += (seconds - self.critical_s) * (1.0 - _FADING if self.critical_s else 1.0)


class Costs:
    """The costs of all functions that one worker has executed."""

    __slots__ = ("_by_actor", "_by_function")

    def __init__(self) -> None:
        self._by_actor: dict[Address, Cost] = {}
        self._by_function: dict[str, Cost] = {}

    def of(self, actor: Address) -> Cost:
        cost = self._by_actor.get(actor)
        if cost is None:
            function = actor.rpartition("/")[0] or actor
            cost = self._by_actor[actor] = self._by_function.setdefault(function, Cost())
        return cost

    def guessed_s(self, actor: Address, rows: int) -> float:
        """How long so many rows will take; something, in any case, for whoever sends to what it never executes itself."""
        cost = self._by_actor.get(actor) or self.of(actor)
        return cost.fixed_s + cost.row_s * rows if cost.count else _GUESS_S

    def expected_s(self, context: SchedulingContext, message: RunnableMessage) -> float:
        """How long a message will take; nothing is known before the first one."""
        cost = self._by_actor.get(message.to) or self.of(message.to)
        if message.critical:
            return cost.critical_s
        return cost.fixed_s + cost.row_s * context.rows(message)

    def learn(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        """Called from ``post_apply``."""
        cost = self._by_actor.get(message.to) or self.of(message.to)
        if message.critical:
            cost.learn_critical(elapsed_s)
        else:
            cost.learn(context.rows(message), elapsed_s)

    def by_row(self) -> Iterator[tuple[str, int, float]]:
        """Functions, how many rows they have seen, and what a row costs."""
        return ((function, cost.rows, cost.row_s) for function, cost in self._by_function.items())

    def forget_job(self, job: str) -> None:
        prefix = f"{job}/"
        for known in (self._by_actor, self._by_function):
            for name in [name for name in known if name.startswith(prefix)]:
                del known[name]
