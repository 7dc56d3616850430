"""Several flows in one simulation: they share workers and a strategy, and rows and figures are told apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import dirigo as dg
from dirigo.errors import DirigoError
from dirigo.kernel import RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling import Arbiter, StrategyError
from dirigo.testing import Simulation, run

ROWS = [{"n": n, "k": n % 7, "at": n * 10} for n in range(500)]


def counting(name: str, *, source: str = "rows", row_s: float = 0.0, **options: Any) -> dg.Dataflow:
    flow = dg.Dataflow(name, **options)
    rows = flow.source(dg.from_iterable(ROWS, {"n": int, "k": int, "at": int}, time="at", name=source))
    rows.key_by("k").window(dg.Tumbling("1s")).aggregate(n=dg.count()).sink(dg.to_memory(name=f"{name}_counts"))
    if row_s:
        flow.emulate("aggregate", per_row=f"{round(row_s * 1000)}ms")
    return flow


def by_text(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(str, rows))


class LabelFirst(dg.Strategy):
    """Jobs with one label go before others; it also writes down what it was told of jobs."""

    seen: dict[str, tuple[str, float, dict[str, str]]]

    def __init__(self, team: str) -> None:
        self.team = team
        self.kept: list[tuple[bool, int, RunnableMessage]] = []
        self.number = 0
        self.seen = {}

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        job = context.job(message)
        self.seen[job.id] = (job.name, job.weight, dict(job.labels))
        self.number += 1
        self.kept.append((job.labels.get("team") != self.team, self.number, message))
        return None

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        if not self.kept:
            return None
        self.kept.sort(key=lambda each: each[:2])
        return self.kept.pop(0)[2]


def pair(**options: Any) -> list[dg.Dataflow]:
    slo = dg.SLO(latency="1s")
    return [counting(team, slo=slo, row_s=0.008, labels={"team": team}, combines_early=False, **options) for team in "ab"]


@pytest.mark.parametrize("chaos", [False, True])
def test_each_flow_has_the_rows_that_it_has_alone(chaos: bool) -> None:
    simulation = run([counting("a"), counting("b")], {"b/rows": ROWS[:100]}, workers=3, chaos=chaos, rows_max=20)
    assert list(simulation.flows) == ["a", "b"]
    for name, rows in (("a", ROWS), ("b", ROWS[:100])):
        assert by_text(simulation[name].rows()) == by_text(run(counting(name), rows).rows())
        assert simulation[name].sinks == [f"{name}_counts"]
        assert simulation[name].table(f"{name}_counts").num_rows == len(simulation[name].rows())
        assert (simulation[name].elsewhere.total() > 0) is chaos


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_policy_between_jobs_decides_whose_results_come_soon(first: str) -> None:
    simulation = run(pair(), strategy=LabelFirst(first), rows_max=10)
    favoured, other = simulation[first], simulation["b" if first == "a" else "a"]
    assert favoured.latency_ms["p95"] < 1_000 < other.latency_ms["p95"]
    assert favoured.satisfaction.results == 1.0
    assert other.satisfaction.results is not None
    assert other.satisfaction.results < 0.5
    assert by_text(favoured.rows()) == by_text(other.rows())


def test_a_strategy_is_told_of_each_job_by_its_messages() -> None:
    flows = [counting("a", labels={"team": "x"}), counting("b", slo=dg.SLO(latency="1s", weight=3))]
    simulation = run(flows, strategy=LabelFirst("x"))
    (worker,) = simulation.cluster.workers.values()
    assert worker.strategy._inner.seen == {"a": ("a", 1.0, {"team": "x"}), "b": ("b", 3.0, {})}  # type: ignore[attr-defined]


def test_one_flow_in_a_list_is_one_flow() -> None:
    alone, listed = run(counting("a"), workers=2, seed=3, chaos=True), run([counting("a")], workers=2, seed=3, chaos=True)
    assert listed.rows() == alone.rows() == listed["a"].rows()
    assert listed.cluster.metrics == alone.cluster.metrics


def test_flows_begin_at_different_workers() -> None:
    simulation = Simulation([counting(name) for name in "abc"], workers=2)
    assert [flow.job.homes[f"{name}/rows/0"] for name, flow in simulation.flows.items()] == [0, 1, 0]


# --- one strategy each -------------------------------------------------------------------------------------------------


def test_flows_may_have_a_strategy_each_and_share_the_workers_by_weight() -> None:
    flows = [
        counting(name, slo=dg.SLO(latency="10s", weight=weight), row_s=0.02, combines_early=False)
        for name, weight in (("heavy", 4.0), ("light", 1.0))
    ]
    simulation = run(flows, strategy={"light": "fifo", "heavy": "edf"}, rows_max=10)
    heavy, light = simulation["heavy"].latency_ms, simulation["light"].latency_ms
    assert heavy["p50"] < 0.6 * light["p50"]
    assert len(simulation["heavy"].rows()) == len(simulation["light"].rows()) > 0


def test_flows_with_the_same_strategy_and_settings_are_scheduled_together() -> None:
    flows = [counting(name) for name in "abcd"]
    strategy: dict[str, dg.Strategy | str] = {"a": LabelFirst("x"), "b": LabelFirst("x"), "c": LabelFirst("y"), "d": "edf"}
    simulation = Simulation(flows, workers=2, strategy=strategy)
    for worker in simulation.cluster.workers.values():
        assert isinstance(worker.strategy, Arbiter)
        assert [sorted(group.jobs) for group in worker.strategy._groups] == [["a", "b"], ["c"], ["d"]]


class Unpicklable(LabelFirst):
    def __reduce__(self) -> Any:
        raise TypeError("not this one")


# --- names -------------------------------------------------------------------------------------------------------------


def test_a_source_is_named_by_its_flow_only_where_it_must_be() -> None:
    flows = [counting("a"), counting("b"), counting("c", source="own")]
    simulation = Simulation(flows, {"a/rows": ROWS[:10]}, open_sources=["b/rows", "own"])
    simulation.push("b/rows", ROWS[:20])
    simulation.push("c/own", ROWS[:30])
    simulation.end("own")
    simulation.finish()
    read = {reader.address: reader.rows for flow in simulation.flows.values() for reader in flow.job.readers}
    assert read == {"a/rows.source/0": 10, "b/rows.source/0": 20, "c/own.source/0": 30}


def both() -> Simulation:
    return Simulation([counting("a"), counting("b")], open_sources=["a/rows"])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: run([]), "a simulation needs at least one flow."),
        (
            lambda: run([counting("a"), counting("b"), counting("a")]),
            "2 flows of this simulation have the name 'a'; give each a name of its own.",
        ),
        (
            lambda: run([counting("a"), counting("b")], {"rows": []}),
            "several flows have a source 'rows'; name one of a/rows, b/rows.",
        ),
        (
            lambda: run([counting("a"), counting("b")], {"c/rows": []}),
            "no flow has a source 'c/rows'; there are a/rows, b/rows.",
        ),
        (lambda: run(counting("a"), {"b/rows": []}), "the flow 'a' has no source 'b/rows'; it has rows."),
        (
            lambda: run([counting("a"), counting("b")], ROWS),
            "say which rows are for which source: rows={...} with the names a/rows, b/rows.",
        ),
        (
            lambda: both().push("b/rows", ROWS),
            "'b/rows' is no open source of this simulation; name it in open_sources=[...].",
        ),
        (
            lambda: both().rows(),
            "several flows run in this simulation, a, b: say which one is meant, for example simulation['a'].rows().",
        ),
        (lambda: both()["c"], "there is no flow 'c' in this simulation; it has a, b."),
        (lambda: both()["a"].rows("b_counts"), "name one of the sinks a_counts, not 'b_counts'."),
        (
            lambda: run([counting("a"), counting("b")], strategy={"a": "edf"}),
            "strategy: give one for each of the flows a, b; these are for a.",
        ),
        (
            lambda: run([counting("a")], strategy={"a": "edf", "c": "edf"}),
            "strategy: give one for each of the flows a; these are for a, c.",
        ),
    ],
)
def test_what_is_not_clear_is_refused_in_one_sentence(wrong: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(DirigoError, match=f"^{re.escape(sentence)}$"):
        wrong()


def test_a_strategy_that_no_worker_could_get_is_refused() -> None:
    with pytest.raises(
        StrategyError, match="the strategy Unpicklable cannot be pickled, as workers would get it: not this one"
    ):
        run([counting("a")], strategy={"a": Unpicklable("x")})


@pytest.mark.parametrize("flows", [None, 5, [None], "flow"], ids=str)
def test_what_is_no_flow_is_refused(flows: object) -> None:
    with pytest.raises(
        dg.DirigoError, match=r"a simulation runs flows, a dg\.Dataflow or a list of them, not (NoneType|int|str)"
    ):
        run(flows)  # type: ignore[arg-type]
