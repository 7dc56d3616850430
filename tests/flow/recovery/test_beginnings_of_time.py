"""How far in event time the actors of a job are that begins with a savepoint, where its flow is another one."""

from __future__ import annotations

from typing import Any

import dirigo as dg
from dirigo.flow.event_time.watermark import BEGINNING, ChannelProgress
from dirigo.flow.plan.description import describe
from dirigo.flow.plan.matching import matched
from dirigo.flow.plan.plan import Plan
from dirigo.flow.plan.resumption import Resumption
from dirigo.flow.plan.states import StageHead
from dirigo.flow.sources.reader import ReaderCapture
from flow.flows import TS_SCHEMA

SAVED_MS = 5_000


class Passing(dg.Function):
    """Keeps nothing."""

    def on_message(self, context: Any, row: Any) -> None:
        context.emit(row.asdict())


def plan_of() -> Plan:
    flow = dg.Dataflow("job", partitions=2)
    rows = flow.source(dg.from_iterable([], TS_SCHEMA, time="ts", name="rows"))
    passed = rows.key_by("key").process(Passing, TS_SCHEMA, name="passing", time="ts")
    passed.key_by("key").window(dg.Tumbling("1s")).aggregate(rows=dg.count()).named("counts").sink(dg.to_nothing())
    return Plan(flow, "job")


def watermarks(*dropped: str) -> dict[str, tuple[int, int]]:
    """Of the first actor of each operator: its own, and that of its channels."""
    plan = plan_of()
    heads = {place: StageHead(SAVED_MS, ChannelProgress(SAVED_MS, {}, ())) for each in plan.stages for place in each.places}
    readers = {"rows.source/0": ReaderCapture([0], 9, SAVED_MS, SAVED_MS, False, False, False)}
    resumption = Resumption(plan, matched(describe(plan), describe(plan), dropped), readers, heads)
    found = {}
    for stage in plan.stages:
        states = stage.new_states(0)
        resumption.restore(stage, 0, states, {})
        found[stage.name] = (states.watermark, min(states.progress.capture().times.values()))
    return found


def test_all_are_as_far_as_they_were() -> None:
    assert set(watermarks().values()) == {(SAVED_MS, SAVED_MS)}


def test_rows_of_a_source_that_begins_anew_are_not_late_where_nothing_was_kept() -> None:
    anew = (BEGINNING, BEGINNING)
    assert watermarks("rows", "counts") == {"rows": anew, "passing": anew, "counts": anew, "to_nothing": anew}


def test_they_are_late_for_windows_that_were_closed() -> None:
    found = watermarks("rows")
    assert found["passing"] == (BEGINNING, BEGINNING)
    assert found["counts"] == (SAVED_MS, BEGINNING)
