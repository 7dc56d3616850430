"""Watermarks: the minimum over channels, idle sources, and sources of different speeds in one flow."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import dirigo as dg
from dirigo.flow.event_time.watermark import BEGINNING, END, ChannelWatermarks, Watermark, passes
from dirigo.flow.sinks.memory import MemorySink
from flow.flows import TS_SCHEMA, FakeClock, Rows, Running, ScriptedSource, collected, event, results, unordered

# --- arithmetic --------------------------------------------------------------------------------------------------------


def test_time_is_as_far_as_the_slowest_channel() -> None:
    progress = ChannelWatermarks(["a", "b"])
    assert progress.watermark == BEGINNING
    assert not progress.note("a", Watermark(100))
    assert progress.note("b", Watermark(40))
    assert progress.watermark == 40
    assert progress.note("b", Watermark(200))
    assert progress.watermark == 100


def test_time_never_goes_back() -> None:
    progress = ChannelWatermarks(["a"])
    progress.note("a", Watermark(100))
    assert not progress.note("a", Watermark(50))
    assert progress.watermark == 100


def test_an_idle_channel_holds_nobody_back_until_it_wakes_up() -> None:
    progress = ChannelWatermarks(["a", "b"])
    progress.note("a", Watermark(10))
    progress.note("b", Watermark(100))
    assert progress.note("a", Watermark(10, is_idle=True))
    assert progress.watermark == 100
    assert not progress.is_idle
    assert not progress.note("a", Watermark(20))
    assert progress.watermark == 100  # it has said so already
    progress.note("b", Watermark(300))
    assert progress.watermark == 100
    assert progress.note("a", Watermark(250))
    assert progress.watermark == 250


def test_with_every_channel_idle_time_stands_still() -> None:
    progress = ChannelWatermarks(["a", "b"])
    progress.note("a", Watermark(10))
    progress.note("b", Watermark(20))
    progress.note("a", Watermark(10, is_idle=True))
    assert not progress.note("b", Watermark(20, is_idle=True))
    assert progress.is_idle
    assert progress.watermark == 20


def test_the_end_of_all_channels_is_the_end() -> None:
    progress = ChannelWatermarks(["a", "b"])
    progress.note("a", Watermark(END))
    assert progress.watermark < END
    assert progress.note("b", Watermark(END))
    assert progress.watermark >= END


def test_an_idle_channel_has_not_ended() -> None:
    progress = ChannelWatermarks(["a", "b"])
    progress.note("a", Watermark(10))
    progress.note("b", Watermark(20))
    progress.note("b", Watermark(20, is_idle=True))
    assert not progress.is_idle
    progress.note("a", Watermark(END))
    assert progress.watermark == 20, "nobody holds back the idle channel any more"
    assert [progress.is_idle, progress.note("b", Watermark(30)), progress.is_idle] == [True, True, False]
    assert progress.watermark == 30
    assert progress.note("b", Watermark(END))
    assert progress.watermark >= END


@pytest.mark.parametrize(
    ("before", "now", "grid", "expected"),
    [
        (BEGINNING, 0, 10, True),
        (0, 9, 10, False),
        (9, 10, 10, True),
        (10, 19, 10, False),
        (3, 4, 1, True),
        (3, 1000, 0, False),
        (3, END, 0, True),
        (3, END, 10, True),
    ],
)
def test_only_watermarks_that_pass_the_grid_go_on(before: int, now: int, grid: int, expected: bool) -> None:
    assert passes(before, now, grid) is expected


# --- sources -----------------------------------------------------------------------------------------------------------


def two_sources(
    first: Iterable[Rows | None], second: Iterable[Rows | None], idle_after: str | None = None
) -> tuple[Running, FakeClock, MemorySink]:
    """Windows of 10 ms over two scripted sources."""
    flow = dg.Dataflow("two", watermark_every="1ms")
    one = flow.source(ScriptedSource(first, TS_SCHEMA, time="ts", idle_after=idle_after))
    other = flow.source(ScriptedSource(second, TS_SCHEMA, time="ts", idle_after=idle_after))
    out = collected(one.union(other).key_by("key").window(dg.Tumbling("10ms")).aggregate(total=dg.sum("value")))
    clock = FakeClock()
    return Running(flow, clock), clock, out


def windows(out: MemorySink) -> list[tuple[int, int]]:
    return [(row["window_start"], row["total"]) for row in out.rows]


def test_windows_wait_for_the_slower_source() -> None:
    running, _, out = two_sources([[event("a", 1, 5)], [event("a", 2, 95)]], [[event("a", 4, 7)], [event("a", 8, 31)]])
    running.read(0)
    running.read(0)
    assert windows(out) == []  # the second source might still have rows of long ago
    running.read(1)
    assert windows(out) == []
    running.read(1)
    assert windows(out) == [(0, 5)]
    running.finish()
    assert windows(out) == [(0, 5), (30, 8), (90, 2)]


def test_a_source_that_ends_holds_nobody_back() -> None:
    running, _, out = two_sources([[event("a", 1, 5)], [event("a", 2, 95)]], [])
    running.read(0)
    running.read(0)
    assert windows(out) == []
    running.read(1)
    assert windows(out) == [(0, 1)]


def test_a_source_without_rows_holds_the_others_back_unless_it_may_be_idle() -> None:
    rows = [[event("a", 1, 5)], [event("a", 2, 95)]]
    for idle_after, expected in ((None, []), ("5s", [(0, 1)])):
        running, clock, out = two_sources(rows, [None] * 9, idle_after)
        running.read(0)
        running.read(0)
        running.read(1)
        clock.now_s += 4.9
        running.read(1)
        assert windows(out) == []
        clock.now_s += 0.1
        running.read(1)
        assert windows(out) == expected


def test_a_source_that_wakes_up_counts_again() -> None:
    running, clock, out = two_sources(
        [[event("a", 1, 5)], [event("a", 2, 25)], [event("a", 4, 55)], [event("a", 8, 95)]],
        [[event("b", 1, 3)], None, None, [event("b", 2, 51)], [event("b", 4, 96)]],
        idle_after="1s",
    )
    running.read(0)
    running.read(1)
    running.read(0)
    running.read(1)
    clock.now_s += 2
    running.read(1)  # now idle
    assert windows(out) == [(0, 1), (0, 1)]
    running.read(1)  # awake, at 51
    running.read(0)
    running.read(0)  # at 95
    assert (50, 4) not in windows(out)  # the second source is at 51
    running.finish()
    assert sorted(windows(out)) == [(0, 1), (0, 1), (20, 2), (50, 2), (50, 4), (90, 4), (90, 8)]


def test_a_source_may_wake_up_after_the_other_has_ended() -> None:
    running, clock, out = two_sources(
        [[event("a", 1, 5)], [event("a", 2, 95)]],
        [[event("b", 1, 3)], None, None, None, [event("b", 2, 97)], [event("b", 4, 120)]],
        idle_after="1s",
    )
    for _ in range(2):
        running.read(0)
        running.read(1)
    clock.now_s += 2
    running.read(1)  # idle
    running.read(0)  # the first source has ended
    assert sorted(windows(out)) == [(0, 1), (0, 1)]
    running.finish()
    assert sorted(windows(out)) == [(0, 1), (0, 1), (90, 2), (90, 2), (120, 4)]


@pytest.mark.parametrize("window", [dg.Tumbling("10ms"), dg.Session("5ms")], ids=["tumbling", "session"])
def test_old_rows_of_a_source_that_wakes_up_behind_a_union_are_late(window: dg.Tumbling | dg.Session) -> None:
    flow = dg.Dataflow("late", watermark_every="1ms")
    one = flow.source(ScriptedSource([[event("a", 1, 5)], [event("a", 2, 95)]], TS_SCHEMA, time="ts"))
    script = [None, None, [event("a", 4, 20)]]
    other = flow.source(ScriptedSource(script, TS_SCHEMA, time="ts", idle_after="1s"))
    result = one.union(other).key_by("key").window(window).aggregate(total=dg.sum("value"))
    out, late = collected(result), collected(result.late)
    clock = FakeClock()
    running = Running(flow, clock)
    running.read(1)
    clock.now_s += 2
    running.read(1)
    running.read(0)
    running.read(0)
    running.finish()
    assert [row["total"] for row in out.rows] == [1, 2]
    assert late.rows == [event("a", 4, 20)]


def test_rows_that_keep_coming_are_not_idleness() -> None:
    running, clock, out = two_sources(
        [[event("a", 1, 5)], [event("a", 2, 95)]], [[event("b", 1, 1)], None, [event("b", 1, 2)], None, None], "2s"
    )
    running.read(0)
    running.read(0)
    for _ in range(4):
        running.read(1)
        clock.now_s += 1.5
    assert windows(out) == []


def test_all_sources_idle_and_awake_again_lose_nothing() -> None:
    running, clock, out = two_sources(
        [[event("a", 1, 5)], None, None, [event("a", 2, 25)]], [[event("b", 1, 6)], None, None, [event("b", 2, 26)]], "1s"
    )
    for _ in range(3):
        running.read(0)
        running.read(1)
        clock.now_s += 1
    assert windows(out) == []
    running.finish()
    assert sorted(windows(out)) == [(0, 1), (0, 1), (20, 2), (20, 2)]


def test_a_watermark_lags_by_the_out_of_orderness_that_was_promised() -> None:
    rows = [event("a", 1, 8), event("a", 2, 14), event("a", 4, 6), event("a", 8, 16), event("a", 16, 5)]

    def build(stream: dg.Stream) -> dg.Stream:
        return stream.key_by("key").window(dg.Tumbling("10ms")).aggregate(total=dg.sum("value"))

    assert unordered(results(rows, build, rows_max=1, out_of_orderness="5ms")) == unordered(
        [
            {"key": "a", "total": 5, "window_start": 0, "window_end": 10},  # 6 came in time, 5 did not
            {"key": "a", "total": 10, "window_start": 10, "window_end": 20},
        ]
    )


def test_watermarks_come_no_more_often_than_asked_for() -> None:
    class Watching(dg.Function):
        def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
            """Only time matters here."""

        def on_watermark(self, context: dg.FunctionContext, time_ms: int) -> None:
            context.emit({"ts": time_ms})

    rows = [event("a", 1, ts) for ts in range(0, 1000, 10)]
    out = results(rows, lambda s: s.process(Watching, {"ts": int}), rows_max=1, watermark_every="250ms")
    assert [row["ts"] for row in out] == [0, 250, 500, 750, END]
