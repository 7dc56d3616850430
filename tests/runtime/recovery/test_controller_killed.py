"""A controller is killed with its whole process; the next one with the same folders goes on with the jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

import dirigo as dg
from runtime.clusters import SCHEMA, LocalCluster, until
from runtime.recovery.flows_to_kill import slow_numbers

ROWS = 8_000


def serve(folder: Path) -> None:
    """In a process of its own, until it is killed."""
    with LocalCluster(folder / "logs", workers=2, snapshots=folder / "snapshots", every_s=0.2) as cluster:
        flow = dg.Dataflow("again")
        source = flow.source(dg.from_generator(slow_numbers, SCHEMA, ROWS, block=20, time="ts", name="numbers"), splits=2)
        source.sink(dg.to_parquet(folder / "rows"))
        source.key_by("key").window(dg.Tumbling("1s")).aggregate(rows=dg.count()).sink(dg.to_memory())
        job = cluster.submit(flow)
        until(lambda: job.status().snapshot is not None, "a snapshot is there")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        time.sleep(600)


def test_a_job_goes_on_in_the_next_service(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from {__name__} import serve; serve(Path({str(tmp_path)!r}))"
    paths = os.pathsep.join(sys.path)
    environment = os.environ | {"PYTHONPATH": paths}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGKILL)
    with LocalCluster(tmp_path / "logs", workers=2, snapshots=tmp_path / "snapshots", every_s=0.2) as cluster:
        until(lambda: all(job.ended_s for job in cluster.client.jobs()), "the job has ended")
        (status,) = cluster.client.jobs()
        assert (status.state, status.recoveries) == ("finished", 1)
        assert sorted(status.workers) == [0, 1]  # not only the one that came first
        rows = list(cluster.client.job("again").results())
    written = pq.read_table(tmp_path / "rows")["n"].to_pylist()
    assert sorted(written) == list(range(ROWS))
    wanted = Counter((n % 13, n // 1_000 * 1_000) for n in range(ROWS))
    assert Counter({(row["key"], row["window_start"]): row["rows"] for row in rows}) == wanted
    assert len(rows) == len(wanted)
