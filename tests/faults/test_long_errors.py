"""An error may say as much as it likes: what is told and kept of it is bounded, and ends as it ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from dirigo.flow.errors import SAID_CHARACTERS_MOST, failure_of
from dirigo.runtime import control
from dirigo.runtime.errors import JobFailed
from dirigo.runtime.failures import ERROR_CHARACTERS_MOST, TRACE_CHARACTERS_MOST
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, counting, numbers
from runtime.one_worker import OneWorker

LENGTH = 5_000_000
MARK = "characters in all) ..."


def long_error() -> ValueError:
    return ValueError("first " + "x" * LENGTH + " last")


def failing_row(row: Any) -> Any:
    raise long_error()


def failing_read(first: int, count: int) -> Any:
    raise long_error()


class FailingAtTheEnd(dg.Function):
    """Fails not on a row."""

    def on_message(self, context: Any, row: Any) -> None:
        """Nothing yet."""

    def on_end(self, context: Any) -> None:
        raise long_error()


class FailingToArrive:
    """A function that cannot be read at the workers."""

    def __call__(self, row: Any) -> Any:
        return row

    def __reduce__(self) -> Any:
        return (failing_row, (0,))


def mapping(function: Callable[[Any], Any]) -> dg.Dataflow:
    flow = dg.Dataflow("long")
    flow.source(dg.from_generator(numbers, SCHEMA, 10, block=10)).map(function, SCHEMA).sink(dg.to_spark(), name="out")
    return flow


def ending() -> dg.Dataflow:
    flow = dg.Dataflow("long")
    flow.source(dg.from_generator(numbers, SCHEMA, 10, block=10)).process(FailingAtTheEnd, SCHEMA).sink(
        dg.to_spark(), name="out"
    )
    return flow


def reading() -> dg.Dataflow:
    flow = dg.Dataflow("long")
    flow.source(dg.from_generator(failing_read, SCHEMA, 10, block=10)).sink(dg.to_spark(), name="out")
    return flow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("logs")
    with LocalCluster(folder, 1) as made:
        yield made, folder


CASES: dict[str, tuple[Callable[[], dg.Dataflow], str]] = {
    "a row": (lambda: mapping(failing_row), "cannot handle the row"),
    "the end": (ending, r"operator 'process' cannot handle the call on_end\(\): ValueError: first x"),
    "a source": (reading, "source 'generator' failed: ValueError: first x"),
    "its code": (lambda: mapping(FailingToArrive()), "worker 0 cannot install the job: ValueError: first x"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_of_a_long_error_is_bounded(cluster: tuple[LocalCluster, Path], case: str) -> None:
    made, folder = cluster
    build, expected = CASES[case]
    job = made.submit(build())
    with pytest.raises(JobFailed, match=expected):
        job.wait(PATIENCE_S)
    status = job.status()
    assert status.error is not None
    assert status.traceback is not None
    assert len(status.error) <= ERROR_CHARACTERS_MOST
    assert len(status.traceback) <= TRACE_CHARACTERS_MOST
    assert status.error.count(MARK) == 1
    assert MARK in status.traceback
    assert "x last" in status.error
    assert made.client.log_info(job.id).failed == status.error
    assert sum(file.stat().st_size for file in (folder / job.id).rglob("*") if file.is_file()) < 50_000


def test_a_worker_reports_no_more_than_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OneWorker(tmp_path, monkeypatch) as alone:
        job = alone.start(counting("long", rows=10, sink=dg.to_nothing())[0])
        alone.core.fail_for(long_error(), job.id)
        (report,) = [each for each in alone.core.reports if isinstance(each, control.ActorFailed)]
        assert len(report.error) <= ERROR_CHARACTERS_MOST
        assert report.traceback is not None
        assert len(report.traceback) <= TRACE_CHARACTERS_MOST
        alone.core.reports.clear()


def test_what_an_operator_says_leaves_room_for_the_sentence_around_it() -> None:
    said = str(failure_of("x" * 300, long_error()))
    assert SAID_CHARACTERS_MOST // 2 < len(said) < ERROR_CHARACTERS_MOST
    assert said.endswith("x last")
    assert f"({LENGTH + len('ValueError: first  last'):,} {MARK}" in said
