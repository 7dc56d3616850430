"""What strategies with objectives have in common: the earliest deadline first, for as long as deadlines mean something.

Deadlines alone end badly under overload: what is late is always first, so that everybody is late, and one job with more work
than there is room for makes all others late. So there are two classes. What is late already, and what a job has beyond its
fair share of the worker, is in the second. It runs when nothing else waits, or if its own objective is tighter than the time
that the first class has left, and that has time to spare. So a burst of an urgent job still goes before a lax job's work.
Within the second class jobs are served fairly, with their objectives as handicaps: whoever is late for once does not stand
behind all that another job has beyond its share.

What a barrier waits for is due sooner than its own deadline says: everything that follows the barrier waits for it as well.
For the same reason it stays in the first class if it is late, due when the barrier should be over; and once that has passed,
it is next, unless other jobs are here whom this would make late. Otherwise a few late messages, always behind those of other
actors that are in time, would make all that follows them late.
"""

from __future__ import annotations

from math import inf

from dirigo.kernel import Address, RunnableMessage, SchedulingContext, StrategyExtras, WorkerId, job_of
from dirigo.scheduling.costs import Costs
from dirigo.scheduling.deadline_queue import DeadlineQueue
from dirigo.scheduling.deadlines import PATIENCE_S, due, is_input_of
from dirigo.scheduling.fair_queue import FairQueue
from dirigo.scheduling.shares import Shares
from dirigo.scheduling.strategy import Strategy

URGENT_S = 1.0
# A barrier should take no more than this share of the objective: it holds up all that follows it.
BARRIER_SHARE = 0.2
STARVED_S = 10.0  # what is late and waits for longer than this takes turns with the first class
_LITTLE_S = 0.01  # what waits in all, up to which nobody needs to know how much of it is urgent


