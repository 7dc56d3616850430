"""A strategy of our own: REJECTSEND for what is short, DIRECTSEND for what lasts.

Forwarding reacts at once and knows its own queue, but a lessor forwards only what would wait for long, and each message
crosses it first: if an actor gets many messages, the lessor's worker does nothing but forward. Sending directly spares that
and keeps all queues short, but senders know the load of others by hearsay only, and every barrier takes their permissions
back. So every actor begins with forwarding. A lessor tells those who send to it to spread their messages themselves, each
to the least loaded of three instances, in two cases: it spends a good part of its time on forwarding; or it has forwarded
most of its messages, and there are so few senders and barriers that each permission is for much more work than asking for
it takes. What still comes to the lessor is its share of all, of which it forwards only what would be nearly late; from that
share it reckons how it would be without them, and for as long as it is needed, it tells them again. Where skew is short or
load is low, nobody is told, and nobody pays for registrations.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dirigo.kernel import Address, CriticalOutput, Lane, Output, RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling.deadlines import due
from dirigo.scheduling.lessees import less_loaded_of_three
from dirigo.scheduling.scale_in import QUIET_S
from dirigo.scheduling.strategies.by_deadline import URGENT_S
from dirigo.scheduling.strategies.reject_send import HOP_S, LESSEES_MAX, PATIENCE, RejectSend

PERIOD_S = 0.08  # how long an actor is watched before it is called hot
DIRECT_S = 0.5  # how long senders send directly once they were told
_PATIENCE_WHEN_DIRECT = 0.6  # two who spread the same messages get in each other's way
_FORWARD_S = 0.0002  # what it takes a home to take a message in and to pass it on
_BUSY_SHARE = 0.2  # of its worker's time that a home spends on forwarding, from which on it has to be relieved
_HOT_SHARE = 0.5  # of messages forwarded, from which on it may be
_HOT_LEAST = 8  # messages in a period, below which nothing can be said
_HOT_WORK = 0.6  # of a worker's time that an actor takes in all, from which on it is still hot
_WORTH_S = 10 * HOP_S  # of work between two barriers for each instance and sender, so that asking for permission pays
_HOT = "hot"


class _Watch:
    """How an actor at its home has been doing in the present period, which begins with the first message it forwards."""

    __slots__ = ("between_s", "direct_until", "forwarded", "messages", "passed_s", "senders", "since", "work_s")

    def __init__(self, now: float) -> None:
        self.direct_until = 0.0
        self.senders: set[tuple[Address, WorkerId]] = set()
        self.passed_s = 0.0  # what the messages since the last barrier take
        self.between_s = 0.0  # and those between the two before
        self.begin(now)

    def begin(self, now: float) -> None:
        self.since = now
        self.messages = 0
        self.forwarded = 0
        self.work_s = 0.0  # what its messages take


class Hybrid(RejectSend):
    """Switches each actor between the two modes."""

    def __init__(self, lessees_max: int = LESSEES_MAX, *, quiet_s: float = QUIET_S) -> None:
        super().__init__(lessees_max, quiet_s=quiet_s)
        self._watched: dict[Address, _Watch] = {}
        self._told: dict[tuple[Address, Address, WorkerId], float] = {}
        self._direct: dict[Address, tuple[float, float, float]] = {}  # target -> (until when, fixed cost, cost per row)

    # --- at the target's home ------------------------------------------------------------------------------------------

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        watch = self._watched.get(message.to)
        is_direct = watch is not None and context.now < watch.direct_until
        self.patience = _PATIENCE_WHEN_DIRECT if is_direct else PATIENCE
        worker = super().enqueue(context, message)
        is_input = not message.critical and message.lane is Lane.INPUT  # type: ignore[union-attr]
        if is_input and context.spec(message.to).home == context.id:
            self._watch(context, message, worker is not None)
        return worker

    def note_barrier(self, context: SchedulingContext, actor: Address) -> None:
        super().note_barrier(context, actor)
        watch = self._watched.get(actor)
        if watch is not None:
            watch.between_s, watch.passed_s = watch.passed_s, 0.0

    def _watch(self, context: SchedulingContext, message: RunnableMessage, is_forwarded: bool) -> None:
        now = context.now
        watch = self._watched.get(message.to)
        if watch is None:
            watch = self._watched[message.to] = _Watch(now)
        is_direct = now < watch.direct_until
        if is_forwarded:
            watch.forwarded += 1
        elif not (watch.forwarded or is_direct):
            watch.begin(now)
        watch.messages += 1
        cost_s = self.costs.expected_s(context, message)
        watch.passed_s += cost_s
        watch.work_s += cost_s
        sender = (message.sender, message.origin)  # type: ignore[union-attr]
        watch.senders.add(sender)
        if now - watch.since >= PERIOD_S:
            instances = 1 + len(self.span.of(context, message.to))
            if self._is_busy(watch, instances, now) or self._is_hot(watch, instances, now):
                watch.direct_until = now + DIRECT_S
                self.leases.note(message.to, now)
            watch.begin(now)
        if now < watch.direct_until:
            key = (message.to, *sender)
            if self._told.get(key, 0.0) <= now:
                self._told[key] = now + DIRECT_S / 2
                cost = self.costs.of(message.to)
                context.tell_sender(message, (_HOT, cost.fixed_s, cost.row_s))  # type: ignore[arg-type]

    def _is_busy(self, watch: _Watch, instances: int, now: float) -> bool:
        """Whether the home spends too much of its time on forwarding, or would do so if senders did not spread messages."""
        seconds, forwarded = now - watch.since, float(watch.forwarded)
        if now < watch.direct_until:  # each instance gets about as much as this one, which would keep what it can do itself
            work_s = watch.work_s * instances
            forwarded = watch.messages * instances * max(0.0, 1.0 - seconds / work_s) if work_s else 0.0
        return forwarded * _FORWARD_S >= _BUSY_SHARE * seconds

    def _is_hot(self, watch: _Watch, instances: int, now: float) -> bool:
        """Whether there is more than the home should do, and enough of it for asking to be worth it."""
        share = instances if now < watch.direct_until else 1
        if max(watch.passed_s, watch.between_s) * share < _WORTH_S * instances * len(watch.senders):
            return False
        if watch.messages >= _HOT_LEAST and watch.forwarded >= _HOT_SHARE * watch.messages:
            return True
        return share > 1 and watch.work_s * share >= _HOT_WORK * (now - watch.since)

    # --- at its senders ------------------------------------------------------------------------------------------------

    def note_received(self, context: SchedulingContext, actor: Address, worker: WorkerId, note: Any) -> None:
        if note[0] == _HOT:
            self._direct[actor] = (context.now + DIRECT_S, note[1], note[2])

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        direct = self._direct.get(output.to)
        if direct is None or output.critical:
            return None
        until, fixed_s, row_s = direct
        if until < context.now:
            del self._direct[output.to]
            return None
        others = self.span.of(context, output.to)
        if not others:
            return None
        is_urgent = due(output) - context.now < URGENT_S
        worker = less_loaded_of_three(context, (context.spec(output.to).home, *others), is_urgent=is_urgent)
        context.add_load(worker, fixed_s + row_s * context.rows(output))  # type: ignore[arg-type]
        return worker

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        return self.span.of(context, to)

    def forget_job(self, job: str) -> None:
        super().forget_job(job)
        prefix = f"{job}/"
        self._watched = {actor: watch for actor, watch in self._watched.items() if not actor.startswith(prefix)}
        self._told = {key: until for key, until in self._told.items() if not key[0].startswith(prefix)}
        self._direct = {actor: told for actor, told in self._direct.items() if not actor.startswith(prefix)}
