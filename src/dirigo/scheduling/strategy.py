"""The base class of scheduling strategies: five hooks in the path of each message, with harmless defaults.

A strategy is per worker. It sees every message that the protocol does not block, keeps them in a structure of its own, and
says what runs next and what runs elsewhere. It is pure: its clock is ``context.now``, its chance is handed in.
"""

from __future__ import annotations

from dirigo.kernel import Address, CriticalOutput, Executable, Output, SchedulingContext, WorkerId


class Strategy:
    """Override what you need; ``enqueue`` and ``get_next_message`` have to be there, and belong together."""

    def enqueue(self, context: SchedulingContext, message: Executable) -> WorkerId | None:
        """A message may run. Keep it and return None, or return the worker to send it to (see ``context.may_forward``)."""
        raise NotImplementedError(f"{type(self).__name__} must say what happens to a message in enqueue")

    def get_next_message(self, context: SchedulingContext) -> Executable | None:
        """Remove and return the message to run next, over all functions of all jobs; None if nothing is kept."""
        raise NotImplementedError(f"{type(self).__name__} must say what runs next in get_next_message")

    def pre_apply(self, context: SchedulingContext, message: Executable) -> None:
        """Called before a message runs."""

    def prepare_send(
        self,
        context: SchedulingContext,
        sender: Address,
        output: Output | CriticalOutput,
    ) -> WorkerId | None:
        """Where an output goes: None for the home of its target, or the worker of a lessee."""
        return None

    def post_apply(self, context: SchedulingContext, message: Executable, elapsed_s: float) -> None:
        """Called after a message ran, with the time that it took."""
