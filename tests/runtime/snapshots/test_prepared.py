"""Which of what sinks have prepared becomes visible with which snapshot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import dirigo as dg
from dirigo.flow.event_time.watermark import ChannelProgress
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.states import StageCapture, StageHead
from dirigo.flow.rows.schema import as_schema
from dirigo.runtime.worker.installed_job import InstalledJob

ACTOR = "job/out/0"
AT_ITS_END = 0


class Sink(SinkRows):
    """Notes what is committed."""

    def __init__(self) -> None:
        super().__init__("out", as_schema({"n": int}, "out"), dg.to_nothing())
        self.committed: list[Any] = []

    def commit(self, prepared: Any) -> None:
        self.committed += [] if prepared is None else [prepared]


class Job:
    """As much of a job at a worker as its sinks have to do with."""

    def __init__(self) -> None:
        self.sink = Sink()
        self.job = cast(InstalledJob, SimpleNamespace(operators={ACTOR: self.sink}, _prepared={}, _last_cut={}))

    def prepares(self, number: int, own: Any) -> None:
        captured = StageCapture(StageHead(0, cast(ChannelProgress, ())), own)
        InstalledJob.note_prepared(self.job, number, ACTOR, captured)

    def commits(self, number: int) -> list[Any]:
        """What becomes visible."""
        self.sink.committed = []
        InstalledJob.commit(self.job, number)
        return self.sink.committed


def test_the_last_of_several_snapshots_is_committed_once() -> None:
    job = Job()
    for number in (1, 2, 3):
        job.prepares(number, f"cut {number}")
    assert job.commits(2) == ["cut 2"]
    assert job.commits(2) == []
    assert job.commits(3) == ["cut 3"]


@pytest.mark.parametrize("own", ["cut 1", None])
def test_what_came_after_a_snapshot_is_not_visible_with_it_though_its_sink_has_ended(own: str | None) -> None:
    """Or it would come a second time if the job went back to that snapshot."""
    job = Job()
    job.prepares(1, own)
    job.prepares(AT_ITS_END, "the end")
    assert job.commits(1) == ([] if own is None else [own])
    assert job.commits(2) == ["the end"]


def test_a_sink_that_had_ended_before_is_visible_with_the_next_snapshot() -> None:
    job = Job()
    job.prepares(AT_ITS_END, "the end")
    assert job.commits(1) == ["the end"]
    assert job.commits(2) == []


def test_snapshots_that_come_to_nothing_leave_nothing_behind() -> None:
    """Each cut names all that waits: a folder that is full for a day must not fill the memory."""
    job = Job()
    for number in range(1, 1_000):
        job.prepares(number, f"cut {number}")
    assert len(job.job._prepared[ACTOR]) < 10
    assert job.commits(999) == ["cut 999"]
