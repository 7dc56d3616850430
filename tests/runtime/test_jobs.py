"""Jobs on a cluster of processes: several of them at once, what they fail on, and how they end."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from dirigo.runtime.client.client import Client
from dirigo.runtime.errors import ControlError, JobFailed
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, counting, mapped, numbers, sorted_rows, until, wait_for_file


def expected(flow: dg.Dataflow) -> list[tuple[Any, ...]]:
    return sorted_rows(dg.testing.run(flow).rows())


# --- several jobs ----------------------------------------------------------------------------------------------------------


def test_several_jobs_at_once(cluster: LocalCluster) -> None:
    flows = [counting(f"job-{number}", rows=5_000 * (number + 1)) for number in range(4)]
    handles = [cluster.submit(flow) for flow, _ in flows]
    for handle, (flow, out) in zip(handles, flows, strict=True):
        handle.wait(PATIENCE_S)
        assert sorted_rows(out.rows) == expected(flow)


def test_jobs_of_one_client_in_several_threads(cluster: LocalCluster) -> None:
    results: dict[int, int] = {}

    def run(number: int) -> None:
        flow, out = counting(f"thread-{number}", rows=1_000)
        cluster.run(flow)
        results[number] = sum(row["count"] for row in out.rows)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), 1_000)


def test_a_function_that_raises_fails_its_job_alone(cluster: LocalCluster, tmp_path: Path) -> None:
    go_on = str(tmp_path / "go on")

    def patient(row: Any) -> Any:
        wait_for_file(go_on)
        return {"n": row.n}

    def refusing(row: Any) -> Any:
        if row.n == 777:
            raise ValueError("seven is enough")
        return {"n": row.n}

    other_flow, other_out = mapped(patient, "patient")
    other = cluster.submit(other_flow)
    flow, _ = mapped(refusing, "refusing")
    handle = cluster.submit(flow)
    Path(go_on).touch()
    with pytest.raises(JobFailed, match="seven is enough") as caught:
        handle.wait(PATIENCE_S)
    assert "refusing" in str(caught.value.remote_traceback)
    assert "ValueError" in str(caught.value.remote_traceback)
    assert "777" in str(caught.value)
    assert handle.status().state == "failed"
    other.wait(PATIENCE_S)
    assert len(other_out.rows) == 1_000


@pytest.mark.parametrize("how", [SystemExit, KeyboardInterrupt, GeneratorExit], ids=lambda kind: kind.__name__)
def test_a_function_that_wants_to_end_the_process_ends_its_job_only(cluster: LocalCluster, how: type[BaseException]) -> None:
    def leaving(row: Any) -> Any:
        raise how("I go")

    handle = cluster.submit(mapped(leaving, "leaving")[0])
    with pytest.raises(JobFailed, match="I go"):
        handle.wait(PATIENCE_S)
    flow, out = counting()
    cluster.run(flow)
    assert sorted_rows(out.rows) == expected(flow)


def test_a_source_that_raises_fails_its_job(cluster: LocalCluster) -> None:
    def broken(first: int, count: int) -> Any:
        if first >= 500:
            raise OSError("the disk is gone")
        return numbers(first, count)

    flow = dg.Dataflow("broken")
    flow.source(dg.from_generator(broken, SCHEMA, 1_000, block=100, name="numbers")).sink(dg.to_memory())
    with pytest.raises(JobFailed, match="the disk is gone"):
        cluster.run(flow)


def test_a_job_that_needs_what_a_worker_cannot_import(cluster: LocalCluster) -> None:
    class Missing:
        def __reduce__(self) -> Any:
            return (__import__, ("no_such_module_anywhere",))

    missing: Any = Missing()
    handle = cluster.submit(mapped(lambda row: {"n": row.n if missing else 0}, "importing")[0])
    with pytest.raises(JobFailed, match="no_such_module_anywhere") as caught:
        handle.wait(PATIENCE_S)
    assert "cannot install" in str(caught.value)
    assert "ModuleNotFoundError" in str(caught.value.remote_traceback)


class Locked(dg.Function):
    """Sends downstream what cannot travel."""

    ordered = True

    def on_message(self, context: Any, row: Any) -> None:
        context.emit({"n": row.n, "key": row.key})
        if row.n == 500:
            context.emit_critical(threading.Lock())


class Hearing(dg.Function):
    """Rows as they come."""

    def on_message(self, context: Any, row: Any) -> None:
        context.emit({"n": row.n})

    def on_critical(self, context: Any, message: Any) -> None:
        """Never comes."""


def test_a_job_whose_message_cannot_be_sent_fails_and_another_one_beside_it_is_right(cluster: LocalCluster) -> None:
    flow, out = counting("beside", rows=20_000)
    beside = cluster.submit(flow)
    broken = dg.Dataflow("broken")
    source = broken.source(dg.from_generator(numbers, SCHEMA, 1_000, block=100, time="ts", name="numbers"))
    shown = source.process(Locked, schema={"n": "int64", "key": "int64"}).key_by("key")
    shown.process(Hearing, schema={"n": "int64"}).sink(dg.to_memory())
    handle = cluster.submit(broken)
    with pytest.raises(
        JobFailed, match=r"job 'broken' failed: operator 'process' emitted something that cannot be sent .*lock"
    ):
        handle.wait(PATIENCE_S)
    beside.wait(PATIENCE_S)
    assert sorted_rows(out.rows) == expected(flow)


# --- requests that cannot be met -------------------------------------------------------------------------------------------


def test_a_job_that_is_not_there(cluster: LocalCluster) -> None:
    with pytest.raises(ControlError, match="no job 'nobody'"):
        cluster.client.job("nobody")
    with pytest.raises(ControlError, match="no job 'nobody'"):
        cluster.client.log_info("nobody")


def test_a_name_is_given_once_among_those_that_run(cluster: LocalCluster) -> None:
    flow, _ = counting("twice", rows=None)
    handle = cluster.submit(flow)
    with pytest.raises(ControlError, match="'twice' is running already"):
        cluster.submit(counting("twice")[0])
    other = cluster.submit(counting("twice")[0], name="another-name")
    assert other.wait(PATIENCE_S).name == "another-name"
    handle.cancel()
    handle.wait(PATIENCE_S)
    assert cluster.run(counting("twice")[0]).status().state == "finished"
    assert cluster.client.job("twice").status().state == "finished"  # the newest of that name
    assert cluster.client.job(handle.id).status().state == "cancelled"


@pytest.mark.parametrize("name", ["a/b", "../up", "", "x" * 5_000, "with\0zero", "two words"])
def test_a_name_that_would_be_no_name(cluster: LocalCluster, name: str) -> None:
    with pytest.raises(dg.FlowError, match="name"):
        cluster.submit(counting(rows=100)[0], name=name)


@pytest.mark.parametrize("name", ["..", ".", "-", "a.b_c+d-9"])
def test_a_name_that_is_odd_and_allowed(cluster: LocalCluster, name: str) -> None:
    flow, out = counting(rows=100)
    cluster.run(flow, name=name)
    assert sum(row["count"] for row in out.rows) == 100


@pytest.mark.parametrize("budget", [0, -5])
def test_a_budget_that_lets_nothing_run(cluster: LocalCluster, budget: int) -> None:
    with pytest.raises(ControlError, match="budget"):
        cluster.submit(counting()[0], budget_bytes=budget)


def test_a_budget_of_one_byte_is_slow_and_right(cluster: LocalCluster) -> None:
    flow, out = counting(rows=3_000)
    cluster.run(flow, budget_bytes=1)
    assert sorted_rows(out.rows) == expected(flow)


def test_a_size_that_no_pool_has(cluster: LocalCluster) -> None:
    for workers in (0, -1, 10**6):
        with pytest.raises(ControlError, match="workers"):
            cluster.client.resize(workers)


def test_a_job_that_is_over_cannot_be_cancelled_but_it_has_drained(cluster: LocalCluster) -> None:
    handle = cluster.run(counting(rows=100)[0])
    with pytest.raises(ControlError, match="it is finished"):
        handle.cancel()
    handle.drain()
    other = cluster.submit(counting(rows=None)[0])
    other.cancel()
    with pytest.raises(ControlError, match="it is cancelled"):
        other.drain()


# --- ending jobs -----------------------------------------------------------------------------------------------------------


def test_a_job_without_end_is_cancelled(cluster: LocalCluster) -> None:
    flow, out = counting(rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    with pytest.raises(TimeoutError, match="it goes on"):
        handle.wait(0.1)
    handle.cancel()
    assert handle.wait(PATIENCE_S).state == "cancelled"


def test_a_job_is_drained_and_its_open_windows_are_closed(cluster: LocalCluster) -> None:
    flow, out = counting(rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert status.state == "finished"
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in > 0
    assert len({(row["key"], row["window_start"]) for row in out.rows}) == len(out.rows)


@pytest.mark.parametrize("attempt", range(5))
def test_a_job_that_has_hardly_begun_can_be_drained(cluster: LocalCluster, attempt: int) -> None:
    flow, out = counting(rows=None)
    handle = cluster.submit(flow)
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert status.state == "finished"
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in


@pytest.mark.parametrize("attempt", range(5))
def test_a_job_that_has_hardly_begun_can_be_cancelled(cluster: LocalCluster, attempt: int) -> None:
    handle = cluster.submit(counting(rows=None)[0])
    handle.cancel()
    assert handle.wait(PATIENCE_S).state == "cancelled"


def test_a_job_is_cancelled_while_a_generator_runs_that_it_reads(cluster: LocalCluster, tmp_path: Path) -> None:
    """It can be closed only where it runs, and cleans up there; its worker goes on."""
    began, cleaned_up = str(tmp_path / "began"), str(tmp_path / "cleaned up")

    def rows() -> Any:
        try:
            yield {"n": 0}
            Path(began).touch()
            while True:
                time.sleep(0.01)
        finally:
            Path(cleaned_up).touch()

    workers = [(worker.id, worker.incarnation) for worker in cluster.workers()]
    flow = dg.Dataflow("generating")
    flow.source(dg.from_iterable(lambda: rows(), schema={"n": "int64"})).sink(dg.to_memory())
    handle = cluster.submit(flow)
    wait_for_file(began)
    handle.cancel()
    assert handle.wait(PATIENCE_S).state == "cancelled"
    wait_for_file(cleaned_up)
    flow, out = counting()
    cluster.run(flow)
    assert sorted_rows(out.rows) == expected(flow)
    assert [(worker.id, worker.incarnation) for worker in cluster.workers()] == workers


def test_a_generator_that_waits_between_rows_is_closed_when_its_job_is_cancelled(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cleaned_up = str(tmp_path / "cleaned up")

    def rows() -> Any:
        try:
            while True:
                yield {"n": 0}
        finally:
            Path(cleaned_up).touch()
            raise ValueError("it has nothing to say any more")

    flow = dg.Dataflow("endless")
    out = dg.to_memory()
    flow.source(dg.from_iterable(lambda: rows(), schema={"n": "int64"})).sink(out)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    handle.cancel()
    assert handle.wait(PATIENCE_S).state == "cancelled"
    wait_for_file(cleaned_up)


def test_a_client_can_go_while_its_job_runs(cluster: LocalCluster) -> None:
    for _ in range(5):
        with Client(cluster.controller.access) as client:
            flow, out = counting("left-alone", rows=None)
            client.submit(flow)
            until(lambda out=out: out.rows, "the first rows")  # type: ignore[misc]
        handle = cluster.client.job("left-alone")
        assert handle.status().state == "running"
        handle.cancel()
        handle.wait(PATIENCE_S)


def test_a_cluster_that_is_gone_is_said_to_be_gone(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 1) as cluster:
        access = cluster.controller.access
    with Client(access, answer_s=0.5) as client, pytest.raises(ControlError, match="does not answer"):
        client.status()


def test_metrics_while_a_job_runs(cluster: LocalCluster) -> None:
    handle = cluster.submit(counting(rows=None)[0])
    until(lambda: handle.metrics().rows_out, "some rows came out")
    first = handle.metrics()
    until(lambda: handle.metrics().messages > first.messages, "more is done")
    later = handle.metrics()
    assert later.rows_in >= first.rows_in > 0
    assert later.watermark_ms is not None
    assert later.watermark_ms > 0
    assert sum(worker.messages for worker in cluster.workers()) > 0
    assert all(worker.rss_bytes > 10 << 20 for worker in cluster.workers())
    assert all(0 <= worker.busy <= 1 for worker in cluster.workers())
    handle.cancel()


def test_late_rows_are_counted(cluster: LocalCluster) -> None:
    flow = dg.Dataflow("late")
    out = dg.to_memory()
    rows = [{"ts": ts, "key": 1} for ts in [0, 5_000, 1, 2, 9_000, 3]]
    source = flow.source(dg.from_iterable(lambda: iter_slowly(rows), schema={"ts": "int64", "key": "int64"}, time="ts"))
    source.key_by("key").window(dg.Tumbling("1s")).aggregate(count=dg.count()).sink(out)
    status = cluster.submit(flow).wait(PATIENCE_S)
    assert status.metrics.late_rows == 6 - sum(row["count"] for row in out.rows)


def iter_slowly(rows: list[Any]) -> Any:
    for row in rows:
        time.sleep(0.15)
        yield row


def test_nothing_is_printed_to_the_terminal_of_the_user(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> None:
    cluster.run(counting(rows=1_000)[0])
    sys.stdout.flush()
    assert capfd.readouterr() == ("", "")
