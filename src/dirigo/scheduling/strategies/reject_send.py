"""REJECTSEND, driven by objectives: everything goes to the lessor, which forwards what it is bound to be late with.

A message is bound to be late when what runs now, what is due before it, and the message itself take longer than is left.
Then it goes to the lessee that is expected to be done with it first, if that is sooner than here. It is unwelcome as well
when it would make somebody late who is due after it; then it goes to a lessee that will have it done in time. Priorities are
deadlines, at lessors and lessees alike.
"""

from __future__ import annotations

from collections.abc import Collection

from dirigo.kernel import Address, Lane, RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling.deadlines import due
from dirigo.scheduling.lessees import LesseesAllowed
from dirigo.scheduling.scale_in import QUIET_S, ScaleIn
from dirigo.scheduling.strategies.by_deadline import URGENT_S, ByDeadline

LESSEES_MAX = 16  # the paper's figure up to which collecting partial states costs the same
HOP_S = 0.001  # what it takes to have a message elsewhere
# Behind this operator there are others, and barriers: a message that takes all the time it has makes its result late.
PATIENCE = 0.1
# What another worker has to save of the time until a message is done, if there is no need to forward it.
_GAIN = 0.5
_INPUT, _FORWARD = Lane.INPUT, Lane.FORWARD


class RejectSend(ByDeadline):
    """Forwards at the lessor, one message at a time.

    ``lessees_max``: at how many other workers an actor may run. ``patience``: the share of the time until its deadline that
    a message may spend here before another worker is tried, which has to have it done sooner; in half of that if it is not
    leased to yet. ``try_only``: a lessee hands back what it would be late with as well, and the lessor runs it; otherwise
    lessees keep what they get.
    ``quiet_s``: after how many seconds without forwarding an actor's leases end.
    """

    def __init__(
        self,
        lessees_max: int = LESSEES_MAX,
        *,
        patience: float = PATIENCE,
        try_only: bool = False,
        quiet_s: float = QUIET_S,
    ) -> None:
        super().__init__()
        self.patience = patience
        self.span = LesseesAllowed(lessees_max)
        self.try_only = try_only
        self.leases = ScaleIn(quiet_s)

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        cost_s = self.costs.expected_s(context, message)
        deadline = self.due(context, message)
        is_first = self.is_entitled(context, message, cost_s)
        if is_first:
            now, queue = context.now, self.queue
            begin = max(self._running_until, now)
            done = begin + queue.backlog_s + cost_s
            # The quick way: all that waits can be done before anything is due, this included, and soon.
            if done - now <= self.patience * (deadline - now) and queue.is_calm_until(done):
                queue.push(message, deadline, cost_s)
                return None
        if not message.critical and (message.lane is _INPUT or (self.try_only and message.lane is _FORWARD)):  # type: ignore[union-attr]
            worker = self._sooner(context, message, deadline, cost_s, is_first)
            if worker is not None:
                return worker
        self.keep(context, message, deadline, cost_s, is_first)
        return None

    def _sooner(
        self, context: SchedulingContext, message: RunnableMessage, deadline: float, cost_s: float, is_first: bool
    ) -> WorkerId | None:
        """Another worker for a message that would wait here for too long, if it would not there."""
        now = context.now
        begin = max(now, self._running_until)
        if deadline < now or not is_first:  # it would run when others have time to spare
            done = begin + self.queue.backlog_s + self.second.seconds + cost_s
            return self._elsewhere(context, message, cost_s, done, is_first=False, is_needless=True)
        ahead_s, behind = self.queue.outlook(deadline, begin, cost_s)
        done = begin + ahead_s + cost_s
        if done > deadline:
            return self._elsewhere(context, message, cost_s, done)
        if begin < behind < begin + cost_s:  # whoever is late already (behind < begin) cannot be made late
            return self._elsewhere(context, message, cost_s, deadline)
        if done - now > self.patience * (deadline - now):
            done = begin + self.queue.ahead_s(deadline, now) + cost_s
            if done - now > self.patience * (deadline - now):
                return self._elsewhere(context, message, cost_s, done, is_needless=True)
        return None

    def _elsewhere(
        self,
        context: SchedulingContext,
        message: RunnableMessage,
        cost_s: float,
        before: float,
        *,
        is_first: bool = True,
        is_needless: bool = False,
    ) -> WorkerId | None:
        """The worker that will be done with a message before a time, if there is any.

        Where it is needless, as the message will be in time, or late anyhow, that one has to save a hop, or half of the time
        if it is not leased to yet: barriers will wait for it too.
        """
        home = context.spec(message.to).home
        if home != context.id:
            return home if self.try_only and context.may_forward(message, home) else None
        is_urgent = is_first and 0.0 <= due(message) - context.now < URGENT_S  # it goes before most of what waits elsewhere
        worker = self.choose(context, message, is_urgent)
        if worker is None:
            return None
        urgent_s, all_s = context.load(worker)
        waits_s = urgent_s if is_urgent else all_s
        if is_needless:
            is_leased = worker in context.lessees(message.to)
            before -= HOP_S if is_leased else _GAIN * (before - context.now)
        if context.now + waits_s + cost_s + HOP_S >= before:
            return None
        context.add_load(worker, cost_s)
        self.leases.note(message.to, context.now)
        return worker

    def give_back(self, context: SchedulingContext, actor: Address) -> Collection[RunnableMessage]:
        """What has come during a barrier is all here, and for an actor that is hot that is more than one worker can do."""
        if self.queue.backlog_s + self.second.seconds <= HOP_S:
            return ()
        return self.take_inputs(actor)

    def choose(self, context: SchedulingContext, message: RunnableMessage, is_urgent: bool) -> WorkerId | None:
        """The least loaded of those that may be leased to; one that is leased to already, if that makes no difference."""
        best: WorkerId | None = None
        best_load = (0.0, 0.0, False)
        workers = self.span.of(context, message.to)
        leased = context.lessees(message.to)
        start = context.rng.randrange(len(workers)) if len(workers) > 1 else 0
        for offset in range(len(workers)):
            worker = workers[start + offset - len(workers)]
            urgent_s, all_s = context.load(worker)
            load = (urgent_s if is_urgent else all_s, all_s, worker not in leased)
            if (best is None or load < best_load) and context.may_forward(message, worker):
                best, best_load = worker, load
        return best

    def wake_at(self) -> float | None:
        return self.leases.wake_at()

    def wake(self, context: SchedulingContext) -> None:
        self.leases.wake(context)

    def forget_job(self, job: str) -> None:
        super().forget_job(job)
        self.leases.forget_job(job)
        self.span.forget_job(job)
