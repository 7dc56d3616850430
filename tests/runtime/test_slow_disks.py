"""A disk that does not answer for a while holds up those who wait for it, and nobody else."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dirigo as dg
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime.client.shipment import named_shipment
from dirigo.runtime.control import Install
from dirigo.runtime.ingest.pusher import StagingHeader
from dirigo.runtime.worker.installed_job import InstalledJob
from runtime.one_worker import OneWorker, SamePlan

SOON_S = 10.0


def test_a_job_is_removed_while_its_rows_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who removes it is the thread that answers the controller and all other workers."""
    (tmp_path / "pushed" / "rows").mkdir(parents=True)
    flow = dg.Dataflow("pushed")
    flow.source(PushedSource({"n": "int64"})).sink(dg.to_nothing())
    answers, waits = threading.Event(), threading.Event()

    def fsync(_: int) -> None:
        waits.set()
        assert answers.wait(2 * SOON_S)

    with OneWorker(tmp_path, monkeypatch) as worker, ThreadPoolExecutor(2) as threads:
        core = worker.core
        shipment, strategy = pickle.dumps(SamePlan(flow)), named_shipment("fifo")[0]
        install = Install("pushed", shipment, (0,), 1 << 20, strategy, str(tmp_path))
        job = InstalledJob(install, 0, core.post_result, core.schemas, tmp_path / "worker")
        assert job.keeps_rows
        core.add(job)
        monkeypatch.setattr(os, "fsync", fsync)
        try:
            staged = threads.submit(job.stage, StagingHeader("pushed", "pushed", 0, "a", 0, last=True), [])
            assert waits.wait(SOON_S)
            threads.submit(core.remove, "pushed").result(SOON_S)
        finally:
            answers.set()
        assert staged.result(SOON_S).error is None
