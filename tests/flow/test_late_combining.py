"""Flows whose rows are summarised by the receiver: the same results, late rows and bad rows as when the sender does it."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.exchange.payloads import rows_of
from dirigo.kernel import RunnableMessage
from dirigo.sim.service import ServiceTimes
from dirigo.testing import Pause, run
from dirigo_lab.nexmark import QUERIES, GeneratedTables
from flow.flows import Rows, collected, run_inline, unordered
from flow.random_flows.comparison import difference, rows_apart
from flow.random_flows.generator import random_flow
from flow.random_flows.late_flows import LateFlow

Build = Callable[[dg.Stream], dg.Stream]

SCHEMA = pa.schema([("key", pa.int64()), ("text", pa.string()), ("ts", pa.int64())])
KINDS: dict[str, Build] = {}


def kind(function: Build) -> Build:
    """One of the ways to summarise rows that fails on a text that is no number."""
    KINDS[function.__name__] = function
    return function


def aggregates() -> dict[str, dg.Aggregate]:
    number = dg.col("text").cast(int)
    return {
        "total": dg.sum(number),
        "different": dg.distinct(number),
        "none": dg.distinct(number, where=dg.col("key") < 0),  # a table without rows
        "n": dg.count(),
    }


@kind
def tumbling(stream: dg.Stream) -> dg.Stream:
    return stream.key_by("key").window(dg.Tumbling("100ms", offset="30ms")).aggregate(aggregates())


@kind
def sliding(stream: dg.Stream) -> dg.Stream:
    return stream.key_by("key").window(dg.Sliding("100ms", every="40ms")).aggregate(aggregates())


@kind
def without_keys(stream: dg.Stream) -> dg.Stream:
    return stream.window(dg.Tumbling("100ms")).aggregate(aggregates())


@kind
def sessions(stream: dg.Stream) -> dg.Stream:
    return stream.key_by("key").window(dg.Session("20ms")).aggregate(aggregates())


@kind
def whole(stream: dg.Stream) -> dg.Stream:
    return stream.key_by("key").aggregate(aggregates())


@kind
def behind_a_window(stream: dg.Stream) -> dg.Stream:
    """The rows of the second window are results of the first, which emits them at barriers."""
    counts = stream.key_by("key", "text").window(dg.Tumbling("50ms")).aggregate(n=dg.count())
    return counts.key_by("key").window(dg.Tumbling("100ms")).aggregate(total=dg.sum(dg.col("text").cast(int) * dg.col("n")))


def texts(seed: int, rows: int = 300, bad: float = 0.03) -> Rows:
    rng = Random(seed)
    return [
        {"key": rng.randrange(5), "text": "x" if rng.random() < bad else str(rng.randrange(50)), "ts": number * 3}
        for number in range(rows)
    ]


def flow_of(rows: Rows, build: Build, combines_early: bool, **options: Any) -> tuple[dg.Dataflow, Any]:
    flow = dg.Dataflow("tested", watermark_every="1ms", partitions=3, combines_early=combines_early, **options)
    return flow, collected(build(flow.source(dg.from_iterable(rows, SCHEMA, time="ts", name="rows"))).named("summary"))


# --- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2_000, 2_016))
def test_random_flow_that_combines_late_equals_plain_python(seed: int) -> None:
    found = difference(random_flow(seed, combines_early=False))
    assert found is None, found


LATE_KINDS = ("windows", "sessions", "updates")


@pytest.mark.parametrize("seed", [seed for seed in range(40) if LateFlow(seed).described in LATE_KINDS][:12])
def test_late_rows_and_results_that_come_again_are_the_same(seed: int) -> None:
    expected = LateFlow(seed).in_sequence()
    flow = LateFlow(seed, combines_early=False)
    for found in (flow.in_sequence(), flow.in_disorder()):
        for sink in expected.sinks:
            assert rows_apart(expected.rows(sink), found.rows(sink)) is None
        assert found.late_rows_dropped == expected.late_rows_dropped


@pytest.mark.parametrize("query", ["q5", "q7", "q8", "q11", "q12_event", "q15", "q16"])
def test_nexmark_query_that_combines_late(query: str) -> None:
    def results(combines_early: bool, **options: Any) -> list[Any]:
        flow = dg.Dataflow(query, combines_early=combines_early)
        tables = GeneratedTables(4_000, 100, block_events=500, out_of_order_group=1)
        QUERIES[query].function(flow, tables).sink(dg.to_memory())
        return unordered(run(flow, **options).rows())

    expected = results(True)
    assert expected
    assert results(False) == expected
    assert results(False, workers=3, chaos=True, seed=7, rows_max=300) == expected


def test_windows_of_processing_time_combine_late_too() -> None:
    def build(stream: dg.Stream) -> dg.Stream:
        return stream.key_by("key").window(dg.Tumbling("10s", time="processing")).aggregate(aggregates())

    rows = texts(1, rows=40, bad=0.0)
    flow, _ = flow_of(rows, build, combines_early=False)
    found = run(flow, {"rows": [*rows[:20], Pause("11s"), *rows[20:]]}).rows()
    early, _ = flow_of(rows, build, combines_early=True)
    assert unordered(found) == unordered(run(early, {"rows": [*rows[:20], Pause("11s"), *rows[20:]]}).rows())
    assert len({row["window_end"] for row in found}) == 2


# --- what travels ------------------------------------------------------------------------------------------------------


def rows_that_arrive(build: Build, combines_early: bool) -> int:
    arrived = 0

    def counting(message: RunnableMessage, _: Any) -> float:
        nonlocal arrived
        if not message.critical and message.to.split("/")[1] == "summary":
            arrived += rows_of(message.payload)
        return 0.0

    flow, _ = flow_of(texts(3), build, combines_early)
    run(flow, service=ServiceTimes(counting))
    return arrived


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.key_by("key").window(dg.Tumbling("100ms")).aggregate(n=dg.count()),
        lambda s: s.key_by("key").window(dg.Sliding("200ms", every="100ms")).top(1, by="-text"),
        lambda s: s.key_by("key").window(dg.Tumbling("100ms")).reduce(lambda one, _: one),
        lambda s: s.key_by("key").window(dg.Session("20ms")).aggregate(n=dg.count()),
        lambda s: s.key_by("key").window(dg.Tumbling("100ms", time="processing")).aggregate(n=dg.count()),
        lambda s: s.window(dg.Tumbling("100ms")).aggregate(n=dg.count(), different=dg.distinct("key")),
        lambda s: s.key_by("key").aggregate(n=dg.count()),
    ],
    ids=["aggregate", "top", "reduce", "sessions", "processing time", "without keys", "whole stream"],
)
def test_rows_travel_as_they_are_only_if_they_combine_late(build: Build) -> None:
    assert rows_that_arrive(build, combines_early=False) == 300
    assert rows_that_arrive(build, combines_early=True) < 150


# --- bad rows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_row_that_cannot_be_summarised_fails_the_job_by_its_name(name: str) -> None:
    rows = texts(4, bad=0.0)
    rows[100] = {"key": 2, "text": "many", "ts": 300}
    sentences = []
    for combines_early in (True, False):
        flow, _ = flow_of(rows, KINDS[name], combines_early)
        with pytest.raises(dg.RowFailure, match=r"^operator 'summary' cannot handle the row \{.*many.*on_error") as failure:
            run_inline(flow)
        sentences.append(str(failure.value))
    assert sentences[0] == sentences[1]


@pytest.mark.parametrize("name", KINDS)
def test_rows_that_cannot_be_summarised_are_kept_apart(name: str) -> None:
    rows = texts(5)

    def outcome(combines_early: bool, **options: Any) -> tuple[list[Any], list[Any]]:
        flow, _ = flow_of(rows, KINDS[name], combines_early, on_error="side_output")
        flow.errors.sink(dg.to_memory(name="errors"))
        simulation = run(flow, **options)
        return unordered(simulation.rows("to_memory")), unordered(simulation.rows("errors"))

    expected = outcome(True)
    assert {json.loads(dict(error)["row"])["text"] for error in expected[1]} == {"x"}
    assert outcome(False) == expected
    assert outcome(False, rows_max=1) == expected
    for seed in range(3):
        assert outcome(False, workers=3, chaos=True, seed=seed, rows_max=40) == expected


def test_a_sum_that_is_too_large_is_no_rows_fault() -> None:
    rows = [{"key": 1, "text": str(2**62), "ts": ts} for ts in range(3)]
    for combines_early in (True, False):
        flow, _ = flow_of(rows, tumbling, combines_early)
        with pytest.raises(dg.OperatorFailure, match="operator 'summary' failed") as failure:
            run_inline(flow)
        assert not isinstance(failure.value, dg.RowFailure)


@pytest.mark.parametrize("combines_early", [True, False])
def test_an_old_row_that_touches_an_open_session_and_cannot_be_summarised_is_kept_apart(combines_early: bool) -> None:
    # When they come the watermark is 60: they might be late, and only the session that is still open shows otherwise.
    rows = [{"key": 1, "text": "1", "ts": ts} for ts in (0, 20, 40, 60)]
    late = [{"key": 1, "text": text, "ts": 25} for text in ("x", "2")]
    flow = dg.Dataflow("old", watermark_every="0ms", on_error="side_output", combines_early=combines_early)
    stream = flow.source(dg.from_iterable([*rows, *late], SCHEMA, time="ts"))
    summary = stream.key_by("key").window(dg.Session("20ms"), allowed_lateness="5ms").aggregate(total=aggregates()["total"])
    summary.sink(dg.to_memory(name="sums"))
    flow.errors.sink(dg.to_memory(name="errors"))
    simulation = run(flow, rows_max=1)
    assert [row["total"] for row in simulation.rows("sums")] == [6]
    assert [json.loads(row["row"])["text"] for row in simulation.rows("errors")] == ["x"]


# --- the argument ------------------------------------------------------------------------------------------------------


def test_combines_early_is_true_or_false() -> None:
    with pytest.raises(dg.FlowError, match=r"^dataflow 'f': combines_early is True or False, not 'no'\.$"):
        dg.Dataflow("f", combines_early="no")  # type: ignore[arg-type]
