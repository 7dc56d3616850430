"""The base class of scheduling strategies: five hooks in the path of each message, with harmless defaults.

A strategy is per worker. It sees every message that the protocol does not block, keeps them in a structure of its own, and
says what runs next and what runs elsewhere. It is pure: its clock is ``context.now``, its chance ``context.rng``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dirigo.kernel import Address, CriticalOutput, Output, RunnableMessage, SchedulingContext, WorkerId


class Strategy:
    """Override what you need; ``enqueue`` and ``get_next_message`` have to be there, and belong together.

    An object of a strategy is a pattern: each worker works with a copy of its own.
    """

    @property
    def name(self) -> str:
        return type(self).__name__

    # --- the five hooks ------------------------------------------------------------------------------------------------

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        """A message may run. Keep it and return None, or return the worker to send it to (see ``context.may_forward``)."""
        raise NotImplementedError(f"{type(self).__name__} must say what happens to a message in enqueue")

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        """Remove and return the message to run next, over all functions of all jobs; None if nothing is kept."""
        raise NotImplementedError(f"{type(self).__name__} must say what runs next in get_next_message")

    def pre_apply(self, context: SchedulingContext, message: RunnableMessage) -> None:
        """Called before a message runs."""

    def prepare_send(
        self,
        context: SchedulingContext,
        sender: Address,
        output: Output | CriticalOutput,
    ) -> WorkerId | None:
        """Where an output goes: None for the home of its target, or the worker of a lessee."""
        return None

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        """Called after a message ran, with the time that it took."""

    # --- what else it may want to know, or be asked --------------------------------------------------------------------

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        """The permission to send to a lessee of ``to`` is about to be asked for: which others to ask for along with it."""
        return ()

    def give_back(self, context: SchedulingContext, actor: Address) -> Collection[RunnableMessage]:
        """A barrier of ``actor``, whose home is here, is over: the messages that should go through ``enqueue`` again.

        While it lasted, nothing could be forwarded. What is returned is no longer kept; it must have come from upstream.
        """
        return ()

    def note_barrier(self, context: SchedulingContext, actor: Address) -> None:
        """A barrier waits from now on for what ``actor`` has to do here, and what follows it waits for the barrier."""

    def note_received(self, context: SchedulingContext, actor: Address, worker: WorkerId, note: Any) -> None:
        """The strategy at ``worker`` has called ``tell_sender`` for a message to ``actor`` that came from here."""

    def wake_at(self) -> float | None:
        """When ``wake`` is to be called though no message comes; None for never."""
        return None

    def wake(self, context: SchedulingContext) -> None:
        """The time of ``wake_at`` has come."""

    def backlog_s(self, context: SchedulingContext) -> tuple[float, float]:
        """Seconds of work that wait here, (due within a second, in all); other workers are told."""
        return (0.0, 0.0)

    def forget_job(self, job: str) -> None:
        """A job is gone. Messages of it that are still kept are skipped when they are returned."""
