"""A snapshot of a simulated flow, while it is taken and afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from dirigo.flow.plan.description import PlanDescription
from dirigo.flow.plan.states import StageCapture
from dirigo.flow.sources.reader import ReaderCapture
from dirigo.kernel import Kept


@dataclass
class SnapshotTaken:
    """One cut. Everything goes by places: by addresses without the job."""

    number: int
    plan: PlanDescription
    readers: dict[str, ReaderCapture] = field(default_factory=dict)
    captures: dict[str, StageCapture | None] = field(default_factory=dict)  # None: it had ended
    kept: dict[str, Kept] = field(default_factory=dict)
    rows: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)  # that a sink's actor had written

    def __str__(self) -> str:
        ended = sum(capture is None for capture in self.captures.values())
        return f"snapshot {self.number} ({ended} of {len(self.captures)} actors had ended)"
