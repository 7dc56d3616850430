"""Making a plan takes as many steps as it has actors and connections, and not as many as there are pairs of them."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import dirigo as dg
from dirigo.flow.api import dataflow as graph
from dirigo.flow.plan import bound_job, plan, stage
from dirigo.flow.plan.bound_job import BoundJob

COUNTED = {module.__file__ for module in (graph, bound_job, plan, stage)}


def chain(partitions: int) -> dg.Dataflow:
    """Many actors, each connected to few others."""
    flow = dg.Dataflow("chain", partitions=partitions, on_error="side_output")
    source = flow.source(dg.from_iterable([{"key": 1, "ts": 1}], time="ts"), name="events")
    windows = source.key_by("key").window(dg.Tumbling("1s")).aggregate(n=dg.count())
    windows.late.sink(dg.to_memory(), name="late")
    windows.map(dict, {"n": int}, name="slow").filter(dg.col("n") > 0).sink(dg.to_memory(), name="out")
    flow.errors.sink(dg.to_memory(), name="errors")
    return flow


def steps_and_connections(partitions: int) -> tuple[int, int]:
    """How many lines run until all actors are made, and how many connections there are between them."""
    flow = chain(partitions)
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return trace if frame.f_code.co_filename in COUNTED else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        specs = BoundJob(flow, workers=range(10)).specs()
    finally:
        sys.settrace(before)
    return steps, sum(len(spec.downstreams) for spec in specs)


def test_a_plan_of_ten_times_as_many_partitions_takes_ten_times_as_many_steps() -> None:
    few_steps, few = steps_and_connections(50)
    many_steps, many = steps_and_connections(500)
    assert many <= 10 * few
    assert many_steps <= 10 * few_steps
    assert many > 1_000, "there is something to count"
