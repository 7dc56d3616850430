"""Messages in the order of their deadlines, and the answer to: if one more is admitted, who will be late?

A heap keeps the order. Where all that waits can be done before the first of it is due, nobody will be late, and nothing else
is kept. Otherwise, and until that has been so for a while, there is a plan: the costs of what is due in each slice of time,
and for each block of slices their sum, and by when the work in it has to begin so that nobody there is late. Adding up a few
of them tells what a newcomer would wait for, and how much work fits in before those behind it, whatever the number of
messages. The price is precision: what is due in the same slice counts as ahead of the newcomer. Slices are short for what is
due soon and long for what is due late, so jobs with quite different objectives get along.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from dirigo.kernel import Address, RunnableMessage

_Entry = tuple[float, int, RunnableMessage, float]  # (due, number, message, cost)
_SLICES = 256  # the last one is for all that is due later
_LAST = _SLICES - 1
_BLOCK = 16  # slices
_BLOCKS = _SLICES // _BLOCK
_MIDDLE = 128  # from this slice on a slice is 16 steps of time, before it is 1
_FAR = 192  # and from this one on 256
_MIDDLE_STEP = _MIDDLE
_FAR_STEP = _MIDDLE_STEP + (_FAR - _MIDDLE) * 16
_LAST_STEP = _FAR_STEP + (_LAST - _FAR) * 256
_FIRST_STEPS: tuple[int, ...] = (  # slice -> the step at which it begins
    *range(_MIDDLE),
    *range(_MIDDLE_STEP, _FAR_STEP, 16),
    *range(_FAR_STEP, _LAST_STEP, 256),
)
_FOREVER = float("inf")
_PER_OBJECTIVE = 32  # steps that the tightest objective is cut into
_STEP_LEAST_S = 0.001  # but nobody needs to know it better than it takes to send a message elsewhere
_STEP_MOST_S = 10.0 / _PER_OBJECTIVE
_TIGHTER = 0.9  # from this part of the tightest objective on another one is tighter: latencies are sums, and rounded
_CALM = 256  # looks, at least, that had no need of the plan before it is given up
_REGROWTH = 8  # messages per look at the plan that making it anew may cost, beside its slices
_NOTHING_S = 1e-9  # what remains of sums of costs when all have been taken away again


class DeadlineQueue:
    """What waits at a worker."""

    __slots__ = (
        "_base",
        "_begins",
        "_calm",
        "_changed",
        "_costs",
        "_count",
        "_heap",
        "_latest",
        "_looks",
        "_stale_at",
        "_step_s",
        "_sums",
        "backlog_s",
        "tightest_s",
    )

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._count = 0  # first come, first served among equals
        self.backlog_s = 0.0  # seconds of work in all
        self.tightest_s = _FOREVER  # objective
        self._step_s = _STEP_MOST_S
        self._base = 0  # the step that the first slice begins with, counted from the beginning of time
        self._begins: list[float] = []  # slice -> when it begins; empty while there is no plan
        self._costs: list[float] = []  # slice -> seconds of work due in it
        self._sums: list[float] = []  # block -> seconds of work due in it
        self._latest: list[float] = []  # block -> when that work has to begin, as of the last look at it
        self._changed: list[bool] = []  # block -> whether that is to be looked at again
        self._stale_at = 0.0  # from when on too much is due in the long slices
        self._looks = 0  # at the plan since it was made
        self._calm = 0  # how many looks had no need of it

    def __len__(self) -> int:
        return len(self._heap)

    def is_calm_until(self, time: float) -> bool:
        """Whether nothing is due before a time, and nobody had to look at a plan lately."""
        return not self._begins and (not self._heap or time <= self._heap[0][0])

    def tighten(self, latency_s: float) -> None:
        """There is a job with this objective: slices must be short enough for it."""
        if latency_s < _TIGHTER * self.tightest_s:
            self.tightest_s = latency_s
            self._step_s = min(_STEP_MOST_S, max(latency_s / _PER_OBJECTIVE, _STEP_LEAST_S))
            self._drop_plan()

    def push(self, message: RunnableMessage, due: float, cost_s: float) -> None:
        self._count += 1
        heappush(self._heap, (due, self._count, message, cost_s))
        self.backlog_s += cost_s
        if self._begins:
            self._add(self._slice_of(due), cost_s)

    def pop(self) -> tuple[RunnableMessage, float] | None:
        """The message that is due first, and its cost."""
        heap = self._heap
        if not heap:
            return None
        due, _, message, cost_s = heappop(heap)
        self.backlog_s = self.backlog_s - cost_s if heap else 0.0
        if self._begins:
            self._add(self._slice_of(due), -cost_s)
        return message, cost_s

    def hurry(self, actor: Address, by: float, is_meant: Callable[[RunnableMessage], bool]) -> None:
        """Have those messages of an actor that are meant done by a time, if they are due later."""

        def is_later(entry: _Entry) -> bool:
            return entry[2].to == actor and entry[0] > by and is_meant(entry[2])

        heap = self._heap
        if any(map(is_later, heap)):
            self._heap = [(by, *entry[1:]) if is_later(entry) else entry for entry in heap]
            heapify(self._heap)
            self._drop_plan()

    def take(self, is_meant: Callable[[RunnableMessage], bool]) -> list[tuple[RunnableMessage, float]]:
        """Remove some messages, the earliest due first: (message, cost)."""
        taken = sorted(entry for entry in self._heap if is_meant(entry[2]))
        if taken:
            gone = {entry[1] for entry in taken}
            self._heap = [entry for entry in self._heap if entry[1] not in gone]
            heapify(self._heap)
            self.backlog_s = sum(entry[3] for entry in self._heap)
            self._drop_plan()
        return [(message, cost_s) for _, _, message, cost_s in taken]

    def first_due(self) -> float:
        return self._heap[0][0] if self._heap else _FOREVER

    def must_begin(self, now: float) -> float:
        """By when all this has to be begun so that nobody is late."""
        if not self._heap:
            return _FOREVER
        safe = self._heap[0][0] - self.backlog_s
        return safe if safe > now else self._behind(-1, 0.0, now)

    def outlook(self, due: float, begin: float, cost_s: float = 0.0) -> tuple[float, float]:
        """For one more that is due then, and takes so long: the seconds of work ahead of it, and by when the work behind it
        has to begin.

        ``begin`` is when the queue is next worked on. The second figure counts all that is ahead of those behind, the
        newcomer excepted: if it takes longer than what is left from ``begin`` until then, it makes somebody late. Where all
        that waits and the newcomer can be done before anything is due, both figures are only as good as that: the first is
        all that waits, and nobody is behind.
        """
        heap = self._heap
        if not heap:
            return 0.0, _FOREVER
        if begin + self.backlog_s + cost_s <= min(due, heap[0][0]):
            if self._begins:
                self._calm += 1
                if self._calm > _CALM and self._calm > len(heap):
                    self._drop_plan()
            return self.backlog_s, _FOREVER
        return self.precise_outlook(due, begin)

    def precise_outlook(self, due: float, now: float) -> tuple[float, float]:
        """The same, to a slice."""
        ahead_s = self.ahead_s(due, now)
        return ahead_s, self._behind(self._slice_of(due), ahead_s, now)

    def ahead_s(self, due: float, now: float) -> float:
        """The seconds of work ahead of one more that is due then, to a slice."""
        self._look(now)
        index = self._slice_of(due)
        block = index // _BLOCK
        return sum(self._sums[:block]) + sum(self._costs[block * _BLOCK : index + 1])

    # --- the plan ------------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """See to it that there is a plan, and that it is precise about the near future."""
        self._calm = 0
        self._looks += 1
        if not self._begins or (now > self._stale_at and self._looks * _REGROWTH + _SLICES > len(self._heap)):
            self._make(now)

    def _behind(self, index: int, ahead_s: float, now: float) -> float:
        """When the work in the slices after one has to begin, if that up to it is done first."""
        if not self._begins:
            self._look(now)
        costs, begins, sums = self._costs, self._begins, self._sums
        behind = _FOREVER
        first_block = (index + _BLOCK) // _BLOCK
        for later in range(index + 1, first_block * _BLOCK):
            if cost_s := costs[later]:
                ahead_s += cost_s
                if begins[later] - ahead_s < behind:
                    behind = begins[later] - ahead_s
        latest, changed = self._latest, self._changed
        for block in range(first_block, _BLOCKS):
            if sum_s := sums[block]:
                if changed[block]:
                    changed[block] = False
                    latest[block] = self._latest_of(block)
                if latest[block] - ahead_s < behind:
                    behind = latest[block] - ahead_s
                ahead_s += sum_s
        return behind

    def _latest_of(self, block: int) -> float:
        costs, begins = self._costs, self._begins
        ahead_s, latest = 0.0, _FOREVER
        for index in range(block * _BLOCK, (block + 1) * _BLOCK):
            if cost_s := costs[index]:
                ahead_s += cost_s
                if begins[index] - ahead_s < latest:
                    latest = begins[index] - ahead_s
        return latest

    def _slice_of(self, due: float) -> int:
        if due == _FOREVER:
            return _LAST
        step = int(due / self._step_s) - self._base
        if step < _MIDDLE_STEP:
            return max(step, 0)
        if step < _FAR_STEP:
            return _MIDDLE + (step - _MIDDLE_STEP >> 4)
        return _FAR + (step - _FAR_STEP >> 8) if step < _LAST_STEP else _LAST

    def _add(self, index: int, cost_s: float) -> None:
        costs, sums, block = self._costs, self._sums, index // _BLOCK
        sum_s = sums[block] + cost_s
        sums[block] = sum_s if sum_s > _NOTHING_S else 0.0
        cost_s += costs[index]
        costs[index] = cost_s if cost_s > _NOTHING_S else 0.0
        self._changed[block] = True

    def _make(self, now: float) -> None:
        """Make a plan, with its first slice at the present: what is overdue is all in it."""
        step_s = self._step_s
        base = self._base = int(now / step_s)
        begins = self._begins = [(base + step) * step_s for step in _FIRST_STEPS]
        begins.append(_FOREVER)
        self._stale_at = begins[_MIDDLE // 2]
        self._looks = 0
        costs = self._costs = [0.0] * _SLICES
        slice_of, middle = self._slice_of, begins[_MIDDLE]
        for due, _, _, cost_s in self._heap:  # a call for each would be most of the time
            if due < now:
                costs[0] += cost_s
            elif due < middle:
                costs[int(due / step_s) - base] += cost_s
            else:
                costs[slice_of(due)] += cost_s
        self._sums = [sum(costs[first : first + _BLOCK]) for first in range(0, _SLICES, _BLOCK)]
        self._latest = [_FOREVER] * _BLOCKS
        self._changed = [True] * _BLOCKS

    def _drop_plan(self) -> None:
        self._begins = []
        self._calm = 0
