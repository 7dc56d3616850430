"""Small flows of all operators, for tests that spread them over workers: each takes a stream of key, value and ts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dirigo as dg
from dirigo.state import ListState, MapState, ValueState, add
from flow.flows import TS_SCHEMA, Rows, event

Build = Callable[[dg.Stream], dg.Stream]


class Busy(dg.Function):
    """Uses all that a function can, and fails on one row."""

    scope = "partition"
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


class ByKey(dg.Function):
    """Uses all that a function can do for a key, and fails on one row."""

    seen = ValueState(int, default=0, combine=add)
    values = ListState(int)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.seen.add(1)
        self.values.append(row.value)
        context.set_event_timer(10 * row.value + 5, row.value)
        context.set_event_timer(row.ts + 100_000, name="end")
        if row.value == 13:
            raise ValueError("unlucky")
        if row.value % 9 == 0:
            context.run_alone(-row.value)

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        if payload is None:
            context.emit(event(context.key, self.seen.get(), 0))
        else:
            context.emit(event(context.key, 1_000 + payload, 0))

    def on_end(self, context: dg.FunctionContext) -> None:
        for value in sorted(self.values):
            context.emit(event(context.key, 10_000 + value, 0))


class Same(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)


class Told(dg.Function):
    """Emits what it is called with beside rows: what it asked for itself, and critical messages."""

    scope = "partition"

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        if row.value % 5 == 0:
            context.run_alone(f"alone {row.value}")
        if row.value % 10 == 0:
            context.set_timer("1ms", f"timer {row.value}")

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        if payload.startswith("alone"):  # how many timers are due before the end is a matter of time
            context.emit({"told": payload})

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"told": payload})


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


def by_the_clock(stream: dg.Stream) -> dg.Stream:
    """How many rows each window has is a matter of time, how many all of them have is not."""
    counted = stream.key_by("key").window(dg.Sliding("4ms", every="2ms", time="processing")).aggregate(n=dg.count())
    return counted.key_by("key").aggregate(n=dg.sum("n"))


BUILDS: dict[str, Build] = {
    "sessions in windows": sessions_in_windows,
    "apply": lambda s: s.key_by("key").window(dg.Session("2ms")).apply(sized, {"key": str, "n": int, "start": int}),
    "reduce": lambda s: s.key_by("key").window(dg.Sliding("10ms", every="5ms")).reduce(picky),
    "process": lambda s: s.key_by("key").process(Busy, TS_SCHEMA).key_by("value").process(Same, TS_SCHEMA),
    "process by key": lambda s: s.key_by("key").process(ByKey, TS_SCHEMA),
    "deduplicate": lambda s: s.with_columns(third=dg.col("value") % 3).deduplicate("key", "third", within="9ms"),
    "scan": lambda s: s.key_by("key").scan(picky),
    "interval join": lambda s: s.join(s, on="key", within=("2ms", "1ms")),
    "outer join": lambda s: s.join(
        s.filter(dg.col("value") % 2 == 0), on={"key": "key", "value": "value"}, window=dg.Tumbling("7ms"), how="outer"
    ),
    "join": lambda s: s.join(s.filter(dg.col("value") < 9), on="key"),
    "whole stream": lambda s: s.key_by("key").top(3, by="-value"),
    "union": lambda s: s.union(s.filter(dg.col("value") > 9)).window(dg.Tumbling("5ms")).aggregate(n=dg.count()),
    "told": lambda s: s.process(Busy, TS_SCHEMA).key_by("key").process(Told, {"told": str}),
    "by the clock": by_the_clock,
}
