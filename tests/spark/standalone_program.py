"""Run by a test in a process of its own: ten queries on three workers of a standalone cluster, results into a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dirigo.spark.cluster import Cluster
from dirigo_lab.nexmark.on_spark import run_on_cluster
from spark.query_rows import EVENTS, QUERIES, RATE


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def main() -> None:
    master, out = sys.argv[1], Path(sys.argv[2])
    with Cluster(3, master=master) as cluster:
        cluster.wait_ready()
        # A worker's parent is PySpark's daemon, whose parent is the executor.
        executors = [parent(parent(worker.pid)) for worker in cluster.status().workers]
        reports = run_on_cluster(cluster, QUERIES, EVENTS, RATE, out, workers=3)
    print(json.dumps({"rows": {report.query: report.rows for report in reports}, "executors": executors}))  # noqa: T201


if __name__ == "__main__":
    main()
