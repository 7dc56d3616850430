"""A strategy of our own: REJECTSEND for what is short, DIRECTSEND for what lasts.

Forwarding reacts at once and knows its own queue, but each message crosses the lessor first: if an actor gets many messages
for long, the lessor's worker does nothing but forward. Sending directly spares that, but senders know the load of others by
hearsay only. So every actor begins with forwarding. A lessor that has spent a good part of its time on forwarding for a
while tells those who send to it, and they spread their messages themselves, to the least loaded of three instances. What
still comes to the lessor is its share of all, from which it reckons what it would have to forward otherwise; for as long as
that is too much, it tells them again. Where skew is short or load is low, and where messages are few and long, nobody is
told, and nobody pays for registrations.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dirigo.kernel import Address, CriticalOutput, Executable, Lane, Output, SchedulingContext, WorkerId
from dirigo.scheduling.by_deadline import URGENT_S
from dirigo.scheduling.deadlines import due
from dirigo.scheduling.given_back import GivenBack
from dirigo.scheduling.lessees import less_loaded_of_three
from dirigo.scheduling.reject_send import LESSEES_MAX, RejectSend
from dirigo.scheduling.scale_in import QUIET_S

PERIOD_S = 0.08  # how long an actor is watched before it is called hot
DIRECT_S = 0.5  # how long senders send directly once they were told
_FORWARD_S = 0.0002  # what it takes a home to take a message in and to pass it on
_HOT_SHARE = 0.2  # of its worker's time that a home spends on forwarding, from which on
_HOT = "hot"


class _Watch:
    """How an actor at its home has been doing in the present period, which begins with the first message it forwards."""

    __slots__ = ("direct_until", "forwarded", "messages", "since", "work_s")

    def __init__(self, now: float) -> None:
        self.direct_until = 0.0
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
        self._given_back = GivenBack()
        self._told: dict[tuple[Address, Address, WorkerId], float] = {}
        self._direct: dict[Address, tuple[float, float, float]] = {}  # target -> (until when, fixed cost, cost per row)

    # --- at the target's home ------------------------------------------------------------------------------------------

    def enqueue(self, context: SchedulingContext, message: Executable) -> WorkerId | None:
        worker = super().enqueue(context, message)
        is_input = not message.critical and message.lane is Lane.INPUT  # type: ignore[union-attr]
        # What a barrier has left at its home is forwarded in either mode, and says nothing about which is better.
        if is_input and not self._given_back.take(message) and context.spec(message.to).home == context.id:
            self._watch(context, message, worker is not None)
        return worker

    def give_back(self, context: SchedulingContext, actor: Address) -> Collection[Executable]:
        return self._given_back.note(super().give_back(context, actor))

    def _watch(self, context: SchedulingContext, message: Executable, is_forwarded: bool) -> None:
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
        watch.work_s += self.costs.expected_s(context, message)
        sender = (message.sender, message.origin)  # type: ignore[union-attr]
        if now - watch.since >= PERIOD_S:
            instances = 1 + len(self.span.of(context, message.to))
            if self._is_hot(watch, instances, now):
                watch.direct_until = now + DIRECT_S
                self.leases.note(message.to, now)
            watch.begin(now)
        if now < watch.direct_until:
            key = (message.to, *sender)
            if self._told.get(key, 0.0) <= now:
                self._told[key] = now + DIRECT_S / 2
                cost = self.costs.of(message.to)
                context.tell_sender(message, (_HOT, cost.fixed_s, cost.row_s))  # type: ignore[arg-type]

    def _is_hot(self, watch: _Watch, instances: int, now: float) -> bool:
        """Whether senders should spread the messages, or should go on doing so."""
        seconds, forwarded = now - watch.since, float(watch.forwarded)
        if now < watch.direct_until:  # each instance gets about as much as this one, which would keep what it can do itself
            work_s = watch.work_s * instances
            forwarded = watch.messages * instances * max(0.0, 1.0 - seconds / work_s) if work_s else 0.0
        return forwarded * _FORWARD_S >= _HOT_SHARE * seconds

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
