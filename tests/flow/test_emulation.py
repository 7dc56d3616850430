"""Emulated work: what it adds to messages, where, and how it is refused; and that the simulator waits for nobody."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from time import thread_time
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.exchange.payloads import rows_of
from dirigo.flow.plan import emulation
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.plan.emulation import Work, compute
from dirigo.flow.plan.stage import StageBehaviour
from dirigo.flow.rows.bad_rows import Bad
from dirigo.kernel import RunnableMessage
from dirigo.sim.service import Measured, ServiceTimes
from dirigo.testing import Simulation, run
from flow.flows import TS_SCHEMA, Rows, collected, event, run_inline, unordered

ROWS = [event("abc"[number % 3], number, number * 10) for number in range(200)]


def counting(rows: Rows = ROWS, **options: Any) -> dg.Dataflow:
    """Three operators: events, counts and results; the filter runs as part of the first."""
    flow = dg.Dataflow("counting", partitions=2, combines_early=False, **options)
    stream = flow.source(dg.from_iterable(rows, TS_SCHEMA, time="ts"), name="events")
    stream = stream.filter(dg.col("value") >= 0).named("some")
    counts = stream.key_by("key").window(dg.Tumbling("500ms")).aggregate(n=dg.count()).named("counts")
    counts.sink(dg.to_memory(), name="results")
    return flow


# --- in virtual time ---------------------------------------------------------------------------------------------------


def service_times(
    flow: dg.Dataflow, **options: Any
) -> tuple[Simulation, dict[str, list[tuple[RunnableMessage, float, bool]]]]:
    """Of each operator: its messages, how long each ran, and whether at another worker than its home."""
    simulation = Simulation(flow, **options)
    started: dict[int, float] = {}
    ran: dict[str, list[tuple[RunnableMessage, float, bool]]] = defaultdict(list)

    def note(now: float, what: str, worker: int, message: Any) -> None:
        if what == "start":
            started[worker] = now
        elif what == "finish":
            is_elsewhere = simulation.job.homes[message.to] != worker
            ran[message.to.split("/")[1]].append((message, now - started[worker], is_elsewhere))

    simulation.cluster.trace = note
    return simulation.finish(), ran


@pytest.mark.parametrize(
    ("service", "base_s"), [(ServiceTimes(0.5), 0.5), (ServiceTimes(Measured(0.0)), 0.0)], ids=["constant", "measured"]
)
def test_every_regular_message_takes_longer_at_lessor_and_lessees(service: ServiceTimes, base_s: float) -> None:
    flow = counting(watermark_every="100ms")
    flow.emulate("counts", per_message="2s", per_row="10ms")
    simulation, ran = service_times(flow, workers=3, seed=3, chaos=True, rows_max=20, service=service)
    regular = [each for each in ran["counts"] if not each[0].critical]
    assert {is_elsewhere for _, _, is_elsewhere in regular} == {True, False}
    for message, seconds, _ in regular:
        assert seconds == pytest.approx(base_s + 2 + 0.01 * message.payload[1].num_rows)
    others = [each for each in ran["counts"] if each[0].critical] + ran["events"] + ran["results"]
    assert others
    assert {round(seconds, 6) for _, seconds, _ in others} == {base_s}
    assert sum(row["n"] for row in simulation.rows()) == len(ROWS)


def test_the_simulator_does_not_wait() -> None:
    flow = counting()
    flow.emulate("counts", per_message="10h", per_row=timedelta(hours=1), cpu=True)
    flow.emulate("events", per_message="10h")
    simulation = run(flow)
    assert simulation.now_s > 3600 * len(ROWS) / 2  # two partitions share the worker, and all rows are theirs
    assert unordered(simulation.rows()) == unordered(run(counting()).rows())


# --- in earnest --------------------------------------------------------------------------------------------------------


def test_a_worker_sleeps_once_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(emulation, "sleep", slept.append)
    flow = counting()
    flow.emulate("events", per_message="500us", per_row="0.25ms")
    run_inline(flow, rows_max=80)
    assert slept == [pytest.approx(0.0005 + 0.00025 * rows) for rows in (80, 80, 40)]


def test_a_worker_computes() -> None:
    flow = counting()
    flow.emulate("events", per_row="100us", cpu=True)
    before = thread_time()
    run_inline(flow)
    assert thread_time() - before >= 0.02  # of two hundred rows, by the very clock that it goes by


def test_computing_takes_processor_time() -> None:
    before = thread_time()
    compute(0.005)
    assert thread_time() - before >= 0.005


def test_results_stay_as_they_are() -> None:
    def results(emulated: bool) -> list[Any]:
        flow = counting()
        (out,) = [node.work.sink for node in flow.nodes if node.name == "results"]  # type: ignore[union-attr]
        if emulated:
            flow.emulate("counts", per_message="1us")
        run_inline(flow)
        return unordered(out.rows)

    assert results(True) == results(False)


def test_other_operators_are_not_touched() -> None:
    flow = counting()
    flow.emulate("counts", per_message="1ms")
    job = BoundJob(flow)
    plain = {spec.address.split("/")[1] for spec in job.specs() if isinstance(spec.behaviour(spec.states()), StageBehaviour)}
    assert plain == {"events", "results"}
    assert set(job.work) == {"counting/counts/0", "counting/counts/1"}
    assert all(isinstance(spec.behaviour(spec.states()), StageBehaviour) for spec in job.specs(performs_work=False))


def test_no_work_at_all_is_none_and_the_last_call_counts() -> None:
    flow = counting()
    flow.emulate("counts", per_message="1ms")
    flow.emulate("events", per_message="1ms")
    flow.emulate("counts")
    assert set(BoundJob(flow).work) == {"counting/events/0"}


def test_an_operator_keeps_its_work_under_another_name_and_elsewhere() -> None:
    flow = dg.Dataflow("moved")
    stream = flow.source(dg.from_iterable(ROWS), name="events")
    flow.emulate("events", per_row="500us", cpu=True)
    collected(stream.named("bids"))
    moved = cloudpickle.loads(cloudpickle.dumps(flow))
    assert BoundJob(moved).work == {"moved/bids/0": Work(0.0, 0.0005, True)}


# --- mistakes ----------------------------------------------------------------------------------------------------------


def test_an_unknown_operator_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        dg.FlowError,
        match=r"^dataflow 'counting' has no operator 'count' whose work could be emulated; "
        r"it has events, some, counts, results\.$",
    ):
        counting().emulate("count", per_message="1ms")
    with pytest.raises(dg.FlowError, match=r"it has none yet\.$"):
        dg.Dataflow("empty").emulate("events", per_message="1ms")


def test_what_runs_as_part_of_another_operator_is_refused_with_its_name() -> None:
    flow = counting()
    flow.emulate("some", per_message="1ms")
    with pytest.raises(dg.FlowError, match=r"'some' runs as part of 'events' .* emulate the work of 'events'\.$"):
        BoundJob(flow)


def test_what_leads_to_no_sink_is_refused() -> None:
    flow = counting()
    flow.source(dg.from_iterable(ROWS), name="others")
    flow.emulate("others", per_message="1ms")
    with pytest.raises(dg.FlowError, match=r"'others', because it leads to no sink"):
        BoundJob(flow)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"per_message": 5}, r"emulated work of 'counts': per_message: 5 is not a duration; say the unit"),
        ({"per_row": "-1us"}, r"emulated work of 'counts': per_row: '-1us' is negative"),
        ({"cpu": "yes"}, r"emulated work of 'counts': cpu is True or False, not 'yes'\."),
    ],
)
def test_wrong_figures_are_refused(options: Any, complaint: str) -> None:
    with pytest.raises(dg.FlowError, match=complaint):
        counting().emulate("counts", **options)


# --- rows of a message -------------------------------------------------------------------------------------------------


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"x": list(range(rows))})


@pytest.mark.parametrize(
    ("payload", "rows"),
    [
        ((0, batch(5)), 5),
        ((-2, batch(0)), 0),
        ((-1, [(0, batch(3)), (1, batch(7)), (2, batch(1))]), 7),
        ((1, [Bad({"x": 1}, "bad"), Bad({"x": 2}, "bad")]), 1),
        ((-1, []), 1),
        (batch(5), 1),
        ("anything", 1),
        (None, 1),
    ],
)
def test_rows_of_a_payload(payload: Any, rows: int) -> None:
    assert rows_of(payload) == rows
