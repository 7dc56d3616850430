"""Who is in the pool: a record for each slot, and how it is known that a worker lives."""

from __future__ import annotations

from dataclasses import dataclass, field

from dirigo.runtime.control import Hello, Member, WorkerFigures, WorkerStatus

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
        then, busy_s = self._busy_at
        if now - then >= 0.5:
            self.busy = min(1.0, max(0.0, (figures.busy_s - busy_s) / (now - then)))
            self._busy_at = (now, figures.busy_s)

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
        )
