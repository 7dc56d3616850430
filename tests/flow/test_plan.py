"""The plan: which steps are fused, how many partitions there are, and who sends to whom."""

from __future__ import annotations

import pickle

import cloudpickle
import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.plan.plan import Plan
from dirigo.flow.plan.substitutes import substituted
from dirigo.flow.sources.source import Split
from dirigo.kernel import LESSEES_MAX
from flow.flows import TS_SCHEMA, collected, event, run_inline

ROWS = [event("ab"[number % 2], number, number) for number in range(10)]


def source(flow: dg.Dataflow) -> dg.Stream:
    return flow.source(dg.from_iterable(ROWS, time="ts"), name="events")


def shape(plan: Plan) -> dict[str, tuple[int, list[str]]]:
    return {stage.name: (stage.partitions, stage.steps) for stage in plan.stages}


def test_steps_are_fused_to_the_source() -> None:
    flow = dg.Dataflow("fused")
    source(flow).filter(dg.col("value") > 1).map(dict, TS_SCHEMA).select("key").sink(dg.to_memory())
    assert shape(Plan(flow)) == {
        "events": (1, ["filter value > 1", "map dict", "select key"]),
        "to_memory": (1, []),
    }


def test_cheap_steps_are_fused_to_a_window_and_functions_are_not() -> None:
    flow = dg.Dataflow("window", partitions=3)
    counted = source(flow).key_by("key").window(dg.Tumbling("1s")).aggregate(n=dg.count()).named("counts")
    counted.select("n").map(dict, {"n": int}, name="slow").filter(dg.col("n") > 0).sink(dg.to_memory())
    assert shape(Plan(flow)) == {
        "events": (1, []),
        "counts": (3, ["select n"]),
        "slow": (3, ["filter n > 0"]),
        "to_memory": (3, []),
    }


def test_keyed_operators_have_the_partitions_of_the_flow_and_unkeyed_windows_one() -> None:
    flow = dg.Dataflow("partitions", partitions=5)
    stream = source(flow)
    stream.key_by("key").aggregate(n=dg.count()).named("by_key").sink(dg.to_memory(), name="a")
    stream.window(dg.Tumbling("1s")).aggregate(n=dg.count()).named("all").sink(dg.to_memory(), name="b")
    stream.deduplicate("key", name="once").union(stream, name="both").sink(dg.to_memory(), name="c")
    partitions = {name: count for name, (count, _) in shape(Plan(flow)).items()}
    assert partitions == {"events": 1, "by_key": 5, "all": 1, "once": 5, "both": 5, "a": 5, "b": 1, "c": 5}


def test_every_actor_has_somebody_upstream_so_that_it_ends() -> None:
    flow = dg.Dataflow("ends", partitions=4, on_error="side_output")
    stream = source(flow)
    windows: list[dg.Tumbling | dg.Session] = [dg.Tumbling("1s"), dg.Session("1s")]
    for number, window in enumerate(windows):
        result = stream.key_by("key").window(window).aggregate(n=dg.count())
        result.sink(dg.to_memory())
        result.late.map(dict, TS_SCHEMA, name=f"late_{number}").sink(dg.to_memory())
    single = stream.window(dg.Tumbling("1s")).aggregate(n=dg.count())
    single.late.union(stream).sink(dg.to_memory())
    single.sink(dg.to_memory())
    flow.errors.sink(dg.to_memory())
    plan = Plan(flow)
    assert all(upstreams for stage in plan.stages for upstreams in stage.upstreams)
    run_inline(flow)


def test_links_say_how_rows_travel() -> None:
    flow = dg.Dataflow("links")
    stream = source(flow)
    stream.key_by("key", "value").aggregate(n=dg.count()).named("by_key").sink(dg.to_memory(), name="out")
    stream.window(dg.Tumbling("1s")).aggregate(n=dg.count()).named("all").sink(dg.to_memory(), name="other")
    links = {(link.sender.name, link.receiver.name): link.exchange for link in Plan(flow).links}
    assert links == {
        ("events", "by_key"): "by key, value",
        ("by_key", "out"): "onward",
        ("events", "all"): "all to one",
        ("all", "other"): "onward",
    }


def test_all_stages_send_to_the_errors_except_those_behind_them() -> None:
    flow = dg.Dataflow("errors", on_error="side_output")
    source(flow).key_by("key").aggregate(n=dg.count()).named("counts").sink(dg.to_memory(), name="out")
    flow.errors.map(dict, flow.errors.schema, name="shown").sink(dg.to_memory(), name="bad")
    plan = Plan(flow)
    senders = {link.sender.name for link in plan.links if link.receiver.name == flow.errors.name}
    assert senders == {"events", "counts", "out"}
    assert {stage.name: stage.on_error for stage in plan.stages} == {
        "events": "side_output",
        "counts": "side_output",
        "out": "side_output",
        flow.errors.name: "fail",
        "bad": "fail",
    }


def test_the_splits_of_a_source_are_its_partitions() -> None:
    flow = dg.Dataflow("splits")
    out = collected(flow.source(dg.from_generator(_numbers, {"n": int}, 20, block=5), name="numbers", splits=3))
    plan = Plan(flow)
    assert shape(plan)["numbers"] == (3, [])
    assert len(plan.readers) == 3
    run_inline(flow)
    assert sorted(row["n"] for row in out.rows) == list(range(20))


def _numbers(start: int, count: int) -> list[dict[str, int]]:
    return [{"n": number} for number in range(start, start + count)]


