"""A query that is stopped before Spark has begun with it does not run, however long Spark takes to begin."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dirigo.spark.input import source as module
from dirigo.spark.input.queries import Feeding
from dirigo.spark.input.source import BatchQuery
from runtime.clusters import PATIENCE_S, until


class SlowSpark:
    """A classic session and its DataFrame: a job can be cancelled only once it has begun, as with Spark."""

    def __init__(self) -> None:
        self.sparkSession = self.sparkContext = self.write = self
        self._jsc = object()
        self.may_be_tagged = threading.Event()
        self.may_begin = threading.Event()
        self.is_asked_to_save = threading.Event()
        self.has_begun = False
        self.is_cancelled = threading.Event()
        self.may_be_tagged.set()

    def addJobTag(self, tag: str) -> None:  # noqa: N802
        self.may_be_tagged.wait(PATIENCE_S)

    def setInterruptOnCancel(self, is_on: bool) -> None:  # noqa: N802
        """There is nothing to interrupt."""

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
        if self.has_begun:
            self.is_cancelled.set()

    def format(self, name: str) -> SlowSpark:
        return self

    def options(self, **options: str) -> SlowSpark:
        return self

    def mode(self, name: str) -> SlowSpark:
        return self

    def save(self) -> None:
        self.is_asked_to_save.set()
        self.may_begin.wait(PATIENCE_S)
        self.has_begun = True
        if not self.is_cancelled.wait(PATIENCE_S):
            raise AssertionError("nobody cancelled it")
        raise RuntimeError("the job was cancelled")


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> SlowSpark:
    monkeypatch.setattr(module, "_INTERRUPTIONS", 2)
    monkeypatch.setattr(module, "_INTERRUPTION_S", 0.02)
    return SlowSpark()


def test_a_query_that_is_stopped_before_it_is_given_to_spark_is_not_given(spark: SlowSpark) -> None:
    spark.may_be_tagged.clear()
    query = BatchQuery(spark, {"job": "job", "source": "rows"})
    query.stop()
    spark.may_be_tagged.set()
    assert query.wait(PATIENCE_S)
    assert query.error is None
    assert not spark.is_asked_to_save.is_set()


def test_a_query_that_spark_begins_long_after_it_was_stopped_is_cancelled(spark: SlowSpark) -> None:
    query = BatchQuery(spark, {"job": "job", "source": "rows"})
    assert spark.is_asked_to_save.wait(PATIENCE_S)
    query.stop()
    assert not query.has_ended
    spark.may_begin.set()
    assert query.wait(PATIENCE_S)
    assert spark.is_cancelled.is_set()
    assert query.error is None


class Feeds:
    """A job, its client, and a source whose query takes long to start."""

    id = "job"
    run = "run"

    def __init__(self) -> None:
        self.access = self
        self.is_starting = threading.Event()
        self.may_start = threading.Event()
        self.query = self
        self.is_stopped = False

    def status(self) -> Any:
        class Running:
            state = "running"

        return Running

    def start(self, job: str, source: str, service: str) -> Feeds:
        self.is_starting.set()
        self.may_start.wait(PATIENCE_S)
        return self

    def wait(self, timeout_s: float) -> bool:
        return self.is_stopped

    def stop(self) -> None:
        self.is_stopped = True

    def close_thread(self) -> None:
        """Nothing is open."""


def test_a_query_that_starts_after_its_job_was_stopped_is_stopped() -> None:
    feeds: Any = Feeds()
    feeding = Feeding(feeds)
    thread = threading.Thread(target=feeding._feed, args=(feeds, "rows", feeds))
    thread.start()
    assert feeds.is_starting.wait(PATIENCE_S)
    feeding.stop_queries("job")
    assert not feeds.is_stopped
    feeds.may_start.set()
    until(lambda: feeds.is_stopped, "it is stopped")
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
