"""Operators give the same results under chaos on three workers as on one worker without any."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import dirigo.flow as dg
from dirigo.state import MapState, add
from dirigo.testing import run
from flow.flows import TS_SCHEMA, Rows, event, run_inline, unordered

Build = Callable[[dg.Stream], dg.Stream]


class Busy(dg.Function):
    """Uses all that a function can, and fails on one row."""

    seen = MapState(str, int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        if row.value == 13:
            raise ValueError("unlucky")
        self.seen.add(row.key, 1)
        context.emit(row)
        if row.value % 7 == 0:
            context.emit_critical("seven")
        if row.value % 11 == 0:
            context.run_alone("eleven")

    def on_end(self, context: dg.FunctionContext) -> None:
        for key in "abc":
            if count := self.seen.get(key):
                context.emit(event(key, 1000 + count, 0))
        context.emit_critical("end", granularity="one")


class Same(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)


def picky(one: Any, other: Any) -> dict[str, Any]:
    return {"key": one.key, "value": one.value + other.value, "ts": max(one.ts, other.ts)}


def sized(group: dg.Group) -> Rows:
    if len(group) == 2:
        raise ValueError("just two")
    return [{"key": group.key["key"], "n": len(group), "start": group.start_ms}]


def sessions_in_windows(stream: dg.Stream) -> dg.Stream:
    sessions = stream.key_by("key").window(dg.Session("5ms"), allowed_lateness="3ms")
    counted = sessions.aggregate(n=dg.count(), kinds=dg.distinct("value")).rename(window_start="start", window_end="end")
    return counted.window(dg.Tumbling("20ms")).aggregate(sessions=dg.count(), rows=dg.sum("n"), kinds=dg.sum("kinds"))


BUILDS: dict[str, Build] = {
    "sessions in windows": sessions_in_windows,
    "apply": lambda s: s.key_by("key").window(dg.Session("2ms")).apply(sized, {"key": str, "n": int, "start": int}),
    "reduce": lambda s: s.key_by("key").window(dg.Sliding("10ms", every="5ms")).reduce(picky),
    "process": lambda s: s.key_by("key").process(Busy, TS_SCHEMA).key_by("value").process(Same, TS_SCHEMA),
    "deduplicate": lambda s: s.with_columns(third=dg.col("value") % 3).deduplicate("key", "third", within="9ms"),
    "running reduce": lambda s: s.key_by("key").reduce(picky),
    "interval join": lambda s: s.join(s, on="key", within=("2ms", "1ms")),
    "outer join": lambda s: s.join(
        s.filter(dg.col("value") % 2 == 0), on={"key": "key", "value": "value"}, window=dg.Tumbling("7ms"), how="outer"
    ),
    "join": lambda s: s.join(s.filter(dg.col("value") < 9), on="key"),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", BUILDS)
def test_chaos_changes_nothing(name: str, seed: int) -> None:
    rng = Random(seed)
    rows = [event(rng.choice("abc"), number, number + rng.randrange(3)) for number in range(50)]
    outcomes = []
    for chaos in (False, True):
        flow = dg.Dataflow("chaos", watermark_every="1ms", on_error="side_output", partitions=2)
        out, errors = dg.collect(), dg.collect()
        source = dg.from_iterable(rows, TS_SCHEMA, time="ts", out_of_orderness="3ms")
        BUILDS[name](flow.source(source)).sink(out)
        flow.errors.sink(errors)
        if chaos:
            run(flow, workers=3, chaos=True, seed=seed, rows_max=3, writes=True)
        else:
            run_inline(flow, 3)
        outcomes.append((unordered(out.rows), unordered(errors.rows)))
    assert outcomes[0][0]
    assert outcomes[1] == outcomes[0]
