"""A savepoint on a real cluster: stopped there, resumed in the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

import dirigo as dg
from runtime.clusters import until
from runtime.savepoints.flows_to_stop import Results, expected, flow_of, keyed, slowly

pytestmark = pytest.mark.acceptance
ROWS = 12_000


def test_a_job_goes_on_in_another_cluster(tmp_path: Path) -> None:
    results = Results()
    with dg.Cluster(workers=2, snapshots=tmp_path / "snapshots", every="5s") as cluster:
        cluster.wait_ready()
        flow, sinks = flow_of(slowly, partitions=4, rows=ROWS)
        job = cluster.submit(flow)
        until(lambda: job.status().metrics.rows_in > 1_000, "it has read for a while")
        assert job.stop(savepoint=tmp_path / "savepoint").id == job.id
        assert job.wait(60).state == "finished"
        results.add(sinks)
    with dg.Cluster(workers=3, snapshots=tmp_path / "other snapshots", every="500ms") as cluster:
        cluster.wait_ready()
        flow, sinks = flow_of(keyed, partitions=8, rows=ROWS)
        status = cluster.submit(flow, savepoint=tmp_path / "savepoint").wait(120)
        assert (status.state, status.began_with) == ("finished", str(tmp_path / "savepoint"))
        assert 0 < status.metrics.rows_in < ROWS
        results.add(sinks)
    assert results.rows == expected(ROWS)
