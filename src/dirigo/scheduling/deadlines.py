"""When a message should be done: its own deadline, or a lax one for jobs that were promised no latency."""

from __future__ import annotations

from dirigo.kernel import CriticalOutput, Executable, Output

# A job without a latency objective is served as if it had this one: it gives way to urgent work, but not for ever.
PATIENCE_S = 10.0
_NEVER = float("inf")


def due(message: Executable | Output | CriticalOutput) -> float:
    deadline = message.deadline
    return deadline if deadline != _NEVER else message.created + PATIENCE_S
