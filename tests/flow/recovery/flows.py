"""Flows that keep something: every operator with a state, and functions of users with every kind of state and timer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa

import dirigo as dg
from dirigo.flow.sources.source import Source, SourceBatch, Split
from dirigo.state import add

Rows = list[dict[str, Any]]
Script = Sequence[Any]  # rows, and seconds
Build = Callable[[dg.Stream], dg.Stream]

ROWS, KEYS = 160, 5
SCHEMA = pa.schema([("at", pa.int64()), ("key", pa.int64()), ("n", pa.int64())])
TOLD = {"key": int, "said": str}


class NumberedRows(Source):
    """Rows whose position is their number; a number of seconds among them is a pause."""

    def __init__(self, name: str, script: Script, *, out_of_orderness: str = "40ms", idle_after: str | None = None) -> None:
        super().__init__(
            SCHEMA, name=name, is_bounded=True, time="at", out_of_orderness=out_of_orderness, idle_after=idle_after
        )
        self.script = list(script)

    @property
    def is_replayable(self) -> bool:
        return True

    def splits(self, wanted: int) -> Sequence[Split]:
        return [_NumberedSplit(self.script)]


class _NumberedSplit(Split):
    def __init__(self, script: Sequence[Any]) -> None:
        self._script = script
        self._next = 0

    @property
    def ended(self) -> bool:  # type: ignore[override]  # a plain attribute elsewhere
        return self._next >= len(self._script) and not self._is_paused()

    def _is_paused(self) -> bool:
        return self.next_due_s is not None and self.clock() < self.next_due_s

    def read(self, rows_max: int) -> SourceBatch | None:
        if self._is_paused():
            return None
        self.next_due_s = None
        rows: Rows = []
        while self._next < len(self._script) and len(rows) < rows_max and not isinstance(self._script[self._next], float):
            rows.append(self._script[self._next])
            self._next += 1
        if rows:
            return SourceBatch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        if self._next < len(self._script):
            self.next_due_s = self.clock() + self._script[self._next]
            self._next += 1
        return None

    def position(self) -> Any:
        return [self._next, self.next_due_s]

    def seek(self, position: Any) -> None:
        self._next, self.next_due_s = position

    def close(self) -> None:
        """There is nothing to let go of."""


def rows_of(seed: int = 0, *, behind_ms: int = 40) -> Rows:
    """Rows 10 ms apart, some older than those before them."""
    rng = Random(seed)
    return [
        {"at": max(10 * number - rng.choice([0, 0, behind_ms]), 0), "key": rng.randrange(KEYS), "n": number}
        for number in range(ROWS)
    ]


def flow_of(build: Build, rows: Script | None = None) -> dg.Dataflow:
    """A flow with one source, whose rows are never late."""
    flow = dg.Dataflow("tested", partitions=3, watermark_every="0ms")
    build(flow.source(NumberedRows("rows", rows_of() if rows is None else rows))).sink(dg.to_memory(name="results"))
    return flow


def flow_of_two(first: Script, second: Script, **options: Any) -> dg.Dataflow:
    """Windows over the rows of two sources."""
    flow = dg.Dataflow("tested", partitions=2, watermark_every="0ms")
    one, other = flow.source(NumberedRows("first", first)), flow.source(NumberedRows("second", second, **options))
    windows = one.union(other).key_by("key").window(dg.Tumbling("300ms"))
    windows.aggregate(_aggregates()).sink(dg.to_memory(name="results"))
    return flow


def flow_with_late_rows(build: Callable[[dg.Stream], dg.Stream]) -> dg.Dataflow:
    """Many rows are older than the source says."""
    flow = dg.Dataflow("tested", partitions=2, watermark_every="0ms")
    stream = build(flow.source(NumberedRows("rows", rows_of(behind_ms=400), out_of_orderness="0ms")))
    stream.late.sink(dg.to_memory(name="late"))
    stream.sink(dg.to_memory(name="results"))
    return flow


def _aggregates() -> dict[str, dg.Aggregate]:
    return {"rows": dg.count(), "total": dg.sum("n"), "different": dg.distinct("n"), "mean": dg.avg("n")}


def _halves(stream: dg.Stream) -> tuple[dg.Stream, dg.Stream]:
    return stream.filter(dg.col("n") % 2 == 0), stream.filter(dg.col("n") % 2 == 1)


def _joined(stream: dg.Stream, **options: Any) -> dg.Stream:
    left, right = _halves(stream)
    return left.join(right, "key", **options)


def _larger(one: dg.Row, other: dg.Row) -> Any:
    return one if one.n > other.n else other


def _counted(group: dg.Group) -> Rows:
    return [{"key": group.key["key"], "said": f"{len(group)} {group.start_ms}"}]


def _so_far(before: Any, row: dg.Row) -> Any:
    return {"at": row.at, "key": row.key, "n": before.n + row.n}


OPERATORS: dict[str, Build] = {
    "tumbling": lambda s: s.key_by("key").window(dg.Tumbling("300ms")).aggregate(_aggregates()),
    "sliding": lambda s: s.key_by("key").window(dg.Sliding("400ms", every="150ms")).aggregate(_aggregates()),
    "without keys": lambda s: s.window(dg.Tumbling("250ms")).aggregate(_aggregates()),
    "whole stream": lambda s: s.key_by("key").aggregate(_aggregates()),
    "updates": lambda s: s.key_by("key").aggregate(_aggregates(), emit="watermark").key_by("key").top(1, by="-rows"),
    "apply": lambda s: s.key_by("key").window(dg.Tumbling("300ms")).apply(_counted, TOLD),
    "reduce": lambda s: s.key_by("key").window(dg.Tumbling("300ms")).reduce(_larger),
    "top": lambda s: s.key_by("key").window(dg.Tumbling("300ms")).top(2, by="-n"),
    "sessions": lambda s: s.key_by("key").window(dg.Session("60ms")).aggregate(_aggregates()),
    "interval join": lambda s: _joined(s, within=("50ms", "70ms")),
    "window join": lambda s: _joined(s, window=dg.Sliding("200ms", every="100ms"), how="outer"),
    "join for ever": lambda s: _joined(s),
    "deduplicate": lambda s: s.select("key").deduplicate("key"),
    "deduplicate within": lambda s: s.deduplicate("key", within="200ms"),
    "scan": lambda s: s.key_by("key").scan(_so_far),
    "union": lambda s: (
        _halves(s)[0].union(_halves(s)[1]).key_by("key").window(dg.Tumbling("300ms")).aggregate(_aggregates())
    ),
    "two windows": lambda s: (
        s.key_by("key")
        .window(dg.Tumbling("100ms"))
        .aggregate(n=dg.count())
        .key_by("n")
        .window(dg.Tumbling("400ms"))
        .aggregate(keys=dg.count())
    ),
}


class Basket:
    """A user's own object, which it changes in place."""

    def __init__(self) -> None:
        self.items: list[int] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Basket) and self.items == other.items

    __hash__ = None  # type: ignore[assignment]


