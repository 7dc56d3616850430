"""A source: a participant without inputs, states and lessees, which is therefore SEQUENTIAL at all times.

It needs no round to send a barrier (the fast path), but it obeys the same rule as everybody: after a barrier it sends
nothing to that target until the cut is installed there.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from dirigo.kernel.interface.message import CriticalOutput, Output
from dirigo.kernel.participant import Participant


class SourceActor(Participant):
    """Where messages enter a job's graph. Its host decides what it emits, and when."""

    __slots__ = ()

    def may_register(self) -> bool:
        return True

    def emit(self, output: Output | CriticalOutput) -> None:
        force_setattr(output, "sent", self.host.now)
        self.outbox.emit(output)
        self.host.do_requests()

    def inject(self, output: CriticalOutput) -> None:
        """Send a critical message of a strategy's, unless this source has ended."""
        if not self.outbox.route(output.to).ended:
            self.outbox.emit(output)

    def is_waiting(self) -> bool:
        """Whether a target still has to acknowledge a barrier; a host that cannot buffer emits nothing meanwhile."""
        return bool(self.outbox.busy)
