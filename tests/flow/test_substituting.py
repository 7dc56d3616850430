"""A flow with other sources and sinks: the same graph, and the flow itself stays as it is."""

from __future__ import annotations

import pytest

import dirigo as dg
from dirigo.flow.errors import FlowError
from dirigo.flow.plan.substitutes import sink_names, substituted
from dirigo.testing import run

SCHEMA = {"n": int}


def numbers(*values: int, name: str = "numbers") -> dg.Source:
    return dg.from_iterable([{"n": n} for n in values], SCHEMA, name=name)


def two_ways() -> dg.Dataflow:
    """Two sources, a union, a branch for bad rows, and emulated work: all that refers to nodes."""
    flow = dg.Dataflow("two-ways", on_error="side_output")
    left = flow.source(numbers(1, 2), name="left")
    right = flow.source(numbers(10, 0), name="right")
    left.union(right).map(lambda row: {"n": 20 // row.n}, schema=SCHEMA, name="divide").sink(dg.to_memory(name="out"))
    flow.errors.map(lambda row: {"n": -len(row.operator)}, schema=SCHEMA).sink(dg.to_memory(name="bad"))
    flow.emulate("left", per_row="5ms")
    return flow


def test_rows_come_from_other_sources_and_go_to_other_sinks() -> None:
    flow = two_ways()
    elsewhere, bad = dg.to_memory(), dg.to_memory()
    other = substituted(flow, sources={"left": numbers(4, 0)}, sinks={"out": elsewhere, "bad": bad})
    run(other, writes=True)
    assert sorted(row["n"] for row in elsewhere.rows) == [2, 5]
    assert [row["n"] for row in bad.rows] == [-6, -6]
    assert [work.per_row_s for work in other.emulated.values()] == [0.005]
    assert {node.name for node in other.emulated} == {"left"}
    assert not set(other.nodes) & set(flow.nodes)


def test_the_flow_itself_stays_as_it_is() -> None:
    flow = two_ways()
    before = sorted(row["n"] for row in run(flow).rows("out"))
    substituted(flow, sources={"left": numbers(4)}, sinks={name: dg.to_nothing() for name in sink_names(flow)})
    assert sorted(row["n"] for row in run(flow).rows("out")) == before == [2, 10, 20]
    assert sink_names(flow) == ["out", "bad"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (dg.from_iterable([], {"m": int}), "cannot stand in for 'left': its columns"),
        (dg.from_iterable([], {"n": int}, time="n"), "cannot stand in for 'left': its columns or its event time"),
    ],
)
def test_a_source_of_other_rows_is_refused(source: dg.Source, sentence: str) -> None:
    with pytest.raises(FlowError, match=sentence):
        substituted(two_ways(), sources={"left": source})


def test_what_the_flow_does_not_have_is_refused() -> None:
    with pytest.raises(FlowError, match="has no source or sink 'middle'; it has bad, left, out, right"):
        substituted(two_ways(), sources={"middle": numbers()})
