"""Functions that do what nobody expects of them: it is told where, and harms their own job only."""

from __future__ import annotations

import logging
import os
import sys
from asyncio import CancelledError
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from dirigo.runtime.errors import JobFailed
from runtime.clusters import PATIENCE_S, LocalCluster, counting, mapped, until

NO_UNICODE = os.fsdecode(b"caf\xe9.csv")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("logs"), workers=1) as cluster:
        yield cluster


@pytest.fixture
def neighbour(cluster: LocalCluster) -> Iterator[Any]:
    """A job of somebody else's at the same worker, which goes on whatever happens."""
    flow, _ = counting("neighbour", rows=None)
    handle = cluster.client.submit(flow)
    until(lambda: handle.status().state == "running", "the neighbour runs")
    yield handle
    assert handle.status().state == "running"
    handle.cancel()


def failure_of(cluster: LocalCluster, flow: dg.Dataflow) -> JobFailed:
    with pytest.raises(JobFailed) as caught:
        cluster.client.submit(flow).wait(PATIENCE_S)
    return caught.value


class Unspeakable(Exception):  # noqa: N818
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises(error: BaseException | type[BaseException]) -> Any:
    def function(row: Any) -> Any:
        raise error

    return function


def test_a_text_that_is_no_unicode_is_escaped(cluster: LocalCluster, neighbour: Any) -> None:
    failure = failure_of(cluster, mapped(raises(ValueError(f"cannot read {NO_UNICODE}")), "no-unicode")[0])
    assert "operator 'map' cannot handle the row" in str(failure)
    assert "cannot read caf\\udce9.csv" in str(failure)
    assert "caf\\udce9.csv" in str(failure.remote_traceback)


def test_a_source_whose_error_is_no_unicode_fails_its_own_job(cluster: LocalCluster, neighbour: Any) -> None:
    def rows(first: int, count: int) -> Any:
        raise OSError(f"cannot read {NO_UNICODE}")

    flow = dg.Dataflow("no-unicode-read")
    flow.source(dg.from_generator(rows, {"n": int}, 10)).sink(dg.to_memory())
    assert "cannot read caf\\udce9.csv" in str(failure_of(cluster, flow))


def test_bad_rows_whose_error_is_no_unicode_go_to_the_stream_of_errors(cluster: LocalCluster) -> None:
    flow = dg.Dataflow("kept-apart", on_error="side_output")
    errors = dg.to_memory()
    rows = flow.source(dg.from_iterable([{"n": 1}]))
    rows.map(raises(ValueError(NO_UNICODE)), schema={"n": int}).sink(dg.to_nothing())
    flow.errors.sink(errors)
    cluster.client.submit(flow).wait(PATIENCE_S)
    assert [row["error"] for row in errors.rows] == ["ValueError: caf\\udce9.csv."]


class Enough(BaseException):
    """What no ``except Exception`` catches."""


def noted(error: BaseException) -> BaseException:
    error.add_note("A note of the user's")
    return error


PASS_ALL = {
    "KeyboardInterrupt": KeyboardInterrupt(),
    "SystemExit": SystemExit(),
    "GeneratorExit": GeneratorExit(),
    "CancelledError": CancelledError(),
    "Enough": Enough(),
    "BaseExceptionGroup: several (1 sub-exception)": BaseExceptionGroup("several", [Enough()]),
    "Enough: with a note. A note of the user's": noted(Enough("with a note")),
}


@pytest.mark.parametrize("said", PASS_ALL)
def test_a_function_that_raises_what_passes_all_operators_is_named(cluster: LocalCluster, neighbour: Any, said: str) -> None:
    failure = failure_of(cluster, mapped(raises(PASS_ALL[said]), "quits")[0])
    assert f"job 'quits' failed: {said}. It was raised in operator 'map'." in str(failure)


@pytest.mark.parametrize("said", PASS_ALL)
def test_a_source_that_raises_what_passes_all_operators_is_named(cluster: LocalCluster, neighbour: Any, said: str) -> None:
    error = PASS_ALL[said]

    def rows(first: int, count: int) -> Any:
        raise error

    flow = dg.Dataflow("quits-reading")
    flow.source(dg.from_generator(rows, {"n": int}, 10, name="numbers")).sink(dg.to_memory())
    failure = failure_of(cluster, flow)
    assert f"job 'quits-reading' failed: {said}. It was raised in source 'numbers'." in str(failure)


@pytest.mark.parametrize("error", [SystemExit(), Enough()], ids=["SystemExit", "Enough"])
def test_a_function_of_a_group_that_raises_what_passes_all_operators_is_named(
    cluster: LocalCluster, neighbour: Any, error: BaseException
) -> None:
    flow = dg.Dataflow("quits-reducing")
    rows = flow.source(dg.from_iterable([{"n": n} for n in range(10)]))

    def combined(left: Any, right: Any) -> Any:
        raise error

    rows.with_columns(key=1).key_by("key").scan(combined).named("combined").sink(dg.to_memory())
    assert "It was raised in operator 'combined'." in str(failure_of(cluster, flow))


def test_an_error_without_a_text_is_blamed_on_the_operator_that_raised_it(cluster: LocalCluster, neighbour: Any) -> None:
    failure = failure_of(cluster, mapped(raises(Unspeakable()), "unspeakable")[0])
    assert "operator 'map' cannot handle the row" in str(failure)
    assert "Unspeakable, which cannot say what happened." in str(failure)


def test_the_figures_of_a_job_that_fails_at_once_are_kept(cluster: LocalCluster) -> None:
    def fails_at_the_end(row: Any) -> Any:
        return {"n": 1 // (499 - row["n"])}

    flow, _ = mapped(fails_at_the_end, "fails-at-once", rows=500)
    handle = cluster.client.submit(flow)
    with pytest.raises(JobFailed):
        handle.wait(PATIENCE_S)
    metrics = handle.status().metrics
    assert (metrics.rows_in, metrics.rows_out) == (500, 400)


def test_streams_that_a_function_closes_stay_open_for_others(cluster: LocalCluster, tmp_path: Path) -> None:
    def closes(row: Any) -> Any:
        sys.stdout.close()
        sys.stderr.close()
        return {"n": row["n"]}

    def speaks(row: Any) -> Any:
        print("said", file=sys.stdout)  # noqa: T201
        print("said", file=sys.stderr)  # noqa: T201
        logging.getLogger("dirigo.tests").warning("said")
        return {"n": row["n"]}

    for function, name in ((closes, "closes"), (speaks, "speaks")):
        flow, out = mapped(function, name, rows=100)
        cluster.client.submit(flow).wait(PATIENCE_S)
        assert len(out.rows) == 100
