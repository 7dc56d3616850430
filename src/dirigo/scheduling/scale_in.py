"""Ends leases that are not used any more: an actor that has sent nothing elsewhere for a while gets all its state back."""

from __future__ import annotations

from dirigo.kernel import Address, GraphError, SchedulingContext

QUIET_S = 2.0


class ScaleIn:
    """Remembers when each local actor last had something done elsewhere."""

    __slots__ = ("_last", "_quiet_s", "_wake_at")

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._last: dict[Address, float] = {}
        self._wake_at: float | None = None

    def note(self, actor: Address, now: float) -> None:
        """A message of this actor is sent elsewhere."""
        self._last[actor] = now
        if self._wake_at is None:
            self._wake_at = now + self._quiet_s

    def wake_at(self) -> float | None:
        return self._wake_at

    def wake(self, context: SchedulingContext) -> None:
        """End the leases of all that are quiet."""
        quiet_s, now = self._quiet_s, context.now  # added up as for wake_at: rounded otherwise, it would be woken for ever
        for actor in [actor for actor, last in self._last.items() if last + quiet_s <= now]:
            del self._last[actor]
            try:
                if context.lessees(actor):
                    context.scale_in(actor)
            except GraphError:  # its job is gone
                continue
        self._wake_at = min(self._last.values()) + self._quiet_s if self._last else None

    def forget_job(self, job: str) -> None:
        for actor in [actor for actor in self._last if actor.startswith(f"{job}/")]:
            del self._last[actor]
