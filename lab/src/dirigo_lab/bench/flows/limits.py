"""How fast one core could answer at best: the same query as one batch query of Polars and of DuckDB over the same bids.

They know all rows beforehand, keep nothing between batches and answer once. Each is measured in a process of its own, for
Polars fixes its number of threads when it is imported, and in turns with the flow, so that the ratio is one of like moments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from dirigo_lab.bench.flows.flow import EVENTS, REPEATS, VECTORISED

ENGINES = ("polars", "duckdb")


@dataclass(frozen=True)
class LimitCost:
    """One query of one engine, with a single thread."""

    engine: str
    query: str
    bids: int
    seconds: float  # of processor time, the best of the repeats
    flow_seconds: float  # of the flow, measured in turns with it

    @property
    def bids_per_s(self) -> float:
        return self.bids / self.seconds

    @property
    def ratio(self) -> float:
        """How fast the flow is, the batch query being 1."""
        return self.seconds / self.flow_seconds


def missing_engines() -> tuple[str, ...]:
    """The engines that are not installed; they are for development only."""
    return tuple(engine for engine in ENGINES if find_spec(engine) is None)


def measure_limits(events: int = EVENTS, repeats: int = REPEATS) -> tuple[LimitCost, ...]:
    """Every query with every engine that is there."""
    missing = missing_engines()
    return tuple(
        _measure(engine, query, events, repeats) for query in VECTORISED for engine in ENGINES if engine not in missing
    )


def _measure(engine: str, query: str, events: int, repeats: int) -> LimitCost:
    command = [sys.executable, "-m", "dirigo_lab.bench.flows.limit_process", engine, query, str(events), str(repeats)]
    ended = subprocess.run(
        command, env={**os.environ, "POLARS_MAX_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise RuntimeError(f"the batch query {query} of {engine} failed:\n{ended.stderr}")
    return LimitCost(**json.loads(ended.stdout))
