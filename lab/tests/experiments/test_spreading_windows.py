"""Experiments that spread window functions only: everything else stays at home, and the windows do not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dirigo.flow.sources.load_shapes import constant
from dirigo.kernel import operator_of
from dirigo.scheduling import DirectSendRandom, RejectSendRandom
from dirigo_lab.experiments.simulated_tenants import FlowPool
from dirigo_lab.experiments.window_jobs.job_flow import WINDOWS, flow_of
from dirigo_lab.experiments.window_jobs.spreading_windows import spreading_windows
from dirigo_lab.experiments.window_jobs.window_job import WindowJob

WORKERS = 4


@pytest.mark.parametrize("kind", [RejectSendRandom, DirectSendRandom])
@pytest.mark.parametrize("is_narrow", [True, False])
def test_windows_alone_run_elsewhere(kind: type[RejectSendRandom | DirectSendRandom], is_narrow: bool) -> None:
    job = WindowJob("maxima", [constant(50.0)] * WORKERS, range(WORKERS), 1, 0.001, 0.001, 0.5, 60.0)
    strategy = spreading_windows(kind(WORKERS - 1)) if is_narrow else kind(WORKERS - 1)
    pool = FlowPool([flow_of(job, 3.0)], strategy, WORKERS, 0)
    elsewhere: Counter[str] = Counter()

    def note(_now: float, what: str, worker: int, message: Any) -> None:
        if what == "start":
            elsewhere[operator_of(message.to)] += pool.homes[message.to] != worker

    pool.cluster.trace = note
    pool.run()
    assert elsewhere[WINDOWS] > 100
    assert any(count for operator, count in elsewhere.items() if operator != WINDOWS) is not is_narrow
