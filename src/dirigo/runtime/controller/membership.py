"""Who is in the pool: a record for each slot, and how it is known that a worker lives."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from dirigo.runtime.control import STOP_AFTER_S, Hello, Member, WorkerFigures, WorkerStatus

_log = logging.getLogger(__name__)

LEFTOVER_TOLD_AFTER_S = 1.0  # most code stops as soon as it is asked to
LOST_AFTER_S = 15.0  # without a beat; longer than a worker may be kept from the interpreter before it ends itself


@dataclass
class Slot:
    """One place for a worker, and the process that holds it now, if any."""

    worker: int
    state: str = "joining"
    incarnation: int = 0
    identity: bytes = b""
    hello: Hello | None = None
    heard_s: float = 0.0
    figures: WorkerFigures = field(default_factory=WorkerFigures)
    busy: float = 0.0
    problem: str | None = None
    _leftover_since_s: float | None = None
    _has_told_leftover: bool = False
    _busy_at: tuple[float, float] = (0.0, 0.0)

    @property
    def is_there(self) -> bool:
        return bool(self.identity) and self.state in ("ready", "leaving")

    def join(self, hello: Hello, identity: bytes, incarnation: int, now: float) -> None:
        self.hello = hello
        self.identity = identity
        self.incarnation = incarnation
        self.heard_s = now
        self.figures = WorkerFigures()
        self._busy_at = (now, 0.0)
        self.problem = None
        if self.state != "leaving":
            self.state = "ready"

    def beat(self, figures: WorkerFigures, now: float) -> None:
        self.heard_s = now
        self.figures = figures
        self._tell_leftover(now)
        then, busy_s = self._busy_at
        if now - then >= 0.5:
            self.busy = min(1.0, max(0.0, (figures.busy_s - busy_s) / (now - then)))
            self._busy_at = (now, figures.busy_s)

    def _tell_leftover(self, now: float) -> None:
        if self.figures.leftover is None:
            self._leftover_since_s, self._has_told_leftover = None, False
        elif self._leftover_since_s is None:
            self._leftover_since_s = now
        elif now - self._leftover_since_s >= LEFTOVER_TOLD_AFTER_S and not self._has_told_leftover:
            self._has_told_leftover = True
            _log.warning(
                "worker %d still executes %s, whose job is over; if that does not stop within %g s, the worker is ended, "
                "and jobs that use it fail",
                self.worker,
                self.figures.leftover,
                STOP_AFTER_S,
            )

    def is_silent(self, now: float) -> bool:
        return self.is_there and now - self.heard_s > LOST_AFTER_S

    def member(self) -> Member:
        assert self.hello is not None
        return Member(self.worker, self.incarnation, self.hello.control, self.hello.data, self.hello.key)

    def status(self, problem: str | None) -> WorkerStatus:
        hello = self.hello
        return WorkerStatus(
            self.worker,
            self.state,
            self.incarnation,
            hello.host if hello else "",
            hello.pid if hello else 0,
            round(self.busy, 3),
            self.figures.messages,
            self.figures.queued_bytes,
            self.figures.rss_bytes,
            self.figures.running,
            round(self.figures.running_s, 3),
            self.problem or problem,
            self.figures.leftover,
        )
