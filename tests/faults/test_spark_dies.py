"""Java is killed under a cluster: those who wait are told within seconds, and nothing is left in the way of another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands import PYTHON_PATH

# A process of its own, because the tests of a process share a session.
PROGRAM = """
import os, time
import dirigo as dg

def ticks(first, count):
    time.sleep(0.01)
    return [{"n": n} for n in range(first, first + count)]

def flow(name, rows):
    made = dg.Dataflow(name)
    made.source(dg.from_generator(ticks, {"n": int}, rows, block=10)).sink(out := dg.to_memory())
    return made, out

if __name__ == "__main__":
    cluster = dg.Cluster(2)
    cluster.wait_ready()
    endless, out = flow("endless", None)
    job = cluster.submit(endless)
    while not out.rows:
        time.sleep(0.05)
    os.kill(cluster._own_session._java.pid, 9)
    began = time.monotonic()
    try:
        job.wait(60)
    except dg.JobFailed as error:
        print(f"after {time.monotonic() - began:.1f} s: {error}")
    try:
        cluster.submit(flow("late", 10)[0])
    except Exception as error:
        print(f"refused: {error}")
    print("runs:", cluster.is_running)
    cluster.stop()
    with dg.Cluster(1) as another:
        another.wait_ready()
        numbers, out = flow("another", 20)
        another.run(numbers, timeout_s=60)
        print("rows:", len(out.rows))
"""
GONE = "Spark does not answer any more: its process was ended, or cannot be reached."


@pytest.mark.acceptance
def test_who_waits_is_told_when_java_dies_and_another_cluster_can_be_started(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": PYTHON_PATH}
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    told = ended.stdout.splitlines()
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    assert told[0].endswith(f"s: job 'endless' failed: {GONE}")
    assert told[1:] == [f"refused: the cluster cannot go on, so start another one: {GONE}", "runs: False", "rows: 20"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("dirigo-")] == []