class ByDeadline(Strategy, StrategyExtras):
    """The earliest deadline first; subclasses say what goes elsewhere."""

    def __init__(self) -> None:
        self.costs = Costs()
        self.queue = DeadlineQueue()  # the first class
        self.shares = Shares()
        self.second = FairQueue()
        self._awaited: set[Address] = set()  # actors that a barrier waits for, or has waited for
        self._is_turn_of_second = False
        self._chosen_cost_s = 0.0  # of the message that was chosen last
        self._running_until = 0.0  # when the message that runs is expected to be done

    # --- in ------------------------------------------------------------------------------------------------------------

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        cost_s = self.costs.expected_s(context, message)
        self.keep(context, message, self.due(context, message), cost_s, self.is_entitled(context, message, cost_s))
        return None

    def due(self, context: SchedulingContext, message: RunnableMessage) -> float:
        """When a message should be done: by its deadline, or sooner if a barrier waits for it, or is it."""
        if message.to not in self._awaited:
            return due(message)
        by_barrier = self._by_barrier(context, message)
        return due(message) if by_barrier is None else min(due(message), by_barrier)

    def _by_barrier(self, context: SchedulingContext, message: RunnableMessage) -> float | None:
        """When a barrier should be over that waits for this message, if any does."""
        if message.to not in self._awaited:
            return None
        began = context.barrier_began(message.to)
        if began is None:
            self._awaited.discard(message.to)
            return None
        return self._hurried(context, message.to, began) if context.is_awaited(message) else None

    def is_entitled(self, context: SchedulingContext, message: RunnableMessage, cost_s: float) -> bool:
        """Whether a message is in the first class. A critical one is, because its actor can do nothing else."""
        job, shares, now = context.job(message), self.shares, context.now
        is_paid = shares.take(job.id, job.weight, cost_s, now)
        if not is_paid or (now <= shares.over_until and shares.has_too_much(job.id, now)):
            return message.critical
        return True

    def keep(self, context: SchedulingContext, message: RunnableMessage, due: float, cost_s: float, is_first: bool) -> None:
        if is_first:
            self.queue.push(message, due, cost_s)
        else:  # its job has had its share, so it does not starve
            self._demote(context, message, cost_s, since=inf)

    def _demote(self, context: SchedulingContext, message: RunnableMessage, cost_s: float, since: float) -> None:
        job = context.job(message)
        handicap_s = min(job.objective.latency_s, PATIENCE_S)
        if message.to in self._awaited:
            handicap_s *= BARRIER_SHARE
        self.second.push(message, job.id, job.weight, cost_s, handicap_s=handicap_s, since=since)

    def take_inputs(self, actor: Address) -> list[RunnableMessage]:
        """Keep no longer what has come to an actor from upstream. It has not had its share of the worker yet."""
        first = self.queue.take(lambda message: is_input_of(message, actor))
        second = self.second.take(lambda entry: is_input_of(entry.message, actor))
        paid_s = sum(cost_s for _, cost_s in first) + sum(entry.cost_s for entry in second if entry.is_only_late)
        self.shares.refund(job_of(actor), paid_s)
        return [message for message, _ in first] + [entry.message for entry in second]

    # --- out -----------------------------------------------------------------------------------------------------------

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        queue, now = self.queue, context.now
        while queue.first_due() < now:
            message, cost_s = queue.pop()  # type: ignore[misc]  # there is one, since it is due
            by = self._by_barrier(context, message)
            if by is not None and by > now:
                queue.push(message, by, cost_s)
            elif by is not None and self.shares.is_alone(job_of(message.to)):
                self._chosen_cost_s = cost_s
                return message
            else:
                self._demote(context, message, cost_s, since=now)
        if self.second and self._may_second_run(now):
            entry = self.second.pop()
            self._chosen_cost_s = entry.cost_s
            return entry.message
        first = queue.pop()
        if first is None:
            return None
        message, self._chosen_cost_s = first
        return message

    def _may_second_run(self, now: float) -> bool:
        entry = self.second.first
        spare_s = self.queue.first_due() - now
        if entry.handicap_s < spare_s and now + entry.cost_s <= self.queue.must_begin(now):
            return True  # also if nothing is in the first class
        if now - entry.since > STARVED_S:
            self._is_turn_of_second = not self._is_turn_of_second
            return self._is_turn_of_second
        return False

    def note_barrier(self, context: SchedulingContext, actor: Address) -> None:
        self._awaited.add(actor)
        by, is_awaited = self._hurried(context, actor, context.now), context.is_awaited
        self.queue.hurry(actor, by, is_awaited)
        for entry in self.second.take(
            lambda each: each.is_only_late and each.message.to == actor and is_awaited(each.message)
        ):
            self.queue.push(entry.message, by, entry.cost_s)
        self.second.hurry(actor, BARRIER_SHARE, is_awaited)

    def _hurried(self, context: SchedulingContext, actor: Address, began: float) -> float:
        return began + BARRIER_SHARE * min(context.spec(actor).job.objective.latency_s, PATIENCE_S)

    def pre_apply(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self._running_until = context.now + self._chosen_cost_s

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        self._running_until = 0.0
        self.costs.learn(context, message, elapsed_s)
        latency_s = message.deadline - message.created
        if latency_s < self.queue.tightest_s:
            self.queue.tighten(latency_s)

    # --- told ----------------------------------------------------------------------------------------------------------

    def backlog_s(self, context: SchedulingContext) -> tuple[float, float]:
        now, queue = context.now, self.queue
        left_s = max(0.0, self._running_until - now)
        first_s = queue.backlog_s
        if queue.first_due() > now + URGENT_S:
            urgent_s = 0.0
        elif first_s <= _LITTLE_S:
            urgent_s = first_s
        else:
            urgent_s = queue.ahead_s(now + URGENT_S, now)
        return (left_s + urgent_s, left_s + first_s + self.second.seconds)

    def forget_job(self, job: str) -> None:
        self.costs.forget_job(job)
        self.shares.forget_job(job)
        # What becomes late has to be ranked by its job, and of this one nothing is known any more.
        self.queue.take(lambda message: job_of(message.to) == job)
        self.second.take(lambda entry: job_of(entry.message.to) == job)
        self._awaited = {actor for actor in self._awaited if job_of(actor) != job}
