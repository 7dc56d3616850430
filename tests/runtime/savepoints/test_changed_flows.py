"""Which operators of a flow go on from a savepoint, when the flow is another one by now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.errors import DirigoError
from dirigo.flow.plan.description import OperatorDescription, PlanDescription, describe
from dirigo.flow.plan.matching import matched
from dirigo.flow.plan.plan import Plan
from runtime.clusters import SCHEMA, LocalCluster, counting, numbers, until
from runtime.savepoints.flows_to_stop import as_counter, keyed, slowly

ROWS = 6_000


def sums(maker: Any, sink: Any, *, name: str = "sums", once: bool = True, more: bool = False) -> dg.Dataflow:
    """Rows without duplicates, counted per key over the whole stream."""
    flow = dg.Dataflow("changing")
    stream = flow.source(dg.from_generator(maker, SCHEMA, ROWS, block=50, time="ts", name="numbers"))
    if once:
        stream = stream.deduplicate("n", name="once")
    if more:
        stream = stream.deduplicate("n", name="again")
    counted = stream.key_by("key").aggregate(rows=dg.count(), total=dg.sum("n")).named(name)
    counted.sink(sink)
    return flow


def expected(rows: range) -> Any:
    found: dict[int, list[int]] = {}
    for number, key in enumerate(keyed(0, ROWS)["key"].to_pylist()):
        if number in rows:
            found.setdefault(key, []).append(number)
    return as_counter({"key": key, "rows": len(each), "total": sum(each)} for key, each in found.items())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("changed")
    with LocalCluster(folder / "logs", 2, folder / "snapshots", every_s=5) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def savepoint(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a job that went on."""
    sink = dg.to_memory()
    job = cluster.submit(sums(slowly, sink))
    until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
    path = tmp_path_factory.mktemp("savepoints") / "kept"
    job.savepoint(path, timeout_s=60)
    assert job.status().state == "running"
    assert job.wait(60).stopped_into is None
    assert as_counter(sink.rows) == expected(range(ROWS))
    return path


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, {}),
        ({"name": "totals"}, {"renamed": {"sums": "totals"}}),
        ({"more": True}, {}),
        ({"once": False}, {"dropped": ["once"]}),
    ],
    ids=["unchanged", "renamed", "added", "dropped"],
)
def test_a_changed_flow_goes_on(cluster: LocalCluster, savepoint: Path, changes: Any, options: Any) -> None:
    sink = dg.to_memory()
    job = cluster.submit(sums(keyed, sink, **changes), savepoint=savepoint, **options)
    assert job.wait(60).state == "finished"
    assert as_counter(sink.rows) == expected(range(ROWS))
    assert job.metrics().rows_in < ROWS


def test_a_dropped_state_begins_with_nothing(cluster: LocalCluster, savepoint: Path) -> None:
    sink = dg.to_memory()
    job = cluster.submit(sums(keyed, sink), savepoint=savepoint, dropped=["sums"])
    assert job.wait(60).state == "finished"
    assert as_counter(sink.rows) == expected(range(ROWS - job.metrics().rows_in, ROWS))


def test_an_added_source_begins_at_its_beginning(cluster: LocalCluster, savepoint: Path) -> None:
    old, new = dg.to_memory(), dg.to_memory()
    flow = sums(keyed, old)
    flow.source(dg.from_generator(numbers, SCHEMA, 100, block=10, time="ts", name="others")).sink(new)
    assert cluster.submit(flow, savepoint=savepoint).wait(60).state == "finished"
    assert sorted(row["n"] for row in new.rows) == list(range(100))
    assert as_counter(old.rows) == expected(range(ROWS))


