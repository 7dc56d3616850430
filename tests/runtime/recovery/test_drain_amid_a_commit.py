"""A source is ended while a micro-batch is at some workers and not at others: the job has all of its rows or none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dirigo.runtime import control
from dirigo.runtime.errors import ControlError
from runtime.clusters import PATIENCE_S, LocalCluster, until
from runtime.recovery.pushing import SPLITS, Outsider, pushed_flow


@pytest.mark.parametrize("keeps", [True, False])
def test_a_micro_batch_is_whole_though_its_source_is_ended(
    tmp_path: Path, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = tmp_path / "snapshots" if keeps else None
    with LocalCluster(tmp_path / "logs", workers=2, snapshots=snapshots) as cluster, ThreadPoolExecutor(1) as thread:
        job = cluster.submit(pushed_flow(tmp_path))
        until(lambda: job.status().state == "running", "it runs")
        outsider = Outsider(cluster.controller.access, job.id, 1)
        places = cluster.client.source_places(job.id).splits
        refs = [outsider.stage_at(split, [split]) for split in range(SPLITS)]
        controller, order = cluster.controller, cluster.controller.order
        told: list[int] = []

        def full_at_one(worker: int, what: control.ToWorker) -> None:
            if isinstance(what, control.Release) and worker == places[0].worker and not what.whole:
                controller.requests.commits.released(worker, control.Released(what.request, "full"))
                told.append(worker)
            else:
                order(worker, what)

        monkeypatch.setattr(controller, "order", full_at_one)
        commit = thread.submit(outsider.commit, 0, refs)
        until(lambda: len(told) > 1, "it was tried again")
        job.drain()
        assert job.wait(PATIENCE_S).state == "finished"
        if (error := commit.exception(PATIENCE_S)) is not None:
            assert isinstance(error, ControlError)
            assert "is over" in str(error)
        assert sorted(pq.read_table(tmp_path / "rows")["n"].to_pylist()) == list(range(SPLITS))
