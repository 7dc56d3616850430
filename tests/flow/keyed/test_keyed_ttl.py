"""States that expire: what was not written for long is gone, by event time or by the clock."""

from __future__ import annotations

from typing import Any

import pytest

import dirigo as dg
from dirigo.flow.operators.process.process import Process
from dirigo.state import add
from dirigo.testing import Simulation
from flow.flows import TS_SCHEMA, FakeClock, Rows, Running, collected, event, results, unordered

TOLD = {"key": str, "said": str}


class Seen(dg.Function):
    ordered = True
    count = dg.ValueState(int, default=0, ttl="10ms")
    items = dg.ListState(int, ttl="20ms")
    entries = dg.MapState(int, int, ttl="10ms")
    for_ever = dg.ValueState(int, default=0)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"key": row.key, "said": f"{self.count.get()} {list(self.items)} {dict(self.entries.items())}"})
        self.for_ever.add(1) if row.value < 0 else self.for_ever.set(self.for_ever.get() + 1)
        if row.value:
            self.count.set(self.count.get() + 1)
            self.items.append(row.value)
            self.entries[row.value] = 1


def said(rows: Rows, **options: Any) -> list[str]:
    out = results(rows, lambda s: s.key_by("key").process(Seen, TOLD), partitions=1, **options)
    return [row["said"] for row in out]


@pytest.mark.parametrize("rows_max", [1, 100])
def test_in_an_ordered_function_a_later_row_finds_nothing(rows_max: int) -> None:
    rows = [event("a", 1, 0), event("a", 2, 9), event("b", 3, 10), event("a", 4, 19), event("a", 0, 38), event("a", 0, 39)]
    assert said(rows, rows_max=rows_max) == [
        "0 [] {}",
        "1 [1] {1: 1}",
        "0 [] {}",
        "0 [1, 2] {}",  # 10 ms after the last one was written
        "0 [1, 2, 4] {}",
        "0 [] {}",
    ]


def test_an_older_row_does_not_bring_it_back_and_does_not_shorten_its_life() -> None:
    rows = [event("a", 1, 20), event("a", 2, 15), event("a", 0, 29), event("a", 0, 30), event("a", 0, 20)]
    assert said(rows, out_of_orderness="30ms") == [
        "0 [] {}",
        "1 [1] {1: 1}",
        "2 [1, 2] {1: 1, 2: 1}",
        "0 [1, 2] {}",
        "0 [1, 2] {}",
    ]


def test_what_has_expired_is_removed_with_a_watermark_and_takes_no_room() -> None:
    flow = dg.Dataflow("seen", watermark_every="1ms", partitions=1)
    stream = flow.source(dg.from_iterable([], TS_SCHEMA, time="ts", name="rows"))
    stream.key_by("key").process(Seen, TOLD, name="seen").sink(dg.to_memory())
    simulation = Simulation(flow, open_sources="rows")
    simulation.push("rows", [(f"k{number}", 1, number // 10) for number in range(100)])
    simulation.advance("1s")
    assert len(simulation.state("seen")) == 100
    simulation.push("rows", [("b", 0, 25)])
    simulation.advance("1s")
    held = simulation.state("seen")
    assert {len(each["items"]) for key, each in held.items() if key < "k5"} == {0}
    assert sum(bool(each["items"]) for each in held.values()) == 40  # written after 5
    assert all(each["for_ever"] == 1 for each in held.values())
    assert not any(each["count"] for each in held.values())


class Parallel(dg.Function):
    count = dg.ValueState(int, default=0, combine=add, ttl="100ms")

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"key": context.key, "said": str(self.count.get())})


@pytest.mark.parametrize("seed", range(10))
def test_in_a_parallel_function_the_last_write_of_all_workers_counts(seed: int) -> None:
    flow = dg.Dataflow("parallel", watermark_every="1ms", partitions=1)
    stream = flow.source(dg.from_iterable([], TS_SCHEMA, time="ts", name="rows"))
    stream.key_by("key").process(Parallel, TOLD, name="parallel").sink(dg.to_memory())
    simulation = Simulation(flow, open_sources="rows", workers=3, chaos=True, seed=seed, rows_max=5)
    # The hot key is written all the time, and no part of it may be lost, however old it is; the others are written once.
    rows = [("hot" if number % 2 else f"k{number}", 1, 10 * number) for number in range(200)]
    simulation.push("rows", rows)
    simulation.advance("1m")
    assert simulation.elsewhere["parallel"] > 0
    assert simulation.state("parallel")["hot"] == {"count": 100}
    others = {key for key in simulation.state("parallel") if key != "hot"}
    assert others >= {"k190", "k192", "k194", "k196", "k198"}  # written at 1900 or later, and it is 1990
    assert not others & {f"k{number}" for number in range(0, 180, 2)}  # expired at 1890 at the latest
    simulation.finish()  # which is when the last row was
    assert {row["key"] for row in simulation.rows()} == {"hot", "k190", "k192", "k194", "k196", "k198"}


class OnTimer(dg.Function):
    """Asks for its state by timers before and at the end of its life."""

    ordered = True
    count = dg.ValueState(int, default=0, ttl="10ms")

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.set(row.value)
        context.set_event_timer(row.ts + 9, "before")
        context.set_event_timer(row.ts + 10, "at")

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": context.key, "said": f"{payload} {self.count.get()}"})


@pytest.mark.parametrize("last", [8, 9, 10, 1_000])
def test_a_timer_finds_what_was_alive_at_its_time_whenever_the_watermark_comes(last: int) -> None:
    out = results([event("a", 7, 0), event("b", 8, last)], lambda s: s.key_by("key").process(OnTimer, TOLD), rows_max=1)
    assert unordered(out) == unordered(
        {"key": key, "said": text} for key, text in [("a", "before 7"), ("a", "at 0"), ("b", "before 8"), ("b", "at 0")]
    )


class ByClock(dg.Function):
    count = dg.ValueState(int, default=0, combine=add, ttl="8s", ttl_time="clock")

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"key": row.key, "said": str(self.count.get())})
        self.count.add(1)