def _together(one: Basket, other: Basket) -> Basket:
    basket = Basket()
    basket.items = sorted(one.items + other.items)
    return basket


class Everything(dg.Function):
    """Every kind of state, put together wherever it runs, and told at the end."""

    count = dg.ValueState(int, default=0, combine=add)
    items = dg.ListState(int)
    entries = dg.MapState(int, int, default=0, combine=add)
    basket = dg.ValueState(Basket, default=Basket(), combine=_together)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        self.items.append(row.n)
        self.entries.add(row.n % 3, row.n)
        basket = Basket()
        basket.items.append(row.n)
        self.basket.add(basket)

    def on_end(self, context: dg.FunctionContext) -> None:
        told = [self.count.get(), sorted(self.items), sorted(self.entries.items()), self.basket.get().items]
        context.emit({"key": context.key, "said": str(told)})


class OfThePartition(Everything):
    """The same for a partition as a whole."""

    scope = "partition"

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"key": self.count.get(), "said": str(sorted(self.items))})


class InPlace(dg.Function):
    """Changes its objects in place, row after row."""

    ordered = True
    basket = dg.ValueState(Basket, default=Basket())
    lists = dg.ValueState(list, default=[])

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.basket.get().items.append(row.n)
        self.lists.get().append(row.n)
        context.emit({"key": row.key, "said": f"{len(self.basket.get().items)} {self.lists.get()[-3:]}"})


