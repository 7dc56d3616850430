"""Timers of keys: in event time and by the clock, with names and without, wherever they were set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import dirigo as dg
from dirigo.flow.operators.process.timers import Timers
from dirigo.state import add
from dirigo.testing import Simulation, run
from flow.flows import TS_SCHEMA, FakeClock, Rows, Running, collected, event, results, split_results, unordered

TOLD = {"key": str, "said": str}
Handle = Callable[[dg.FunctionContext, dg.Row], None]


class Timed(dg.Function):
    """Does with a row what the test says, and tells which timers fire."""

    ordered = True

    def __init__(self, handle: Handle, on_timer: Any = None) -> None:
        self.handle = handle
        self.when_due = on_timer

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.handle(context, row)

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": context.key, "said": str(payload)})
        if self.when_due is not None:
            self.when_due(context, payload)

    def on_watermark(self, context: dg.FunctionContext, time_ms: int) -> None:
        if time_ms < 1_000:
            context.emit({"key": context.key, "said": f"watermark {time_ms}"})


class Parallel(Timed):
    ordered = False


def told(rows: Rows, handle: Handle, on_timer: Any = None, **options: Any) -> list[tuple[str, str]]:
    out = results(
        rows, lambda s: s.key_by("key").process(Timed(handle, on_timer), TOLD), rows_max=1, partitions=1, **options
    )
    return [(row["key"], row["said"]) for row in out]


# --- event time --------------------------------------------------------------------------------------------------------


def test_event_timers_fire_in_the_order_of_their_times_and_then_of_keys_before_the_watermark() -> None:
    rows = [event("b", 5, 0), event("a", 5, 1), event("a", 3, 2), event("b", 4, 6), event("b", 50, 7)]
    assert told(rows, lambda context, row: context.set_event_timer(row.value, row.value)) == [
        ("b", "watermark 0"),
        ("a", "watermark 1"),
        ("b", "watermark 1"),
        ("a", "watermark 2"),
        ("b", "watermark 2"),
        ("a", "3"),
        ("b", "4"),  # its time was over when it was set
        ("a", "5"),
        ("b", "5"),
        ("b", "watermark 7"),
        ("b", "50"),  # at the end
    ]


@pytest.mark.parametrize(
    "at",
    [
        datetime(1970, 1, 1, 0, 0, 0, 10_999),  # noqa: DTZ001 - a time without a zone is taken for UTC
        datetime(1970, 1, 1, 0, 0, 0, 10_000, UTC),
        datetime(1970, 1, 1, 1, 0, 0, 10_000, timezone(timedelta(hours=1))),
    ],
)
def test_a_time_may_be_a_datetime(at: datetime) -> None:
    rows = [event("a", 0, 0), event("b", 0, 9), event("b", 0, 10)]

    def handle(context: dg.FunctionContext, row: dg.Row) -> None:
        if row.key == "a":
            context.set_event_timer(at, "due")

    said = told(rows, handle)
    assert said == [("a", "watermark 0"), ("a", "watermark 9"), ("a", "due")]


@pytest.mark.parametrize("at", [2**62, 2**63 - 1, 10**30])
def test_a_timer_for_later_than_any_time_is_due_at_the_end(at: int) -> None:
    rows = [event("a", 0, 0), event("a", 1, 9)]
    said = told(rows, lambda context, row: context.set_event_timer(at, row.value))
    assert said == [("a", "watermark 0"), ("a", "watermark 9"), ("a", "0"), ("a", "1")]


def test_a_name_stands_for_one_timer_of_a_key() -> None:
    rows = [event("a", 10, 0), event("b", 10, 1), event("a", 20, 2), event("b", 5, 3), event("c", 0, 30)]
    said = told(rows, lambda context, row: context.set_event_timer(row.value, row.value, name="one"))
    assert [each for each in said if "watermark" not in each[1]] == [("c", "0"), ("b", "5"), ("a", "20")]


def test_timers_without_a_name_all_fire() -> None:
    rows = [event("a", 10, 0), event("a", 10, 1), event("a", 20, 2)]
    said = told(rows, lambda context, row: context.set_event_timer(row.value, row.value))
    assert [each for each in said if "watermark" not in each[1]] == [("a", "10"), ("a", "10"), ("a", "20")]


def test_a_timer_can_be_deleted() -> None:
    rows = [event("a", 10, 0), event("b", 10, 1), event("a", -1, 2)]

    def handle(context: dg.FunctionContext, row: dg.Row) -> None:
        if row.value < 0:
            context.delete_timer("one")
        else:
            context.set_event_timer(row.value, row.value, name="one")
            context.set_timer("1h", "by the clock", name="one")

    said = told(rows, handle)
    assert [each for each in said if "watermark" not in each[1]] == [("b", "10")]


def test_one_timer_may_delete_another_that_is_due_at_the_same_time() -> None:
    def handle(context: dg.FunctionContext, row: dg.Row) -> None:
        context.set_event_timer(5, "x", name="x")
        context.set_event_timer(5, "y", name="y")

    def on_timer(context: dg.FunctionContext, payload: Any) -> None:
        context.delete_timer("y")

    assert told([event("a", 0, 0), event("a", 0, 1)], handle, on_timer)[2:] == [("a", "x")]


def test_a_timer_that_is_set_by_a_timer_fires_in_its_turn_and_time_goes_on() -> None:
    rows = [event("b", 1, 0), event("a", 2, 1), event("a", 0, 8)]

    def handle(context: dg.FunctionContext, row: dg.Row) -> None:
        if row.value:
            context.set_event_timer(row.value, row.value)

    def on_timer(context: dg.FunctionContext, payload: Any) -> None:
        if payload == "late" or payload >= 7:
            context.set_event_timer(0, "late")  # for ever, were it not for the time, which goes on
        else:
            context.set_event_timer(payload + 3, payload + 3)

    said = [each for each in told(rows, handle, on_timer) if "watermark" not in each[1]]
    before_the_end = [("b", "1"), ("a", "2"), ("b", "4"), ("a", "5"), ("b", "7"), ("a", "8"), ("b", "late")]
    assert said == [*before_the_end, ("a", "late"), ("b", "late")]  # nothing is set any more at the end


def test_without_a_time_there_are_no_event_timers() -> None:
    with pytest.raises(dg.RowFailure, match="set_event_timer needs rows with a time; name it at the source"):
        told([event("a", 1, 0)], lambda context, _: context.set_event_timer(1), time=None)


@pytest.mark.parametrize("at", ["soon", 1.5, None])
def test_a_time_that_is_none_is_refused(at: Any) -> None:
    with pytest.raises(dg.RowFailure, match="takes milliseconds since the epoch or a datetime, not"):
        told([event("a", 1, 0)], lambda context, _: context.set_event_timer(at))


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(dg.RowFailure, match="the name of a timer is a text, not 3"):
        told([event("a", 1, 0)], lambda context, _: context.set_timer("1s", name=3))  # type: ignore[arg-type]


def test_the_partitions_timers_are_its_own() -> None:
    class OfPartition(Timed):
        scope = "partition"

        def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
            context.emit({"key": "", "said": str(payload)})

        def on_watermark(self, context: dg.FunctionContext, time_ms: int) -> None:
            pass

    handle: Handle = lambda context, row: context.set_event_timer(row.value, row.value, name="one")  # noqa: E731
    rows = [event("a", 10, 0), event("b", 20, 1), event("c", 0, 12), event("c", 5, 30)]
    out = results(rows, lambda s: s.process(OfPartition(handle), TOLD), rows_max=1)
    assert [row["said"] for row in out] == ["0", "5"]


# --- by the clock ------------------------------------------------------------------------------------------------------


def clocked(function: dg.Function) -> tuple[Running, FakeClock, Any]:
    flow = dg.Dataflow("clocked", partitions=1)
    rows = [event("ab"[number % 2], number, number) for number in range(6)]
    out = collected(flow.source(dg.from_iterable(rows, TS_SCHEMA)).key_by("key").process(function, TOLD))
    clock = FakeClock(100.0)
    return Running(flow, clock), clock, out


def test_timers_by_the_clock_fire_for_their_keys_in_order() -> None:
    running, clock, out = clocked(Timed(lambda context, row: context.set_timer(f"{9 - row.value}s", row.value)))
    running.read(rows_max=3)  # due at 109, 108 and 107
    clock.now_s = 106.9
    running.host.tick()
    assert out.rows == []
    clock.now_s = 108.0
    running.host.tick()
    assert [(row["key"], row["said"]) for row in out.rows] == [("a", "2"), ("b", "1")]
    running.read(rows_max=1)  # due at 114
    clock.now_s = 200.0
    running.host.tick()
    assert [(row["key"], row["said"]) for row in out.rows[2:]] == [("a", "0"), ("b", "3")]


def test_a_timer_by_the_clock_is_put_off_and_brought_forward() -> None:
    waits = iter(["5s", "5s", "9s", "2s"])
    running, clock, out = clocked(Timed(lambda context, row: context.set_timer(next(waits), row.value, name="one")))
    running.read(rows_max=4)
    for now_s, said in [(102.0, ["3"]), (105.0, ["3"]), (108.9, ["3"]), (109.0, ["3", "2"])]:
        clock.now_s = now_s
        running.host.tick()
        assert [row["said"] for row in out.rows] == said


def test_a_timer_that_sets_itself_again_at_once_does_not_stop_the_others() -> None:
    running, clock, out = clocked(
        Timed(lambda context, _: context.set_timer("1s", 0), lambda context, p: p < 5 and context.set_timer("0s", p + 1))
    )
    running.read(rows_max=2)
    clock.now_s = 101.0
    for _ in range(10):
        running.host.tick()
    assert sorted((row["key"], row["said"]) for row in out.rows) == [(key, str(n)) for key in "ab" for n in range(6)]


class Asks(dg.Function):
    count = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        if row.value % 10 == 9:
            context.run_alone(row.value)

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": context.key, "said": f"{payload}: {self.count.get()}"})


def test_running_alone_is_for_the_key_that_asked() -> None:
    rows = [event("ab"[number % 2], number, number) for number in range(20)]
    out = results(rows, lambda s: s.key_by("key").process(Asks, TOLD), rows_max=1)
    assert [(row["key"], row["said"]) for row in out] == [("b", "9: 5"), ("b", "19: 10")]


# --- wherever they were set --------------------------------------------------------------------------------------------


class Quiet(dg.Function):
    """Tells, per key, how many rows there were, once it has been quiet; every row puts that off."""

    count = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        context.set_event_timer(row.ts + 1_000, "quiet", name="quiet")
        context.set_event_timer(10_000 + row.ts, "row")

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": context.key, "said": payload if payload == "row" else f"{self.count.get()}"})
        if payload == "quiet":
            self.count.clear()


@pytest.mark.parametrize("seed", range(20))
def test_event_timers_of_a_parallel_function_fire_once_for_all_workers(seed: int) -> None:
    rows = [event("abc"[number % 3], number, 5 * number) for number in range(150)]
    rows += [event("ab"[number % 2], number, 5_000 + 5 * number) for number in range(50)]
    flow = dg.Dataflow("quiet", watermark_every="100ms", partitions=1)
    stream = flow.source(dg.from_iterable(rows, TS_SCHEMA, time="ts"))
    stream.key_by("key").process(Quiet, TOLD, name="quiet").sink(dg.to_memory())
    # The second part is not read before time has gone on so far that the first has been quiet.
    script = [*rows[:150], event("d", 0, 3_000), dg.testing.Pause("10s"), *rows[150:]]
    done = run(flow, script, workers=3, chaos=True, seed=seed, rows_max=10)
    assert done.elsewhere["quiet"] > 0
    expected = [("a", "50"), ("b", "50"), ("c", "50"), ("d", "1"), ("a", "25"), ("b", "25")]
    assert sorted((row["key"], row["said"]) for row in done.rows() if row["said"] != "row") == sorted(expected)
    assert sum(row["said"] == "row" for row in done.rows()) == 201
    assert done.state("quiet") == {}


class Soon(dg.Function):
    """Tells, per key, what has come, some time after the last of it; by the clock."""

    count = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        context.set_timer("5s", "quiet", name="quiet")
        context.set_timer("1s", "row")

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": context.key, "said": payload if payload == "row" else str(self.count.get())})


@pytest.mark.parametrize("seed", range(20))
def test_timers_by_the_clock_fire_wherever_they_were_set(seed: int) -> None:
    rows = [("abc"[number % 3], number, number) for number in range(90)]
    flow = dg.Dataflow("soon", partitions=2)
    stream = flow.source(dg.from_iterable([], TS_SCHEMA, time="ts", name="rows"))
    stream.key_by("key").process(Soon, TOLD, name="soon").sink(dg.to_memory())
    simulation = Simulation(flow, open_sources="rows", workers=3, chaos=True, seed=seed, rows_max=5)
    simulation.push("rows", rows)
    simulation.advance("4s")
    assert simulation.elsewhere["soon"] > 0
    assert len(simulation.rows()) == 90  # those without a name
    simulation.advance("1m")
    quiet = [row for row in simulation.rows() if row["said"] != "row"]
    assert unordered(quiet) == unordered({"key": key, "said": "30"} for key in "abc")
    assert len(simulation.rows()) == 93


@pytest.mark.parametrize("handled", ["delete_timer"])
def test_a_parallel_function_deletes_timers_only_alone(handled: str) -> None:
    def build(stream: dg.Stream) -> dg.Stream:
        return stream.key_by("key").process(Parallel(lambda context, _: getattr(context, handled)("one")), TOLD)

    _, errors = split_results([event("a", 1, 1)], build)
    assert "delete_timer deletes nothing at other workers" in errors[0]["error"]

    def on_timer(context: dg.FunctionContext, payload: Any) -> None:
        context.delete_timer("other")

    def handle(context: dg.FunctionContext, row: dg.Row) -> None:
        context.set_event_timer(5, "one")
        context.set_event_timer(50, "other", name="other")

    out = results([event("a", 1, 1)], lambda s: s.key_by("key").process(Parallel(handle, on_timer), TOLD))
    assert [row["said"] for row in out if "watermark" not in row["said"]] == ["one"]


def test_of_two_timers_with_one_name_the_later_counts_whoever_comes_first() -> None:
    for first, second in [(5, 9), (9, 5)]:
        one: Timers[int] = Timers()
        other: Timers[int] = Timers()
        one.set("k", "name", first, first, replaces=False)
        other.set("k", "name", second, second, replaces=False)
        other.set("k", None, 7, 7, replaces=False)
        one.set("k", None, 6, 6, replaces=False)
        one.merge(other.take())
        assert other.entries == {}
        fired = []
        while (due := one.take_next(100)) is not None:
            fired += [(due[0], one.pop(item, due[0])) for item in due[1]]
        assert fired == [(6, (6,)), (7, (7,)), (9, (9,))]
