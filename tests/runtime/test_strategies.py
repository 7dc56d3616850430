"""Strategies on a cluster of processes: users' own, which may fail, several at once, and what is told of the objective."""

from __future__ import annotations

import math
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from dirigo.runtime.client.job import Job
from dirigo.runtime.control import JobMetrics
from dirigo.runtime.errors import JobFailed
from dirigo.scheduling import STRATEGIES, StrategyExtras
from dirigo.scheduling.accounting import CAUSES, Satisfaction
from dirigo.scheduling.names import StrategyError
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, counting, numbers, sorted_rows

ROWS = 4_000
AFTER = 20  # calls of a hook that go well: the job is well under way when it fails


class LastInFirstOut(dg.Strategy):
    """What a user may write."""

    def __init__(self) -> None:
        self.kept: deque[Any] = deque()

    def enqueue(self, context: Any, message: Any) -> int | None:
        self.kept.append(message)
        return None

    def get_next_message(self, context: Any) -> Any:
        return self.kept.pop() if self.kept else None


class Wrong(LastInFirstOut, StrategyExtras):
    """Fails in one of its hooks, or answers with nonsense."""

    def __init__(self, hook: str, answer: Any) -> None:
        super().__init__()
        self.hook = hook
        self.answer = answer
        self.calls = 0
        self.given: Any = None

    def _goes_wrong(self, hook: str) -> bool:
        if hook != self.hook:
            return False
        self.calls += 1
        if self.calls > AFTER and isinstance(self.answer, type):
            raise self.answer("out of luck")
        return self.calls > AFTER

    def enqueue(self, context: Any, message: Any) -> int | None:
        self.given = message
        return self.answer if self._goes_wrong("enqueue") else super().enqueue(context, message)

    def get_next_message(self, context: Any) -> Any:
        if self.given is None or not self._goes_wrong("get_next_message"):
            return super().get_next_message(context)
        return self.given if self.answer == "twice" else self.answer

    def pre_apply(self, context: Any, message: Any) -> None:
        self._goes_wrong("pre_apply")

    def prepare_send(self, context: Any, sender: Any, output: Any) -> int | None:
        return self.answer if self._goes_wrong("prepare_send") else None

    def post_apply(self, context: Any, message: Any, elapsed_s: float) -> None:
        self._goes_wrong("post_apply")

    def note_barrier(self, context: Any, actor: Any) -> None:
        self._goes_wrong("note_barrier")

    def wake_at(self) -> float | None:
        return self.answer if self._goes_wrong("wake_at") else None

    def backlog_s(self, context: Any) -> tuple[float, float]:
        return self.answer if self._goes_wrong("backlog_s") else (0.0, 0.0)


@pytest.fixture
def beside(cluster: LocalCluster) -> Any:
    """A job that runs beside others, without much effort, and has the right rows in the end."""

    def unhurried(first: int, count: int) -> Any:
        time.sleep(0.005)
        return numbers(first, count)

    flow = dg.Dataflow("beside")
    out = dg.to_memory()
    source = flow.source(dg.from_generator(unhurried, SCHEMA, block=100, time="ts", name="numbers"), splits=2)
    source.key_by("key").window(dg.Tumbling("1s")).aggregate(count=dg.count()).sink(out)
    handle = cluster.submit(flow)
    yield
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in > 0
    assert len({(row["key"], row["window_start"]) for row in out.rows}) == len(out.rows)


def failure_of(cluster: LocalCluster, strategy: dg.Strategy) -> tuple[str, str]:
    """Why a job with this strategy failed, and where."""
    handle = cluster.submit(counting("misled", rows=None)[0], strategy=strategy)
    with pytest.raises(JobFailed) as caught:
        handle.wait(PATIENCE_S)
    status = handle.status()
    assert status.state == "failed"
    assert status.error is not None
    assert "\n" not in status.error
    assert status.error in str(caught.value)
    return status.error, str(caught.value.remote_traceback)


@pytest.mark.parametrize("hook", ["enqueue", "get_next_message", "pre_apply", "prepare_send", "post_apply"])
def test_a_strategy_that_raises_fails_its_own_job_and_is_named(cluster: LocalCluster, beside: None, hook: str) -> None:
    error, place = failure_of(cluster, Wrong(hook, ValueError))
    assert error == f"the strategy Wrong failed in {hook}: ValueError: out of luck"
    assert "in _goes_wrong" in place


@pytest.mark.parametrize(
    ("hook", "answer", "sentence"),
    [
        ("enqueue", 99, "Wrong.enqueue returned 99, which is no worker"),
        ("enqueue", "here", "Wrong.enqueue returned 'here', which is no worker"),
        ("get_next_message", 99, "returned 99, which is no message that it keeps"),
        ("get_next_message", "twice", "which is no message that it keeps; return each message that enqueue was given once"),
        ("prepare_send", -1, "Wrong.prepare_send returned -1, which is no worker"),
        ("note_barrier", ZeroDivisionError, "failed in note_barrier: ZeroDivisionError: out of luck"),
        ("wake_at", "soon", "Wrong.wake_at returned 'soon'; return a time, or None"),
        ("backlog_s", None, "Wrong.backlog_s returned None; return seconds of work"),
        ("pre_apply", SystemExit, "failed in pre_apply: SystemExit: out of luck"),
    ],
)
def test_a_strategy_that_answers_with_nonsense_fails_its_own_job(
    cluster: LocalCluster, beside: None, hook: str, answer: Any, sentence: str
) -> None:
    error, _ = failure_of(cluster, Wrong(hook, answer))
    assert error.startswith(f"the strategy Wrong failed in {hook}: ")
    assert sentence in error


