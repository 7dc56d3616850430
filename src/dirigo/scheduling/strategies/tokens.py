"""Token buckets per job and worker: throughput objectives, and fairness by weight.

Each job has a bucket at each worker. A job with a throughput objective gets as many tokens as its share of that throughput
here, a token a row; any other gets its share, by weight, of the worker's time, a token a second. A message that finds tokens
in its job's bucket is served first, with a tight objective before others. One that finds none is sent to another worker, by
chance, and one that finds none there either is served when nobody has anything better to do: the pool is never idle for the
sake of fairness.
"""

from __future__ import annotations

from heapq import heappop, heappush

from dirigo.kernel import JobProperties, Lane, RunnableMessage, SchedulingContext, StrategyExtras, WorkerId
from dirigo.scheduling.costs import Costs
from dirigo.scheduling.deadlines import PATIENCE_S
from dirigo.scheduling.fair_queue import FairQueue
from dirigo.scheduling.lessees import LesseesAllowed, at_random
from dirigo.scheduling.scale_in import QUIET_S, ScaleIn
from dirigo.scheduling.strategy import Strategy

BURST_S = 0.2  # a bucket holds at most what it gets in this time
_WORTH_S = 0.0005  # a message that costs less is sooner done than sent


class _Bucket:
    """The tokens of one job at this worker."""

    __slots__ = ("at", "job", "per_s", "tokens")

    def __init__(self, job: JobProperties, at: float) -> None:
        self.job = job
        self.per_s = 0.0
        self.tokens = 0.0
        self.at = at


class Tokens(Strategy, StrategyExtras):
    """Two queues: what had a token, and the rest."""

    def __init__(self, lessees_max: int = 1_000, *, burst_s: float = BURST_S, quiet_s: float = QUIET_S) -> None:
        self.costs = Costs()
        self.span = LesseesAllowed(lessees_max)
        self.leases = ScaleIn(quiet_s)
        self.burst_s = burst_s
        self._paid: list[tuple[float, int, RunnableMessage]] = []  # a heap, by arrival with the objective as a handicap
        self._count = 0  # first come, first served among equals
        self._unpaid = FairQueue()
        self._buckets: dict[str, _Bucket] = {}
        self._waiting_s = 0.0
        self._workers: tuple[WorkerId, ...] = ()

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        cost_s = self.costs.expected_s(context, message)
        if message.critical or self._pay(context, message, cost_s):
            self._count += 1
            # Not by deadline: whoever has far too much to do is always late, and would always be first.
            objective_s = min(context.job(message).objective.latency_s, PATIENCE_S)
            heappush(self._paid, (context.now + objective_s, self._count, message))
        else:
            worker = self._elsewhere(context, message) if cost_s > _WORTH_S else None
            if worker is not None:
                self.leases.note(message.to, context.now)
                context.add_load(worker, cost_s)
                return worker
            job = context.job(message)
            self._unpaid.push(message, job.id, job.weight, cost_s)
        self._waiting_s += cost_s
        return None

    def _elsewhere(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        """Another worker, by chance, for a message that has come to its home."""
        if message.lane is not Lane.INPUT or context.spec(message.to).home != context.id:  # type: ignore[union-attr]
            return None
        others = self.span.of(context, message.to)
        worker = at_random(context, others) if others else None
        return worker if worker is not None and context.may_forward(message, worker) else None

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        if self._paid:
            message = heappop(self._paid)[2]
        elif self._unpaid:
            message = self._unpaid.pop().message
        else:
            self._waiting_s = 0.0
            return None
        self._waiting_s = max(0.0, self._waiting_s - self.costs.expected_s(context, message))
        return message

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        self.costs.learn(context, message, elapsed_s)

    def _pay(self, context: SchedulingContext, message: RunnableMessage, cost_s: float) -> bool:
        """Take the tokens for a message out of its job's bucket. The last of them may be overdrawn: batches are large."""
        job = context.job(message)
        bucket = self._buckets.get(job.id)
        if bucket is None:
            bucket = self._buckets[job.id] = _Bucket(job, context.now)
            self._share_out(context)
            bucket.tokens = bucket.per_s * self.burst_s
        elif self._workers is not context.workers:
            self._share_out(context)
        most = bucket.per_s * self.burst_s
        bucket.tokens = min(most, bucket.tokens + (context.now - bucket.at) * bucket.per_s)
        bucket.at = context.now
        if bucket.tokens <= 0.0:
            return False
        bucket.tokens -= context.rows(message) if job.objective.rows_per_s is not None else cost_s
        return True

    def _share_out(self, context: SchedulingContext) -> None:
        """Say how many tokens each job gets: here an equal part of what it gets at all workers."""
        self._workers = context.workers
        weights = sum(bucket.job.weight for bucket in self._buckets.values())
        for bucket in self._buckets.values():
            rows_per_s = bucket.job.objective.rows_per_s
            bucket.per_s = bucket.job.weight / weights if rows_per_s is None else rows_per_s / len(context.workers)

    def backlog_s(self, context: SchedulingContext) -> tuple[float, float]:
        return (self._waiting_s, self._waiting_s)

    def wake_at(self) -> float | None:
        return self.leases.wake_at()

    def wake(self, context: SchedulingContext) -> None:
        self.leases.wake(context)

    def forget_job(self, job: str) -> None:
        self._buckets.pop(job, None)
        self._workers = ()  # the others share what it had
        self.costs.forget_job(job)
        self.leases.forget_job(job)
        self.span.forget_job(job)
