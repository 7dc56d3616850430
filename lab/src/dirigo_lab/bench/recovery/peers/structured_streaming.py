"""Spark Structured Streaming as a peer: two executors, each a process, of which one is killed; or all of it, query included.

The job is a grouped aggregate of Spark's own, which runs in Java: the number of rows of a key, and its newest row with its
bytes. Functions in Python with a state (`transformWithState`) are slower by far, as docs/operating/performance.md tells.
Batches follow each other without a pause, each is committed, and its results are a file named by the number of the batch: so
they are there once. Bytes are all alike, and Spark compresses what it keeps, which Dirigo does not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pyspark

from dirigo_lab.bench.recovery.keyed_rows import StateShape
from dirigo_lab.bench.recovery.peers.started import StartedGroup

EXECUTORS = 2
_EXECUTOR = "CoarseGrainedExecutorBackend"


class StructuredStreamingPeer:
    """A driver and its executors, which Spark starts anew itself; a query that was killed, we start from its checkpoint."""

    name = "Structured Streaming"
    newest_only = True

    def __init__(self, *, whole_query: bool) -> None:
        self.killed = "the query" if whole_query else "an executor"
        self._whole_query = whole_query
        self._work = ""
        self._home = Path()
        self._process: StartedGroup | None = None

    def start(self, folder: Path, rows: Path, told: Path, shape: StateShape) -> None:
        self._home = folder / "spark"
        work = {"rows": str(rows), "told": str(told), "checkpoint": str(folder / "checkpoint"), "scratch": str(folder)}
        # One executor may have to hold all of the state, for a while, and of two batches.
        memory_mb = 1_000 + 3 * shape.total_bytes // 1_000_000
        self._work = json.dumps({**work, "bytes_per_key": shape.bytes_per_key, "executor_memory_mb": memory_mb})
        _make_home(self._home)
        self._begin()

    def _begin(self) -> None:
        command = [sys.executable, "-m", "dirigo_lab.bench.recovery.peers.structured_streaming_process", self._work]
        environment = {"SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        self._process = StartedGroup(command, self._home.parent / "spark.log", environment)

    def kill(self, number: int) -> float:
        assert self._process is not None
        if self._whole_query:
            killed_ms = self._process.kill()
            self._begin()
            return killed_ms
        executors = self._process.members(_EXECUTOR)
        killed_ms = time.time() * 1000
        os.kill(executors[number % len(executors)], signal.SIGKILL)
        return killed_ms

    def is_whole(self) -> bool:
        assert self._process is not None
        self._process.check(self.name)
        return len(self._process.members(_EXECUTOR)) == EXECUTORS

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()


def _make_home(home: Path) -> None:
    """Spark as it is installed, but with a place of its own for what executors write: they write into Spark's home."""
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
