"""Jobs that go on from a savepoint: both runs together come to what one run comes to that nobody disturbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.clusters import LocalCluster, until
from runtime.savepoints.flows_to_stop import Results, expected, flow_of, keyed


@pytest.mark.parametrize(("before", "after"), [((2, 4), (3, 8)), ((3, 8), (2, 3))])
def test_another_job_goes_on_where_one_was_stopped(tmp_path: Path, before: tuple[int, int], after: tuple[int, int]) -> None:
    results, savepoint = Results(), tmp_path / "savepoint"
    with LocalCluster(tmp_path / "logs", before[0], tmp_path / "snapshots", every_s=5) as cluster:
        flow, sinks = flow_of(partitions=before[1])
        job = cluster.submit(flow)
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        status = job.stop(savepoint=savepoint, timeout_s=60)
        assert job.wait(60).state == "finished"
        assert status.id == job.id
        assert job.status().stopped_into == str(savepoint)
        results.add(sinks)
    first = sum(sum(each.values()) for each in results.rows.values())
    others = tmp_path / "other snapshots" if after[0] == 3 else None  # a service that takes none can begin with one, too
    with LocalCluster(tmp_path / "other logs", after[0], others, every_s=0.3) as cluster:
        flow, sinks = flow_of(keyed, partitions=after[1])
        job = cluster.submit(flow, savepoint=savepoint)
        status = job.wait(60)
        assert (status.state, status.generation, status.began_with) == ("finished", 0, str(savepoint))
        results.add(sinks)
    wanted = expected()
    assert 0 < first < sum(sum(each.values()) for each in wanted.values())
    for name, rows in wanted.items():
        assert results.rows[name] == rows, name
