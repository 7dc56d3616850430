"""Windows of processing time, with a clock that the test moves."""

from __future__ import annotations

import pytest

import dirigo as dg
from dirigo.flow.sinks.memory import MemorySink
from flow.flows import FakeClock, Running, collected, event

ROWS = [event("a", 1, 0), event("b", 2, 0), event("a", 4, 0), event("a", 8, 0)]


def started(window: dg.Tumbling | dg.Sliding) -> tuple[Running, FakeClock, MemorySink]:
    flow = dg.Dataflow("clock")
    stream = flow.source(dg.from_iterable(ROWS))
    out = collected(stream.key_by("key").window(window).aggregate(total=dg.sum("value")))
    clock = FakeClock(100.0)
    return Running(flow, clock), clock, out


def seen(out: MemorySink) -> list[tuple[str, int, float, float]]:
    return sorted(
        (row["key"], row["total"], row["window_start"].timestamp(), row["window_end"].timestamp()) for row in out.rows
    )


def test_a_window_is_emitted_when_the_clock_has_reached_its_end() -> None:
    running, clock, out = started(dg.Tumbling("10s", time="processing"))
    running.read()
    running.read()
    clock.now_s = 109.9
    running.read()
    running.host.tick()
    assert seen(out) == []
    clock.now_s = 110.0
    running.host.tick()
    assert seen(out) == [("a", 5, 100.0, 110.0), ("b", 2, 100.0, 110.0)]
    clock.now_s = 125.0
    running.read()
    clock.now_s = 130.0
    running.host.tick()
    assert seen(out)[1:] == [("a", 8, 120.0, 130.0), ("b", 2, 100.0, 110.0)]


def test_the_end_of_the_input_closes_what_is_open() -> None:
    running, _, out = started(dg.Tumbling("10s", time="processing"))
    running.finish()
    assert seen(out) == [("a", 13, 100.0, 110.0), ("b", 2, 100.0, 110.0)]


def test_sliding_windows_by_the_clock() -> None:
    running, clock, out = started(dg.Sliding("10s", every="5s", time="processing"))
    running.read()  # a 1 at 100: windows 95-105 and 100-110
    clock.now_s = 105.0
    running.host.tick()
    assert seen(out) == [("a", 1, 95.0, 105.0)]
    running.read()  # b 2 at 105: windows 100-110 and 105-115
    clock.now_s = 110.0
    running.host.tick()
    assert seen(out) == [("a", 1, 95.0, 105.0), ("a", 1, 100.0, 110.0), ("b", 2, 100.0, 110.0)]
    running.finish()  # a 4 and a 8 at 110
    assert seen(out)[2:] == [
        ("a", 12, 105.0, 115.0),
        ("a", 12, 110.0, 120.0),
        ("b", 2, 100.0, 110.0),
        ("b", 2, 105.0, 115.0),
    ]


def test_a_clock_that_goes_back_reopens_no_window() -> None:
    running, clock, out = started(dg.Tumbling("10s", time="processing"))
    running.read()
    clock.now_s = 110.0
    running.host.tick()
    clock.now_s = 104.0
    running.read()
    running.finish()
    assert sum(row["total"] for row in out.rows) == 15
    assert len({(row["key"], row["window_start"]) for row in out.rows}) == len(out.rows)


def test_rows_need_no_time_for_windows_by_the_clock_and_results_have_none() -> None:
    flow = dg.Dataflow("clock")
    result = flow.source(dg.from_iterable(ROWS)).window(dg.Tumbling("1s", time="processing")).aggregate(n=dg.count())
    assert result.time is None


def test_nothing_is_late_by_the_clock() -> None:
    flow = dg.Dataflow("clock")
    stream = flow.source(dg.from_iterable(ROWS))
    with pytest.raises(dg.FlowError, match="nothing is late by the clock; leave allowed_lateness out"):
        stream.window(dg.Tumbling("1s", time="processing"), allowed_lateness="1s")