def test_everything_that_does_not_fit_is_told_at_once(cluster: LocalCluster, savepoint: Path) -> None:
    flow = sums(keyed, dg.to_memory(), name="totals", once=False)
    with pytest.raises(DirigoError) as error:
        cluster.submit(flow, savepoint=savepoint)
    told = str(error.value)
    for part in ("job 'changing'", "operator 'once' (deduplicate by n) is not in it", "operator 'sums'", "dropped="):
        assert part in told
    with pytest.raises(DirigoError, match=r"numbers.*once.*sums"):
        cluster.submit(counting("other", splits=3)[0], savepoint=savepoint)
    assert [job.name for job in cluster.client.jobs()].count("other") == 0


def operator(name: str, **changes: Any) -> OperatorDescription:
    given: dict[str, Any] = {
        "kind": "window",
        "described": "sum",
        "partitions": 4,
        "keys": ("key",),
        "state": "v.sum: int64",
    } | changes
    return OperatorDescription(name=name, **given)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "scan"}, "is of kind 'scan'"),
        ({"keys": ("user",)}, r"has the keys \(user\) in it, and had \(key\)"),
        ({"state": "v.max: int64"}, r"keeps something else in it: \[v.max: int64\], and kept \[v.sum: int64\]"),
        ({"partitions": 8, "can_be_divided": False}, "has 8 partitions in it, and had 4"),
        ({"is_source": True}, "is of kind"),
    ],
)
def test_what_differs_is_told(changes: Any, told: str) -> None:
    saved = PlanDescription(operators=(operator("one"), operator("two")))
    now = PlanDescription(operators=(operator("one", **changes), operator("two", partitions=8)))
    with pytest.raises(DirigoError, match=f"operator 'one' .sum. {told}"):
        matched(saved, now)
    assert matched(saved, now, dropped=["one"]) == {"two": saved.operators[1]}


def test_splits_of_a_source_stay_as_many() -> None:
    saved = PlanDescription(operators=(operator("rows", is_source=True, partitions=2),))
    now = PlanDescription(operators=(operator("rows", is_source=True, partitions=3),))
    with pytest.raises(DirigoError, match="is read in 3 splits in it, and was in 2; read it in as many as before"):
        matched(saved, now)


def test_what_only_the_text_is_kept_of_stays_in_as_many_partitions() -> None:
    def described(partitions: int) -> PlanDescription:
        flow = dg.Dataflow("seen", partitions=partitions)
        schema = pa.schema([("names", pa.list_(pa.string())), ("n", pa.int64())])
        rows = flow.source(dg.from_iterable([], schema, name="rows"))
        rows.deduplicate("names", "n", name="both").deduplicate("n", name="number").sink(dg.to_nothing())
        return describe(Plan(flow, "seen"))

    with pytest.raises(
        DirigoError, match=r"operator 'both' .* has 4 partitions in it, and had 2, .* cannot be divided"
    ) as told:
        matched(described(2), described(4))
    assert "'number'" not in str(told.value)
    assert "both" in matched(described(2), described(2))


def test_wrong_options_are_told() -> None:
    plan = PlanDescription(operators=(operator("one"), operator("two")))
    for dropped, renamed, told in (
        (["none"], {}, "the savepoint has no operator 'none' .it has one, two."),
        ([], {"none": "one"}, "the savepoint has no operator 'none'"),
        ([], {"one": "none"}, "there is no operator 'none' that 'one' could be now"),
        (["one"], {"one": "two"}, "'one' is both dropped and renamed"),
        ([], {"one": "two", "two": "two"}, "several operators are renamed to 'two'"),
    ):
        with pytest.raises(DirigoError, match=told):
            matched(plan, plan, dropped, renamed)
    swapped = matched(plan, plan, (), {"one": "two", "two": "one"})
    assert (swapped["one"].name, swapped["two"].name) == ("two", "one")


def test_a_stateless_operator_may_go_or_change() -> None:
    saved = PlanDescription(operators=(operator("pass", kind="map", state=""), operator("sums")))
    now = PlanDescription(operators=(operator("sums"), operator("other", kind="map", state="")))
    assert set(matched(saved, now)) == {"sums"}
