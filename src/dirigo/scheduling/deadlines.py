"""When a message should be done: its own deadline, or a lax one for jobs that were promised no latency."""

from __future__ import annotations

from dirigo.kernel import Address, CriticalOutput, Lane, Output, RunnableMessage

# A job without a latency objective is served as if it had this one: it gives way to urgent work, but not for ever.
PATIENCE_S = 10.0
_NEVER = float("inf")


def due(message: RunnableMessage | Output | CriticalOutput) -> float:
    deadline = message.deadline
    return deadline if deadline != _NEVER else message.created + PATIENCE_S


def is_input_of(message: RunnableMessage, actor: Address) -> bool:
    """Whether a message came to an actor from upstream, so that it may run at any of its instances."""
    return message.to == actor and not message.critical and message.lane is Lane.INPUT  # type: ignore[union-attr]
