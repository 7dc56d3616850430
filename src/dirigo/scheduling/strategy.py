"""The base class of scheduling strategies: five hooks in the path of each message, with harmless defaults.

A strategy is per worker. It sees every message that the protocol does not block, keeps them in a structure of its own, and
says what runs next and what runs elsewhere. It is pure: its clock is ``context.now``, its chance ``context.rng``.
"""

from __future__ import annotations

from typing import Any

from dirigo.kernel import Address, CriticalOutput, Output, RunnableMessage, SchedulingContext, StrategyExtras, WorkerId

_EXTRAS = [name for name in vars(StrategyExtras) if not name.startswith("_")]


class Strategy:
    """Override what you need; ``enqueue`` and ``get_next_message`` have to be there, and belong together.

    An object of a strategy is a pattern: each worker works with a copy of its own. What else a strategy may hear of or be
    asked is in ``StrategyExtras``: a strategy that wants any of it derives from both.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        unheard = sorted(name for name in _EXTRAS if hasattr(cls, name)) if not issubclass(cls, StrategyExtras) else []
        if unheard:
            raise TypeError(
                f"{cls.__name__}.{unheard[0]} is none of the five hooks, and would never be called; "
                f"derive {cls.__name__} from dg.StrategyExtras too"
            )

    @property
    def name(self) -> str:
        return type(self).__name__

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
