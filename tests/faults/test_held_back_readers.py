"""Readers of a job with snapshots: they see what is committed, each row once, over a rollback too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dirigo.runtime.control import Manifest
from dirigo.spark.results.reader import LogReader, LogStreamReader
from faults.posting import SCHEMA, Posting, numbers_in, rows
from runtime.clusters import until

JOB = "held~9"


@pytest.fixture
def posting(tmp_path: Path) -> Iterator[Posting]:
    with Posting(tmp_path / "logs") as made:
        manifest = Manifest(1, 1, {"out": (1, SCHEMA.serialize().to_pybytes())}, {})
        made.controller.logs.add(JOB, "held", manifest, holds_back=True)
        yield made


def cut(posting: Posting, snapshot: int, run: str = JOB) -> dict[str, int]:
    """Have a snapshot cut the log; returns where, once that is on disk."""
    posting.post(run, b"", 0, snapshot=snapshot)
    until(lambda: posting.controller.logs.cuts(JOB, snapshot) is not None, "the cut is on disk")
    cuts = posting.controller.logs.cuts(JOB, snapshot)
    assert cuts is not None
    return cuts


def test_a_reader_that_waits_gets_rows_when_they_are_committed(posting: Posting) -> None:
    got: list[list[int]] = []

    def read() -> None:
        got.append(numbers_in(posting.client.log_read(JOB, "out", 0, 1 << 20, 30.0)))
        posting.client.close_thread()

    reader = threading.Thread(target=read)
    reader.start()
    posting.post(JOB, rows(1, 2), 2)
    cut(posting, 1)
    posting.post(JOB, rows(3), 1)
    reader.join(0.3)
    assert reader.is_alive()
    posting.controller.logs.commit(JOB, 1)
    reader.join(30)
    assert got == [[1, 2]]
    info = posting.client.log_info(JOB)
    assert (info.next, info.ended) == (1, False)


@pytest.mark.parametrize("from_folder", [False, True])
def test_a_stream_of_spark_sees_each_row_once_over_a_rollback(posting: Posting, tmp_path: Path, from_folder: bool) -> None:
    logs = posting.controller.logs
    options = {"path": str(tmp_path / "logs" / JOB / "out")} if from_folder else {"job": JOB}
    access = None if from_folder else posting.controller.access
    stream = LogStreamReader(access, options)
    at = stream.initialOffset()
    found: list[int] = []

    def read_on() -> None:
        nonlocal at
        end: dict[str, Any] = stream.reportLatestOffset()
        for part in stream.partitions(at, end):
            found.extend(n for batch in stream.read(part) for n in batch.column("n").to_pylist())
        at = end

    posting.post(JOB, rows(1), 1)
    posting.post(JOB, rows(2), 1)
    cuts = cut(posting, 1)
    read_on()
    assert found == []
    logs.commit(JOB, 1)
    until(lambda: posting.client.log_info(JOB).next == 2, "they are visible")
    posting.post(JOB, rows(3), 1)
    read_on()
    assert found == [1, 2]
    cut(posting, 2)  # which is not committed any more
    logs.roll_back(JOB, cuts, f"{JOB}.1", {})
    read_on()
    posting.post(JOB, rows(-1), 1)  # of the generation that is gone
    posting.post(f"{JOB}.1", rows(4), 1)
    cut(posting, 3, f"{JOB}.1")
    logs.commit(JOB, 3)
    posting.post(f"{JOB}.1", b"", -1)
    until(lambda: logs.has_ended(JOB), "all is on disk")
    posting.post(JOB, b"", -1)
    until(lambda: posting.client.log_info(JOB).next == 3, "they are visible")
    read_on()
    assert found == [1, 2, 4]
    assert not posting.client.log_info(JOB).ended
    logs.commit(JOB, 4)
    until(lambda: posting.client.log_info(JOB).ended, "it has ended")
    read_on()
    assert found == [1, 2, 4]
    (part,) = LogReader(access, options).partitions()
    assert (part.start, part.end) == (0, 3)
    stream.stop()
