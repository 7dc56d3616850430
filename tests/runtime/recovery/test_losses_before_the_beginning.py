"""Losses of a worker before a job has begun count until it has begun: it may come back many times in its life."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from dirigo.runtime import control
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.controller.job_record import JobRecord
from dirigo.runtime.controller.membership import Slot
from dirigo.runtime.controller.placement import Placement


def test_losses_before_the_beginning_are_forgotten_once_a_job_has_begun() -> None:
    manifest = control.Manifest(leaves=1, partitions=1, sinks={}, pushed={}, splits=1)
    job = JobRecord("a~1", "a", manifest, b"", 1, b"", "", 0.0)
    failures: list[str] = []
    nothing = SimpleNamespace(
        slots={0: Slot(0)},
        of_run=lambda run: job if run == job.run else None,
        order_all=lambda *_: None,
        take_back=lambda job, _: job.take_back(),
        fail=lambda _, error, __: failures.append(error),
        requests=SimpleNamespace(commits=SimpleNamespace(go_on=lambda _: None)),
    )
    placement = Placement(cast(Controller, nothing))
    for _ in range(4):  # four recoveries, months apart
        job.place((0,))
        placement.note_lost(job, 0, "ended")
        job.place((0,))
        placement.note_installed(nothing.slots[0], control.Installed(job.run))
        assert job.state == "running"
        job.take_back()
    assert not failures
