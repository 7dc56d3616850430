"""What ``dirigo verify`` does, without its display: explore worlds, hunt mutants, run random worlds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dirigo.kernel.mailbox import ADMISSIONS, TRANSITIONS
from dirigo_lab.verification.explorer import Exploration
from dirigo_lab.verification.hunt import Catch, hunt
from dirigo_lab.verification.parallel import report_progress, spread
from dirigo_lab.verification.random.recovery import run_recoveries
from dirigo_lab.verification.random.report import RandomReport
from dirigo_lab.verification.random.run import run_many
from dirigo_lab.verification.snapshots.variants import explore
from dirigo_lab.verification.worlds import world_named

_SEEDS_PER_TASK = 250


@dataclass
class VerificationProgress:
    """How far a verification is: states per world, or runs per task."""

    counts: list[int]


def _explore(index: int, order: tuple[str, int]) -> Exploration:
    name, states_max = order
    return explore(world_named(name), states_max, lambda found: report_progress(index, found.states))


def explore_worlds(
    names: Sequence[str], states_max: int, processes: int | None = None
) -> Iterator[VerificationProgress | Exploration]:
    """Explore worlds side by side; yields progress and, for each world, what was found."""
    for counts, _, found in spread(_explore, [(name, states_max) for name in names], processes):
        yield found if found is not None else VerificationProgress(counts)


def hunt_mutants(names: Sequence[str], processes: int | None = None) -> Iterator[VerificationProgress | Catch]:
    """Hunt mutants side by side."""
    for counts, _, catch in spread(hunt, names, processes):
        yield catch if catch is not None else VerificationProgress(counts)


def _run_seeds(index: int, seeds: tuple[int, int]) -> RandomReport:
    return run_many(range(*seeds), lambda done: report_progress(index, done))


def _recover_seeds(index: int, seeds: tuple[int, int]) -> RandomReport:
    return run_recoveries(range(*seeds), lambda done: report_progress(index, done))


def run_random(
    runs: int, first_seed: int = 0, processes: int | None = None, *, with_crashes: bool = False
) -> Iterator[VerificationProgress | RandomReport]:
    """Random runs side by side; yields progress and one report per chunk of seeds."""
    task = _recover_seeds if with_crashes else _run_seeds
    last = first_seed + runs
    size = _SEEDS_PER_TASK // 5 if with_crashes else _SEEDS_PER_TASK
    chunks = [(start, min(start + size, last)) for start in range(first_seed, last, size)]
    for counts, _, report in spread(task, chunks, processes):
        yield report if report is not None else VerificationProgress(counts)


@dataclass
class Verification:
    """Everything that a verification found."""

    worlds: list[Exploration] = field(default_factory=list)
    mutants: list[Catch] = field(default_factory=list)
    random: RandomReport | None = None
    recoveries: RandomReport | None = None  # the random runs with crashes

    @property
    def rows_missing(self) -> list[Any]:
        """Rows of the mailbox tables that fired in no world."""
        fired = set().union(*(found.rows for found in self.worlds)) if self.worlds else set()
        return [row for row in (*TRANSITIONS, *ADMISSIONS) if row not in fired]

    def to_json(self) -> dict[str, Any]:
        report: dict[str, Any] = {}
        if self.worlds:
            report["worlds"] = [
                {
                    "name": found.world,
                    "states": found.states,
                    "transitions": found.transitions,
                    "longest": found.longest,
                    "verdict": found.verdict,
                }
                for found in sorted(self.worlds, key=lambda found: found.world)
            ]
            report["states"] = sum(found.states for found in self.worlds)
        if self.mutants:
            report["mutants"] = [catch.to_json() for catch in self.mutants]
        if self.random is not None:
            report["random"] = self.random.to_json()
        if self.recoveries is not None:
            report["recoveries"] = self.recoveries.to_json()
        return report
