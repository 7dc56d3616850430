"""Operators that are limited to some lessees: whatever a strategy wants, never more workers have a part of their state."""

from __future__ import annotations

from typing import Any

import pytest

import dirigo as dg
from dirigo.kernel import WorkerId
from dirigo.kernel.lessor import Lessor
from dirigo.testing import Simulation, run

WORKERS = 5
ROWS = [{"n": n, "k": n % 3, "at": n * 10} for n in range(600)]


class Count(dg.Function):
    count = dg.ValueState(int, default=0, combine=lambda one, other: one + other)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"n": self.count.get()})


def limited(operator: str, lessees_max: int) -> dg.Dataflow:
    """Counts by window and by a function; one of its operators is limited."""
    flow = dg.Dataflow("limited", slo=dg.SLO(latency="20ms"), combines_early=False)
    rows = flow.source(dg.from_iterable(ROWS, {"n": int, "k": int, "at": int}, time="at", name="rows"))
    counts = rows.key_by("k").window(dg.Tumbling("500ms")).aggregate(n=dg.count()).named("counts")
    total = rows.key_by("k").process(Count, {"n": int}, name="total")
    for stream in (rows, counts, total):
        if stream.name == operator:
            stream.limited(lessees_max=lessees_max)
        flow.emulate(stream.name, per_row="50ms" if stream is counts else "2ms")
    counts.sink(dg.to_memory(name="by_window"))
    total.sink(dg.to_memory(name="in_all"))
    return flow


def watched(flow: dg.Dataflow, operator: str, **options: Any) -> tuple[Simulation, int]:
    """Run a flow; also the most leases that one of an operator's actors had at a time. Others run nothing of it."""
    simulation = Simulation(flow, workers=WORKERS, rows_max=10, **options)
    most = 0
    note = simulation.cluster.trace
    assert note is not None

    def look(now: float, what: str, worker: WorkerId, message: Any) -> None:
        nonlocal most
        note(now, what, worker, message)
        for each in simulation.cluster.workers.values():
            for address, actor in each.participants.items():
                if isinstance(actor, Lessor) and address.split("/")[1] == operator:
                    most = max(most, len(each.lessees(address)))
        if what == "start" and worker != (home := simulation.job.homes[message.to]):
            assert worker in simulation.cluster.workers[home].lessees(message.to)

    simulation.cluster.trace = look
    return simulation.finish(), most


@pytest.mark.parametrize("operator", ["rows", "counts", "total"])
@pytest.mark.parametrize("lessees_max", [0, 1, 2])
def test_under_chaos_no_more_lessees_are_used_than_allowed(operator: str, lessees_max: int) -> None:
    outcomes = [watched(limited(operator, lessees_max), operator, chaos=True, seed=seed) for seed in range(2)]
    assert max(most for _, most in outcomes) == lessees_max
    for simulation, _ in outcomes:
        assert (simulation.elsewhere[operator] > 0) is (lessees_max > 0)
        assert sum(row["n"] for row in simulation.rows("in_all")) == len(ROWS)
        assert sum(row["n"] for row in simulation.rows("by_window")) == len(ROWS)


def test_without_a_limit_chaos_uses_all_workers() -> None:
    _, most = watched(limited("none", 0), "rows", chaos=True, seed=0)
    assert most == WORKERS - 1


@pytest.mark.parametrize(
    "strategy", ["reject_send", "reject_send_random", "direct_send", "direct_send_p2c", "tokens", "hybrid"]
)
def test_strategies_keep_to_it_where_they_forward_and_where_they_send_directly(strategy: str) -> None:
    unlimited, most = watched(limited("none", 0), "counts", strategy=strategy)
    assert most > 1  # so there is something to limit
    for lessees_max in (0, 1):
        simulation, most = watched(limited("counts", lessees_max), "counts", strategy=strategy)
        assert most == lessees_max
        assert sorted(map(str, simulation.rows("by_window"))) == sorted(map(str, unlimited.rows("by_window")))


def test_for_an_operator_that_is_ordered_a_limit_says_nothing_new() -> None:
    class InOrder(Count):
        scope = "partition"
        ordered = True

    flow = dg.Dataflow("in_order")
    rows = flow.source(dg.from_iterable(ROWS, {"n": int, "k": int, "at": int}, name="rows"))
    rows.process(InOrder, {"n": int}, name="total").limited(lessees_max=2).sink(dg.to_memory())
    outcome = run(flow, workers=3, chaos=True, rows_max=10)
    assert outcome.elsewhere["total"] == 0
    assert outcome.rows() == [{"n": len(ROWS)}]
