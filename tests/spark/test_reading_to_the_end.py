"""Streams over results of a job that end when the job does, in a real Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import SparkSession

from dirigo.runtime.results.log import LogError
from dirigo.spark.data_source import dirigo_format
from dirigo.spark.results.reader import LogReader
from dirigo.spark.sessions import Reach, TaskAccess
from spark.standalone import wait_for
from spark.test_reading import LogHome, Results, Seen

PATIENCE_S = 120


@pytest.fixture
def home(classic_session: SparkSession, tmp_path: Path) -> Path:
    root = tmp_path / "logs"
    root.mkdir()
    classic_session.dataSource.register(dirigo_format(Reach({"run": TaskAccess(LogHome(str(root)))}, ("run",))))
    return root


@pytest.fixture
def queries(classic_session: SparkSession) -> Iterator[list[Any]]:
    """Those that a test starts; none goes on after it."""
    started: list[Any] = []
    yield started
    for query in started:
        query.stop()


def started(spark: SparkSession, queries: list[Any], seen: Seen, checkpoint: Path, *, ends: bool = True) -> Any:
    stream = spark.readStream.format("dirigo").option("job", "job").option("untilEnd", "true").load()
    writer = stream.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(checkpoint))
    query = (writer.trigger(availableNow=True) if ends else writer).start()
    queries.append(query)
    return query


def test_a_stream_ends_when_its_job_does(
    classic_session: SparkSession, queries: list[Any], home: Path, tmp_path: Path
) -> None:
    results, seen = Results(home), Seen()
    results.add(batches=3)
    query = started(classic_session, queries, seen, tmp_path / "checkpoint")
    for _ in range(3):  # what comes after the query has begun, too
        wait_for(lambda: seen.all == list(range(results.count)), "what is there has been read")
        assert query.isActive
        results.add(batches=2)
    results.log.end()
    assert query.awaitTermination(PATIENCE_S)
    assert query.exception() is None
    assert seen.all == list(range(results.count))
    assert len(seen.batches) > 1


def test_a_stream_over_a_job_that_has_ended_ends(
    classic_session: SparkSession, queries: list[Any], home: Path, tmp_path: Path
) -> None:
    results, seen = Results(home), Seen()
    results.add(batches=3)
    results.log.end()
    for _ in range(2):  # from its checkpoint there is nothing more
        assert started(classic_session, queries, seen, tmp_path / "checkpoint").awaitTermination(PATIENCE_S)
        assert seen.all == list(range(9))


def test_a_stream_that_waits_for_the_end_of_its_job_can_be_stopped(
    classic_session: SparkSession, queries: list[Any], home: Path, tmp_path: Path
) -> None:
    results, seen = Results(home), Seen()
    results.add(batches=1)
    query = started(classic_session, queries, seen, tmp_path / "checkpoint")
    wait_for(lambda: seen.all == list(range(3)), "what is there has been read")
    stopping = threading.Thread(target=query.stop, daemon=True)
    stopping.start()
    stopping.join(PATIENCE_S)
    assert not stopping.is_alive()
    assert not query.isActive


def test_a_stream_to_the_end_fails_with_its_job(
    classic_session: SparkSession, queries: list[Any], home: Path, tmp_path: Path
) -> None:
    results, seen = Results(home), Seen()
    results.add(batches=1)
    query = started(classic_session, queries, seen, tmp_path / "checkpoint")
    wait_for(lambda: seen.all == list(range(3)), "what is there has been read")
    (home / "job.failed").write_text("operator 'map' failed")
    with pytest.raises(StreamingQueryException, match="Job 'job' failed, so no more results will come: operator 'map'"):
        query.awaitTermination(PATIENCE_S)


def test_only_one_trigger_lets_a_stream_end(
    classic_session: SparkSession, queries: list[Any], home: Path, tmp_path: Path
) -> None:
    Results(home).add(batches=1)
    query = started(classic_session, queries, Seen(), tmp_path / "checkpoint", ends=False)
    with pytest.raises(StreamingQueryException, match=r"untilEnd=true needs \.trigger\(availableNow=True\)"):
        query.awaitTermination(PATIENCE_S)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"job": "job", "untilEnd": "perhaps"}, "untilEnd is 'perhaps'; it is either true or false"),
        ({"path": "logs", "untilEnd": "true"}, "untilEnd=true asks how the job is, which a folder does not know"),
    ],
)
def test_what_cannot_be_followed_is_said(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(LogError, match=sentence):
        LogReader(None, options)