class ByClockInOrder(ByClock):
    ordered = True


@pytest.mark.parametrize("function", [ByClock, ByClockInOrder])
def test_by_the_clock_it_is_removed_without_any_rows(function: type[dg.Function]) -> None:
    flow = dg.Dataflow("clock", partitions=1)
    stream = flow.source(dg.from_iterable([], TS_SCHEMA, name="rows"))
    stream.key_by("key").process(function, TOLD, name="clock").sink(dg.to_memory())
    simulation = Simulation(flow, open_sources="rows", workers=2, chaos=True)
    for key, held in [("a", {"a"}), ("b", {"a", "b"}), ("b", {"b"})]:
        simulation.push("rows", [(key, 1, 0)])
        simulation.advance("4s")
        assert set(simulation.state("clock")) == held  # a is gone 8 s, or a quarter later, after it was written
    simulation.advance("11s")
    assert simulation.state("clock") == {}


def test_by_the_clock_an_ordered_function_is_exact() -> None:
    flow = dg.Dataflow("clock", partitions=1)
    rows = [event("a", number, 0) for number in range(4)]
    out = collected(flow.source(dg.from_iterable(rows, TS_SCHEMA)).key_by("key").process(ByClockInOrder, TOLD))
    clock = FakeClock(100.0)
    running = Running(flow, clock)
    for now_s in (100.0, 107.99, 115.98, 123.98):
        clock.now_s = now_s
        running.read()
    assert [row["said"] for row in out.rows] == ["0", "1", "2", "0"]


class OfPartition(dg.Function):
    scope = "partition"
    ordered = True
    count = dg.ValueState(int, default=0, ttl="10ms")

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"key": row.key, "said": str(self.count.get())})
        self.count.set(self.count.get() + 1)


def test_the_state_of_a_partition_expires_as_well() -> None:
    rows = [event("a", 1, 0), event("b", 1, 5), event("c", 1, 14), event("a", 1, 24)]
    out = results(rows, lambda s: s.process(OfPartition, TOLD))
    assert [row["said"] for row in out] == ["0", "1", "2", "0"]


def test_time_is_told_no_oftener_than_needed() -> None:
    flow = dg.Dataflow("grid")
    stream = flow.source(dg.from_iterable([], TS_SCHEMA, time="ts")).key_by("key")
    grids = [
        stream.process(function, TOLD).output.node.work.watermark_grid_ms  # type: ignore[union-attr]
        for function in (Parallel, ByClock, OnTimer)
    ]
    assert grids == [25, 0, 1]
    assert isinstance(stream.process(Seen, TOLD).output.node.work, Process)


def refused(ttl: Any, ttl_time: Any, time: str | None) -> str:
    class Wrong(dg.Function):
        count = dg.ValueState(int, default=0, combine=add, ttl=ttl, ttl_time=ttl_time)

        def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
            pass

    stream = dg.Dataflow("wrong").source(dg.from_iterable([event("a", 1, 0)], TS_SCHEMA, time=time))
    with pytest.raises(dg.FlowError) as error:
        stream.key_by("key").process(Wrong, TOLD)
    return str(error.value)


def test_what_makes_no_sense_is_refused() -> None:
    what = "process: the state 'count' of Wrong"
    assert refused("1", None, "ts") == f"{what}: ttl: '1' is not a duration; say the unit, for example '10s'."
    assert refused("0s", None, "ts").startswith(f"{what}: ttl: '0s' is no time at all")
    assert refused("1s", "processing", "ts") == f"{what}: ttl_time is 'event' or 'clock', not 'processing'."
    assert refused("1s", "event", None) == (
        f"{what} expires by event time, but its rows have no time; name it at the source (time='...')."
    )
