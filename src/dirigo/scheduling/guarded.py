"""A user's strategy, with its answers checked: nonsense becomes a sentence instead of a broken worker."""

from __future__ import annotations

from collections.abc import Collection
from math import isnan
from typing import Any

from dirigo.kernel import (
    NO_EXTRAS,
    Address,
    CriticalOutput,
    Output,
    PolicyError,
    RunnableMessage,
    SchedulingContext,
    StrategyExtras,
    WorkerId,
    job_of,
)
from dirigo.scheduling.strategy import Strategy


class Guarded(Strategy, StrategyExtras):
    """Passes everything on to another strategy."""

    def __init__(self, inner: Strategy) -> None:
        self._inner = inner
        self._extras = inner if isinstance(inner, StrategyExtras) else NO_EXTRAS
        self._kept: dict[int, RunnableMessage] = {}  # by identity: what it was given and has not returned
        self._forgotten: set[str] = set()  # jobs of which it may still keep messages

    @property
    def name(self) -> str:
        return self._inner.name

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        worker = self._inner.enqueue(context, message)
        if worker is None:
            self._kept[id(message)] = message
            return None
        return self._worker(context, worker, "enqueue")

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        message = self._inner.get_next_message(context)
        if message is not None and self._kept.pop(id(message), None) is None and not self._is_forgotten(message):
            raise PolicyError(
                f"{self.name}.get_next_message returned {_shown(message)}, which is no message that it keeps; return each "
                "message that enqueue was given once, or None"
            )
        return message

    def _is_forgotten(self, message: object) -> bool:
        """Whether it is of a job that is gone: the worker skips it."""
        return isinstance(message, RunnableMessage) and job_of(message.to) in self._forgotten

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        worker = self._inner.prepare_send(context, sender, output)
        return None if worker is None else self._worker(context, worker, "prepare_send")

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        wanted: object = self._extras.also_wanted(context, sender, to)
        if not isinstance(wanted, Collection):
            raise PolicyError(f"{self.name}.also_wanted returned {_shown(wanted)}; return workers, or an empty tuple")
        return tuple(self._worker(context, worker, "also_wanted") for worker in wanted)

    def give_back(self, context: SchedulingContext, actor: Address) -> Collection[RunnableMessage]:
        given: object = self._extras.give_back(context, actor)
        if not isinstance(given, Collection):
            raise PolicyError(f"{self.name}.give_back returned {_shown(given)}; return messages, or an empty tuple")
        for message in given:
            if self._kept.pop(id(message), None) is None or message.to != actor:
                raise PolicyError(
                    f"{self.name}.give_back returned {_shown(message)}, which is no message of {actor} that it keeps"
                )
        return given

    def _worker(self, context: SchedulingContext, worker: object, hook: str) -> WorkerId:
        if type(worker) is int and worker in context.workers:
            return worker
        raise PolicyError(f"{self.name}.{hook} returned {_shown(worker)}, which is no worker; return one of context.workers")

    def pre_apply(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self._inner.pre_apply(context, message)

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        self._inner.post_apply(context, message, elapsed_s)

    def note_barrier(self, context: SchedulingContext, actor: Address) -> None:
        self._extras.note_barrier(context, actor)

    def note_received(self, context: SchedulingContext, actor: Address, worker: WorkerId, note: Any) -> None:
        self._extras.note_received(context, actor, worker, note)

    def wake_at(self) -> float | None:
        at: object = self._extras.wake_at()
        if at is None or (isinstance(at, int | float) and not isnan(at)):
            return at
        raise PolicyError(f"{self.name}.wake_at returned {_shown(at)}; return a time, or None")

    def wake(self, context: SchedulingContext) -> None:
        self._extras.wake(context)
        at = self.wake_at()
        if at is not None and at <= context.now:
            raise PolicyError(
                f"{self.name}.wake_at still returned {_shown(at)} after it was woken then; return a later time, or None"
            )

    def backlog_s(self, context: SchedulingContext) -> tuple[float, float]:
        backlog = self._extras.backlog_s(context)
        try:
            urgent, total = map(float, backlog)
        except (TypeError, ValueError):
            urgent = total = -1.0
        if not (urgent >= 0.0 and total >= 0.0):
            raise PolicyError(
                f"{self.name}.backlog_s returned {_shown(backlog)}; return seconds of work, (due within a second, in all)"
            )
        return (urgent, total)

    def forget_job(self, job: str) -> None:
        kept = {key: message for key, message in self._kept.items() if job_of(message.to) != job}
        if len(kept) < len(self._kept):  # it may drop them, or return them: then they are skipped
            self._kept = kept
            self._forgotten.add(job)
        self._extras.forget_job(job)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
