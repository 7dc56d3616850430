"""Several strategies at one worker: jobs that name the same one share it, and between strategies time is shared by weight.

Within a strategy, what runs next is its business alone. Between two of them there is nothing to compare, so each gets a
share of the worker's time in proportion to the weights of its jobs, as long as it has something to run. A strategy that
fails takes its own jobs with it, and nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from typing import Any

from dirigo.errors import DirigoError
from dirigo.kernel import (
    NO_EXTRAS,
    Address,
    CriticalOutput,
    Output,
    RunnableMessage,
    SchedulingContext,
    StrategyExtras,
    WorkerId,
    job_of,
)
from dirigo.scheduling.strategy import Strategy


class StrategyFailure(DirigoError):  # noqa: N818 - it is a fact about a strategy
    """A strategy raised or answered with nonsense: the jobs that it serves cannot go on."""

    def __init__(self, jobs: tuple[str, ...], what: str) -> None:
        super().__init__(what)
        self.jobs = jobs


class _Group:
    """A strategy and its jobs."""

    __slots__ = ("extras", "jobs", "key", "served_s", "strategy", "weight")

    def __init__(self, key: Hashable, strategy: Strategy) -> None:
        self.key = key
        self.strategy = strategy
        self.extras = strategy if isinstance(strategy, StrategyExtras) else NO_EXTRAS
        self.jobs: dict[str, float] = {}  # job -> weight
        self.weight = 0.0
        self.served_s = 0.0  # time of the worker it has had, divided by its weight


class Arbiter(Strategy, StrategyExtras):
    """The strategy of a worker that serves jobs under several."""

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._by_job: dict[str, _Group] = {}

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def add_job(self, job: str, key: Hashable, make: Callable[[], Strategy], weight: float) -> None:
        """Serve a job by the strategy with this key, which is made if nobody else has it."""
        group = next((group for group in self._groups if group.key == key), None)
        if group is None:
            group = _Group(key, make())
            group.served_s = min((other.served_s for other in self._groups), default=0.0)
            self._groups.append(group)
        group.jobs[job] = weight
        group.weight = sum(group.jobs.values())
        self._by_job[job] = group

    def forget_job(self, job: str) -> None:
        group = self._by_job.pop(job, None)
        if group is None:
            return
        del group.jobs[job]
        group.weight = sum(group.jobs.values())
        if group.jobs:
            with suppress(Exception):  # the job is gone either way
                group.extras.forget_job(job)
        else:  # and whatever it still keeps goes with it
            self._groups.remove(group)

    # --- the five hooks ------------------------------------------------------------------------------------------------

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        group = self._by_job[job_of(message.to)]
        try:
            return group.strategy.enqueue(context, message)
        except (Exception, SystemExit) as error:
            raise self._failure(group, "enqueue", error, message.to) from error

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        groups = self._groups
        if len(groups) > 1:
            groups = sorted(groups, key=lambda group: group.served_s)
        for group in groups:
            try:
                message = group.strategy.get_next_message(context)
            except (Exception, SystemExit) as error:
                raise self._failure(group, "get_next_message", error) from error
            if message is not None:
                if len(groups) > 1:
                    self._let_nobody_save_up(group)
                return message
        return None

    def _let_nobody_save_up(self, served: _Group) -> None:
        """Those that had nothing to run while others ran do not get that time later."""
        for group in self._groups:
            if group is not served and group.served_s < served.served_s:
                group.served_s = served.served_s

    def pre_apply(self, context: SchedulingContext, message: RunnableMessage) -> None:
        group = self._by_job[job_of(message.to)]
        try:
            group.strategy.pre_apply(context, message)
        except (Exception, SystemExit) as error:
            raise self._failure(group, "pre_apply", error, message.to) from error

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        group = self._by_job[job_of(sender)]
        try:
            return group.strategy.prepare_send(context, sender, output)
        except (Exception, SystemExit) as error:
            raise self._failure(group, "prepare_send", error, sender) from error

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        group = self._by_job[job_of(message.to)]
        group.served_s += elapsed_s / group.weight
        try:
            group.strategy.post_apply(context, message, elapsed_s)
        except (Exception, SystemExit) as error:
            raise self._failure(group, "post_apply", error, message.to) from error

    # --- the rest ------------------------------------------------------------------------------------------------------

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        group = self._by_job[job_of(sender)]
        try:
            return group.extras.also_wanted(context, sender, to)
        except (Exception, SystemExit) as error:
            raise self._failure(group, "also_wanted", error, sender) from error

    def give_back(self, context: SchedulingContext, actor: Address) -> Collection[RunnableMessage]:
        group = self._by_job[job_of(actor)]
        try:
            return group.extras.give_back(context, actor)
        except (Exception, SystemExit) as error:
            raise self._failure(group, "give_back", error, actor) from error

    def note_barrier(self, context: SchedulingContext, actor: Address) -> None:
        group = self._by_job[job_of(actor)]
        try:
            group.extras.note_barrier(context, actor)
        except (Exception, SystemExit) as error:
            raise self._failure(group, "note_barrier", error, actor) from error

    def note_received(self, context: SchedulingContext, actor: Address, worker: WorkerId, note: Any) -> None:
        group = self._by_job.get(job_of(actor))
        if group is None:
            return
        try:
            group.extras.note_received(context, actor, worker, note)
        except (Exception, SystemExit) as error:
            raise self._failure(group, "note_received", error, actor) from error

    def wake_at(self) -> float | None:
        return min((at for group in self._groups if (at := self._wake_at_of(group)) is not None), default=None)

    def _wake_at_of(self, group: _Group) -> float | None:
        try:
            return group.extras.wake_at()
        except (Exception, SystemExit) as error:
            raise self._failure(group, "wake_at", error) from error

    def wake(self, context: SchedulingContext) -> None:
        for group in list(self._groups):
            at = self._wake_at_of(group)
            if at is not None and at <= context.now:
                try:
                    group.extras.wake(context)
                except (Exception, SystemExit) as error:
                    raise self._failure(group, "wake", error) from error

    def backlog_s(self, context: SchedulingContext) -> tuple[float, float]:
        urgent = total = 0.0
        for group in self._groups:
            try:
                its_urgent, its_total = group.extras.backlog_s(context)
            except (Exception, SystemExit) as error:
                raise self._failure(group, "backlog_s", error) from error
            urgent += its_urgent
            total += its_total
        return (urgent, total)

    def _failure(self, group: _Group, hook: str, error: BaseException, actor: Address | None = None) -> StrategyFailure:
        """In a hook for a message it is the message's job that fails; otherwise all that the strategy serves."""
        what = str(error) if isinstance(error, DirigoError) else f"{type(error).__name__}: {error}"
        jobs = tuple(group.jobs) if actor is None else (job_of(actor),)
        return StrategyFailure(jobs, f"the strategy {group.strategy.name} failed in {hook}: {what}")
