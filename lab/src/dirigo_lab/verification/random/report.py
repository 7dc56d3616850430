"""What random runs met, and which of them failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import ClassVar, Self


@dataclass
class RunResult:
    """What one run met."""

    seed: int
    executed: int = 0  # messages, critical ones included
    lessees: int = 0  # instances away from their home
    rounds: int = 0
    rounds_met: int = 0  # with lessees that had been given a message since the round before
    criticals: int = 0  # executions of critical messages of an upstream
    sync_ones: int = 0  # among them
    ends: int = 0  # critical messages that ended a stream
    alone: int = 0  # critical messages of an actor to itself
    forwards: int = 0
    directs: int = 0  # messages that an upstream sent to a lessee
    hand_backs: int = 0
    intents: int = 0  # barriers that a lessee asked for
    registrations: int = 0
    scale_ins: int = 0
    timers: int = 0
    held: int = 0  # messages that a strategy chose and that the protocol blocked
    replica_reads: int = 0  # executions at a lessee that has a replica
    ordered: int = 0  # executions of ordered functions
    in_order: int = 0  # messages that ran behind ordered functions only, compared with the reference's order
    born_in_order: int = 0  # critical messages among them that were born on the way
    duplicates: int = 0

    @property
    def hollow(self) -> bool:
        """Nothing was scaled out, or no barrier noticed."""
        return not (self.lessees and self.rounds_met)


FEATURES = tuple(each.name for each in fields(RunResult) if each.name != "seed")


@dataclass(frozen=True)
class Violation:
    """A run that violated an invariant."""

    seed: int
    invariant: str
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed} violates {self.invariant}: {self.what}"


@dataclass
class RecoveryResult:
    """What one run with crashes met."""

    seed: int
    executed: int = 0  # messages, critical ones included, over all generations
    snapshots: int = 0  # that exist
    voids: int = 0  # that gave way
    crashes: int = 0
    in_snapshots: int = 0  # crashes while one was being taken
    in_commits: int = 0  # crashes between a manifest and the last of its sinks
    in_restores: int = 0  # crashes while a generation was being restored
    restored: int = 0  # generations that began from a snapshot
    lessees: int = 0
    timers_kept: int = 0
    ended_kept: int = 0  # actors that were restored with upstreams that had ended
    stale_messages: int = 0  # of earlier generations, which came late and were dropped
    stale_reports: int = 0

    @property
    def hollow(self) -> bool:
        """Nothing was ever restored."""
        return not self.restored


@dataclass
class RandomReport:
    """What many runs met, and which of them failed."""

    features: ClassVar[tuple[str, ...]] = FEATURES
    kind: ClassVar[str] = "random runs"
    hollow_means: ClassVar[str] = "no lessee was made, or no barrier met a forward"
    runs: int = 0
    hollow_runs: int = 0  # in themselves; some are, because some workers are calm and some graphs small
    totals: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def is_hollow(self) -> bool:
        """Over all runs no lessee was made, or no barrier met a message that had been given to one."""
        return not (self.totals["lessees"] and self.totals["rounds_met"])

    @property
    def unmet(self) -> list[str]:
        """Features that occurred in no run at all."""
        return [name for name in self.features if not self.totals[name]]

    @property
    def ok(self) -> bool:
        return not self.violations and not self.is_hollow()

    def add(self, result: RunResult | RecoveryResult) -> None:
        self.runs += 1
        self.hollow_runs += result.hollow
        for name in self.features:
            self.totals[name] += getattr(result, name)

    def __add__(self, other: Self) -> Self:
        """Both reports in one: what several processes found."""
        violations = sorted([*self.violations, *other.violations], key=lambda violation: violation.seed)
        totals = Counter({name: self.totals[name] + other.totals[name] for name in self.features})
        return type(self)(self.runs + other.runs, self.hollow_runs + other.hollow_runs, totals, violations)

    def summary(self) -> str:
        """All numbers in one sentence, so that nothing passes by being empty."""
        met = ", ".join(f"{self.totals[name]:,} {name.replace('_', ' ')}" for name in self.features)
        failed = f"{len(self.violations):,} violations" if self.violations else "no violation"
        return f"{self.runs:,} {self.kind}, {failed}, {self.hollow_runs:,} of them hollow: {met}"

    def to_json(self) -> dict[str, object]:
        return {
            "runs": self.runs,
            "hollow_runs": self.hollow_runs,
            "ok": self.ok,
            "totals": {name: self.totals[name] for name in self.features},
            "violations": [str(violation) for violation in self.violations],
        }


@dataclass
class RecoveryReport(RandomReport):
    """The same of runs with crashes."""

    features: ClassVar[tuple[str, ...]] = tuple(each.name for each in fields(RecoveryResult) if each.name != "seed")
    kind: ClassVar[str] = "random runs with crashes"
    hollow_means: ClassVar[str] = "nothing was restored, or no crash came in a snapshot, a commit or a restore"

    def is_hollow(self) -> bool:
        """Over all runs nothing was restored, or crashes left out one of the steps from the barrier to the commit."""
        return not all(self.totals[name] for name in ("restored", "in_snapshots", "in_commits", "in_restores"))