class Inimitable(LastInFirstOut):
    """Each worker works with a copy, and of this there is none."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("there can be only one")


def test_a_strategy_that_a_worker_cannot_copy_fails_its_own_job(cluster: LocalCluster, beside: None) -> None:
    error, _ = failure_of(cluster, Inimitable())
    assert "cannot install the job" in error
    assert "there can be only one" in error


class Telling(LastInFirstOut):
    """Fails with what it knows of the job."""

    def enqueue(self, context: Any, message: Any) -> int | None:
        job = context.job(message)
        raise ValueError(
            f"{job.id} {job.name} {job.objective.latency_s} {job.objective.target} {job.weight} {dict(job.labels)}"
        )


def test_a_strategy_knows_the_labels_of_a_job_and_so_does_its_status(cluster: LocalCluster) -> None:
    slo = dg.SLO(latency="250ms", target=0.9, weight=3)
    flow = dg.Dataflow("labelled", slo=slo, labels={"team": "ads"})
    flow.source(dg.from_iterable([{"n": 1}])).sink(dg.to_memory())
    handle = cluster.submit(flow, name="again", strategy=Telling())
    with pytest.raises(JobFailed):
        handle.wait(PATIENCE_S)
    status = handle.status()
    assert status.labels == {"team": "ads"}
    assert str(status.error).endswith(f"ValueError: {status.id} again 0.25 0.9 3.0 {{'team': 'ads'}}")


# --- strategies that work --------------------------------------------------------------------------------------------------


def right(name: str, cluster: LocalCluster, **options: Any) -> tuple[Job, Any]:
    flow, out = counting(name, rows=ROWS)
    return cluster.submit(flow, **options), out


def expected() -> list[tuple[Any, ...]]:
    return sorted_rows(dg.testing.run(counting(rows=ROWS)[0]).rows())


def test_jobs_with_different_strategies_run_in_one_pool(cluster: LocalCluster) -> None:
    strategies = [*STRATEGIES, LastInFirstOut, LastInFirstOut(), "chaos"]
    jobs = [right(f"job-{number}", cluster, strategy=strategy) for number, strategy in enumerate(strategies)]
    for handle, out in jobs:
        handle.wait(PATIENCE_S)
        assert sorted_rows(out.rows) == expected()
    assert [handle.status().strategy.rpartition(":")[2] for handle, _ in jobs] == [
        *STRATEGIES,
        "LastInFirstOut",
        "LastInFirstOut",
        "chaos",
    ]


def test_a_strategy_of_a_module_is_given_by_its_name(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours_of_this_test.py").write_text(
        "import dirigo as dg\n"
        "class Ours(dg.Strategy):\n"
        "    def __init__(self):\n"
        "        self.kept = []\n"
        "    def enqueue(self, context, message):\n"
        "        self.kept.append(message)\n"
        "    def get_next_message(self, context):\n"
        "        return self.kept.pop(0) if self.kept else None\n"
    )
    monkeypatch.chdir(tmp_path)
    handle, out = right("ours", cluster, strategy="ours_of_this_test:Ours")
    assert handle.wait(PATIENCE_S).strategy == "ours_of_this_test:Ours"
    assert sorted_rows(out.rows) == expected()
    with pytest.raises(StrategyError, match="has no 'Theirs'"):
        right("theirs", cluster, strategy="ours_of_this_test:Theirs")


# --- what is told of the objective -----------------------------------------------------------------------------------------


def satisfaction(cluster: LocalCluster, slo: dg.SLO | None) -> tuple[Satisfaction, JobMetrics]:
    def slowly(row: Any) -> Any:
        time.sleep(0.001)
        return {"n": row.n}

    flow = dg.Dataflow("promised", slo=slo)
    source = flow.source(dg.from_generator(numbers, SCHEMA, 200, block=50, time="ts", name="numbers"), splits=2)
    source.map(slowly, schema={"n": "int64"}).sink(dg.to_memory())
    status = cluster.submit(flow).wait(PATIENCE_S)
    assert status.metrics.rows_out == 200
    return status.metrics.satisfaction, status.metrics


def test_an_objective_that_is_easy_is_met(cluster: LocalCluster) -> None:
    found, metrics = satisfaction(cluster, dg.SLO(latency="1h"))
    assert (found.results, found.messages) == (1.0, 1.0)
    assert (found.late_results, found.late_messages) == (0, 0)
    assert (found.why_results, found.why_messages) == ({}, {})
    assert metrics.latency_ms["max"] > 0.0


def test_without_an_objective_nothing_is_late(cluster: LocalCluster) -> None:
    found, _ = satisfaction(cluster, None)
    assert (found.results, found.late_results) == (1.0, 0)


def test_of_an_objective_that_cannot_be_met_it_is_told_why(cluster: LocalCluster) -> None:
    found, metrics = satisfaction(cluster, dg.SLO(latency="1ms"))  # each batch of rows takes longer
    assert found.results is not None
    assert found.results < 1.0
    assert found.late_results == round((1.0 - found.results) * 200) > 0
    assert found.messages is not None
    assert found.late_messages == round((1.0 - found.messages) * metrics.messages) > 0
    for why in (found.why_results, found.why_messages):
        assert set(why) == set(CAUSES)
        assert all(share >= 0.0 for share in why.values())
        assert math.isclose(sum(why.values()), 1.0, abs_tol=len(CAUSES) * 1e-4)
        assert why["executing"] > 0.0
