"""Whether a flow that has seen many events costs more per event, or holds more memory, than one that has seen few.

One run per query, in a process of its own, over events that are generated on the way while the clock stands still. Each mark
looks back at the last million events, not at the average since the start, which would hide half of a steady growth. The cost
is compared with that of a fresh flow which runs beside the old one: the machine's moods hit both alike.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise

from dirigo_lab.bench.flows.flow import VECTORISED

MARKS = (1_000_000, 5_000_000, 20_000_000)  # events
MARKS_APART_LEAST = 110_000  # a turn is a little less
COST_GROWTH_MOST = 1.25  # the budgets: at the last mark over a fresh flow
MEMORY_GROWTH_MOST = 1.2  # at the last mark over the first


@dataclass(frozen=True)
class Milestone:
    """One query when it has seen so many events."""

    events: int
    bid_ns: float  # of processor time per bid, the median over short turns of the last million events
    growth: float  # that over the cost of a fresh flow, the median over pairs of turns
    state_bytes: int  # the most that open windows held in the last million events
    peak_bytes: int  # the most memory that the process has ever held


@dataclass(frozen=True)
class LongRun:
    """One query from the first event to the last."""

    query: str
    marks: tuple[Milestone, ...]

    @property
    def cost_growth(self) -> float:
        return self.marks[-1].growth

    @property
    def state_growth(self) -> float:
        return self.marks[-1].state_bytes / max(self.marks[0].state_bytes, 1)

    @property
    def peak_growth(self) -> float:
        return self.marks[-1].peak_bytes / self.marks[0].peak_bytes

    def within_budget(self) -> bool:
        memory_growth = max(self.state_growth, self.peak_growth)
        return self.cost_growth <= COST_GROWTH_MOST and memory_growth <= MEMORY_GROWTH_MOST


def measure_long_runs(marks: tuple[int, ...] = MARKS) -> tuple[LongRun, ...]:
    if not marks or marks[0] < 1 or any(later < earlier + MARKS_APART_LEAST for earlier, later in pairwise(marks)):
        raise ValueError(f"marks are numbers of events that grow by {MARKS_APART_LEAST:,} or more, unlike {marks}")
    return tuple(_measure(query, marks) for query in VECTORISED)


def _measure(query: str, marks: tuple[int, ...]) -> LongRun:
    command = [sys.executable, "-m", "dirigo_lab.bench.flows.long_run_process", query, *map(str, marks)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"the long run of {query} failed:\n{ended.stderr}")
    return LongRun(query, tuple(Milestone(**each) for each in json.loads(ended.stdout)))