class EventTimers(dg.Function):
    """Named timers that are put off, others without a name, and some that set new ones."""

    rows = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.rows.add(1)
        context.set_event_timer(row.at + 80, ["quiet", row.at], name="quiet")
        if row.n % 7 == 0:
            context.set_event_timer(row.at + 500, ["later", row.n])

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": context.key, "said": f"{payload[0]} {payload[1] if payload[0] != 'quiet' else ''}"})
        if payload[0] == "later":
            context.set_event_timer(payload[1] * 10 + 900, ["again", payload[1]])


class ClockTimers(dg.Function):
    """Each row is told by a timer of its own."""

    rows = dg.ListState(int)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.set_timer(f"{1 + row.n % 60}ms", row.n)

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        self.rows.append(payload)
        context.emit({"key": context.key, "said": f"fired {payload}"})

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"key": context.key, "said": f"in all {len(self.rows)}"})


class Alone(dg.Function):
    """Asks to run alone for every row."""

    rows = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.rows.add(1)
        if row.n % 8 == 0:
            context.run_alone([row.n])

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": context.key, "said": f"alone {payload[0]}"})


class Brief(dg.Function):
    """What was not written for 150 ms of event time is forgotten."""

    ordered = True
    count = dg.ValueState(int, default=0, ttl="150ms")
    items = dg.ListState(int, ttl="90ms")

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.set(self.count.get() + 1)
        self.items.append(row.n)
        context.emit({"key": row.key, "said": f"{self.count.get()} {len(self.items)}"})


class Sending(dg.Function):
    """Sends a message to all functions downstream now and then."""

    ordered = True

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row.asdict())
        if row.n % 50 == 0:
            context.emit_critical(["tell", row.n], granularity="one")


class Hearing(dg.Function):
    """Counts rows and what it hears; hears nothing but what was sent."""

    rows = dg.ValueState(int, default=0, combine=add)
    heard = dg.ListState(int)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.rows.add(1)

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        self.heard.append(payload[1])

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"key": self.rows.get(), "said": str(sorted(self.heard))})


class Replicated(dg.Function):
    """Reads what the whole has come to, which it does not tell: how old that is depends on where it runs."""

    count = dg.ValueState(int, default=0, combine=add, replicated=True)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        assert 0 <= self.count.read() <= ROWS
        self.count.add(1)

    def on_watermark(self, context: dg.FunctionContext, time_ms: int) -> None:
        assert self.count.read() == self.count.get()

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"key": context.key, "said": str(self.count.read())})


def _process(function: type[dg.Function]) -> Build:
    return lambda stream: stream.key_by("key").process(function, TOLD)


CLOCK_WINDOWS: Build = lambda s: (  # noqa: E731
    s.key_by("key").window(dg.Sliding("60ms", every="20ms", time="processing")).aggregate(_aggregates())
)


FUNCTIONS: dict[str, Build] = {
    function.__name__: _process(function) for function in (Everything, OfThePartition, InPlace, Alone, Replicated)
} | {
    "SYNC_ONE beside snapshots": lambda s: s.key_by("key").process(Sending, SCHEMA).key_by("n").process(Hearing, TOLD),
}

# What these emit depends on when watermarks come: their input has to be cut in the same places every time.
FUNCTIONS_OF_TIME: dict[str, Build] = {function.__name__: _process(function) for function in (EventTimers, Brief)}
CLOCK_TIMERS: Build = _process(ClockTimers)
LATE: dict[str, Build] = {
    "windows": lambda s: s.key_by("key").window(dg.Tumbling("300ms"), allowed_lateness="200ms").aggregate(_aggregates()),
    "sessions": lambda s: s.key_by("key").window(dg.Session("60ms"), allowed_lateness="100ms").aggregate(_aggregates()),
    "deduplicate within": lambda s: s.deduplicate("key", within="200ms"),
}
