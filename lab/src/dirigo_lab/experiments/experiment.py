"""What an experiment is: the settings that it runs, what a run gives, and what the paper claims about it.

Owns the vocabulary only. How runs are spread over processes, kept, summarised and drawn is the same for all experiments, and
is in files of its own; each experiment is a file as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dirigo_lab.experiments.costs.costs import RuntimeCosts

Label = str | int | float
Labels = Mapping[str, Label]  # what tells one setting of an experiment from the others
Numbers = npt.NDArray[np.float64]


class Scale(Enum):
    """Where an experiment runs."""

    PAPER = "paper"  # the simulator, with as many workers as the paper has
    MACHINE = "machine"  # Spark, on this machine


class Size(Enum):
    """How much of an experiment is run."""

    FULL = "full"
    QUICK = "quick"  # some minutes for all of them
    TINY = "tiny"  # some seconds, to check the direction of a claim in the tests


@dataclass
class Latencies:
    """The results of one job in one run: when each came, and how long after the input that let it come."""

    job: str
    objective_ms: float  # infinite if it has none
    at_s: Numbers
    latency_ms: Numbers

    @classmethod
    def of(cls, job: str, objective_ms: float, pairs: Iterable[tuple[float, float]]) -> Latencies:
        """From (when in seconds, latency in milliseconds)."""
        both = np.array(list(pairs), dtype=np.float64).reshape(-1, 2)
        return cls(job, objective_ms, both[:, 0], both[:, 1])


@dataclass
class Outcome:
    """What one run of one setting gave."""

    labels: Labels
    seed: int
    latencies: Sequence[Latencies]
    figures: Mapping[str, float] = field(default_factory=dict)  # whatever else was measured, one number each
    per_worker: Mapping[str, Sequence[float]] = field(default_factory=dict)  # or one number per worker


@dataclass(frozen=True)
class Spread:
    """A figure over the seeds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class ResultRow:
    """One job in one setting, over all seeds."""

    labels: Labels
    job: str  # empty for what concerns the run as a whole
    results: int  # per run, on average
    # From latencies: p5, p25, p50, p75, p95, p99, max and mean in milliseconds, satisfaction from 0 to 1; and the figures.
    values: Mapping[str, Spread]

    def __getitem__(self, name: str) -> float:
        return self.values[name].median


class ExperimentSummary:
    """All rows of an experiment at one scale."""

    def __init__(self, rows: Sequence[ResultRow], outcomes: Sequence[Outcome]) -> None:
        self.rows = rows
        self.outcomes = outcomes

    def all(self, *, job: str | None = None, **labels: Label) -> list[ResultRow]:
        """The rows with these labels, in the order of the settings."""
        return [
            row
            for row in self.rows
            if (job is None or row.job == job) and all(row.labels.get(name) == value for name, value in labels.items())
        ]

    def one(self, *, job: str | None = None, **labels: Label) -> ResultRow:
        found = self.all(job=job, **labels)
        if len(found) != 1:
            raise LookupError(f"{len(found)} rows have the labels {labels} and the job {job}, and not one")
        return found[0]

    def values_of(self, label: str) -> list[Label]:
        """The different values of a label, in the order of the settings."""
        return list(dict.fromkeys(row.labels[label] for row in self.rows if label in row.labels))


@dataclass(frozen=True)
class Claim:
    """What the paper says, what we found, and whether that is the same in direction and order."""

    text: str
    paper: str
    ours: str
    holds: bool
    why: str = ""  # where it does not: the reason, as far as it was looked into


class Experiment(ABC):
    """One experiment of the paper, or of our own."""

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    spark_workers: ClassVar[int | None] = None  # how many it needs on Spark; None if it is for the simulator only

    def runs_at(self, scale: Scale) -> bool:
        return scale is Scale.PAPER or self.spark_workers is not None

    def is_simulated(self, scale: Scale, labels: Labels) -> bool:  # noqa: ARG002 - those that compare both have such settings
        """Whether a setting runs in the simulator."""
        return scale is Scale.PAPER

    @abstractmethod
    def settings(self, scale: Scale, size: Size) -> list[Labels]:
        """What is run, in the order in which it is shown."""

    @abstractmethod
    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        """Run one setting in the simulator. The same seed gives the same outcome, to the last digit."""

    def same_as(self, labels: Labels, size: Size) -> tuple[str, Labels] | None:  # noqa: ARG002 - most share no run
        """The experiment and the setting, if there is one, whose simulated run is this very one."""
        return None

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        """Run one setting on a cluster of ``spark_workers`` workers."""
        raise NotImplementedError(f"{self.name} runs in the simulator only")

    @abstractmethod
    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:
        """The paper's claims beside what was found."""

    @abstractmethod
    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        """Draw what was found on a figure of matplotlib's, as the paper's figure does."""

    @abstractmethod
    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:
        """What the paper does not state and was chosen here, and why; a sentence each."""