def test_a_job_spreads_actors_over_its_workers() -> None:
    flow = dg.Dataflow("spread", partitions=4)
    source(flow).key_by("key").aggregate(n=dg.count()).sink(dg.to_memory())
    job = BoundJob(flow, workers=[7, 8, 9])
    assert {spec.home for spec in job.specs()} == {7, 8, 9}
    assert all(job.homes[reader.address] == job.homes[reader.target] for reader in job.readers)
    assert all(spec.address.startswith("spread/") for spec in job.specs())


def limits(flow: dg.Dataflow) -> dict[str, int]:
    """By stage: at how many other workers each of its actors may run."""
    plan = pickle.loads(cloudpickle.dumps(Plan(flow)))  # as workers get it
    return {spec.address.split("/")[1]: spec.lessees_max for spec in BoundJob(plan).specs()}


def test_an_operator_can_be_limited_to_some_lessees() -> None:
    flow = dg.Dataflow("limits")
    stream = source(flow).limited(lessees_max=2)
    counts = stream.key_by("key").window(dg.Tumbling("1s")).aggregate(n=dg.count()).named("counts").limited(lessees_max=0)
    counts.key_by("key").aggregate(n=dg.sum("n")).named("sums").sink(dg.to_memory(), name="out")
    assert limits(flow) == {"events": 2, "counts": 0, "sums": LESSEES_MAX, "out": LESSEES_MAX}


def test_the_last_limit_of_an_operator_counts_and_may_be_a_high_one() -> None:
    flow = dg.Dataflow("limits")
    source(flow).limited(lessees_max=1).limited(lessees_max=500).sink(dg.to_memory(), name="out")
    assert limits(flow)["events"] == 500


@pytest.mark.parametrize(("own", "of_a_step", "expected"), [(3, 1, 1), (1, 3, 1), (None, 2, 2), (2, None, 2)])
def test_of_steps_that_are_fused_the_tightest_limit_counts(own: int | None, of_a_step: int | None, expected: int) -> None:
    flow = dg.Dataflow("limits")
    stream = source(flow)
    if own is not None:
        stream.limited(lessees_max=own)
    mapped = stream.select("key").map(dict, {"key": str})
    if of_a_step is not None:
        mapped.limited(lessees_max=of_a_step)
    mapped.filter(dg.col("key") > "").sink(dg.to_memory(), name="out")
    assert limits(flow)["events"] == expected


def test_a_limit_survives_a_flow_with_other_sinks() -> None:
    flow = dg.Dataflow("limits")
    source(flow).limited(lessees_max=2).sink(dg.to_memory(), name="out")
    assert limits(substituted(flow, sinks={"out": dg.to_nothing()}))["events"] == 2


def ordered(flow: dg.Dataflow) -> set[str]:
    return {spec.address.split("/")[1] for spec in BoundJob(flow).specs() if spec.ordered}


def test_windows_are_not_ordered_nor_is_what_feeds_them() -> None:
    flow = dg.Dataflow("order")
    source(flow).key_by("key").window(dg.Tumbling("1s")).aggregate(n=dg.count()).sink(dg.to_memory(), name="out")
    assert ordered(flow) == {"out"}


def test_operators_that_depend_on_order_have_it_all_the_way_from_the_source() -> None:
    flow = dg.Dataflow("order")
    stream = source(flow)
    stream.union(stream, name="both").deduplicate("key", name="once").sink(dg.to_memory(), name="out")
    stream.key_by("key").window(dg.Session("1s")).aggregate(n=dg.count()).named("sessions").sink(
        dg.to_memory(), name="out_2"
    )
    assert ordered(flow) == {"events", "both", "once", "out", "out_2"}


def test_a_time_column_survives_the_plan_with_its_type() -> None:
    flow = dg.Dataflow("types")
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.timestamp("us"))], ["at"])
    out = collected(flow.source(dg.from_iterable([batch], time="at")).window(dg.Tumbling("1s")).aggregate(n=dg.count()))
    run_inline(flow)
    assert out.table["n"].to_pylist() == [2]


# --- plans that travel ----------------------------------------------------------------------------------------------------


class Counted(dg.Source):
    """Notes how often its splits were asked for; has as many as its class says at that moment."""

    has = 3
    asked = 0

    def splits(self, wanted: int) -> list[Split]:
        Counted.asked += 1
        return [dg.from_iterable(ROWS).splits(1)[0] for _ in range(min(wanted, Counted.has))]


def travelled(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan of two sources as it comes to a worker."""
    monkeypatch.setattr(Counted, "asked", 0)
    flow = dg.Dataflow("travels")
    one, other = (
        flow.source(Counted(dg.from_iterable(ROWS).schema, name=name, is_bounded=True), splits=4)
        for name in ("one", "other")
    )
    one.union(other).sink(dg.to_nothing())
    plan: Plan = pickle.loads(cloudpickle.dumps(Plan(flow)))
    assert Counted.asked == 2
    return plan


def test_a_plan_that_travelled_opens_the_splits_that_are_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = travelled(monkeypatch)
    plan.bind("job~7")
    opened = plan.open_splits({"job~7/one.source/0", "job~7/one.source/2"})
    assert [reader.address for reader in opened] == ["job~7/one.source/0", "job~7/one.source/2"]
    assert [reader.target for reader in opened] == ["job~7/one/0", "job~7/one/2"]
    assert Counted.asked == 3  # not of the other source
    assert not any(hasattr(reader, "split") for reader in plan.readers if reader not in opened)


@pytest.mark.parametrize("has", [2, 4])
def test_a_source_with_other_splits_at_a_worker_is_refused(monkeypatch: pytest.MonkeyPatch, has: int) -> None:
    plan = travelled(monkeypatch)
    monkeypatch.setattr(Counted, "has", has)
    with pytest.raises(dg.OperatorFailure, match=rf"^source 'one' has {has} splits here and 3 where it was submitted; see"):
        plan.open_splits({"travels/one.source/1"})
