"""Flows in the simulator: the clock, scripted sources, and results while the flow runs."""

from typing import Any

import pytest

import dirigo as dg
from dirigo.testing import Abort, Aborted, Pause, Simulation, run

BIDS = {"auction": int, "price": int, "at": int}


def bids(*rows: tuple[int, int, int]) -> list[dict[str, int]]:
    return [dict(zip(BIDS, row, strict=True)) for row in rows]


def counting(window: Any = None, **options: Any) -> dg.Dataflow:
    flow = dg.Dataflow("counting")
    source = dg.from_iterable([], schema=BIDS, time="at", name="bids", **options)
    window = window or dg.Tumbling("10s")
    flow.source(source).key_by("auction").window(window).aggregate(bids=dg.count()).sink(dg.to_memory(name="counts"))
    return flow


def test_a_flow_runs_to_the_end_of_its_rows() -> None:
    outcome = run(counting(), bids((1, 5, 0), (1, 7, 9_999), (2, 1, 10_000)))
    assert sorted(outcome.rows(), key=lambda row: row["auction"]) == [
        {"auction": 1, "bids": 2, "window_start": 0, "window_end": 10_000},
        {"auction": 2, "bids": 1, "window_start": 10_000, "window_end": 20_000},
    ]


def test_results_can_be_looked_at_while_time_is_advanced() -> None:
    simulation = Simulation(counting(), open_sources=["bids"])
    simulation.push("bids", bids((1, 5, 1_000)))
    simulation.advance("1s")
    assert simulation.rows("counts") == []
    simulation.push("bids", bids((1, 5, 12_000)))
    simulation.advance("20s")
    assert [row["bids"] for row in simulation.rows("counts")] == [1]
    simulation.end("bids")
    simulation.finish()
    assert [row["bids"] for row in simulation.rows("counts")] == [1, 1]


def test_virtual_time_is_where_it_was_advanced_to() -> None:
    simulation = Simulation(counting(), open_sources=["bids"])
    simulation.advance("90s")
    assert simulation.now_s == pytest.approx(90.0)


def test_a_pause_lets_time_go_by() -> None:
    outcome = run(counting(), [*bids((1, 5, 0)), Pause("1h"), *bids((1, 5, 1))])
    assert outcome.now_s >= 3600
    assert [row["bids"] for row in outcome.rows()] == [2]


def test_windows_of_processing_time_follow_the_virtual_clock() -> None:
    flow = counting(dg.Tumbling("10s", time="processing"))
    outcome = run(flow, [*bids((1, 5, 0), (1, 5, 0)), Pause("10s"), *bids((1, 5, 0))], workers=2)
    assert [row["bids"] for row in outcome.rows()] == [2, 1]


def test_an_abort_fails_the_run_and_ends_nothing() -> None:
    with pytest.raises(Aborted, match="the source 'bids' aborted: the disk is on fire"):
        run(counting(), [*bids((1, 5, 0)), Abort("the disk is on fire")])


def test_an_idle_source_does_not_hold_up_the_others() -> None:
    flow = dg.Dataflow("two")
    streams = [
        flow.source(dg.from_iterable([], schema=BIDS, time="at", name=name, idle_after="5s")) for name in ("busy", "idle")
    ]
    streams[0].union(streams[1]).window(dg.Tumbling("10s")).aggregate(n=dg.count()).sink(dg.to_memory(name="out"))
    simulation = Simulation(flow, open_sources=["busy", "idle"])
    simulation.push("busy", bids((1, 1, 1_000), (1, 1, 11_000)))
    simulation.push("idle", bids((1, 1, 2_000)))
    simulation.advance("1s")
    assert simulation.rows() == []
    simulation.push("busy", bids((1, 1, 12_000)))
    simulation.advance("20s")
    simulation.push("busy", bids((1, 1, 13_000)))
    simulation.advance("1s")
    assert [row["n"] for row in simulation.rows()] == [2]


def test_rows_for_an_unknown_source_are_refused() -> None:
    with pytest.raises(dg.FlowError.__mro__[1], match="has no source 'bid'; it has bids"):
        run(counting(), {"bid": []})


def test_the_same_seed_gives_the_same_run() -> None:
    rows = bids(*((number % 7, number, number * 100) for number in range(500)))
    twins = [run(counting(), rows, workers=3, chaos=True, seed=5, rows_max=20) for _ in range(2)]
    assert twins[0].rows() == twins[1].rows()
    assert twins[0].cluster.metrics == twins[1].cluster.metrics


def test_chaos_runs_messages_at_lessees() -> None:
    rows = bids(*((number % 7, number, number * 100) for number in range(500)))
    outcome = run(counting(), rows, workers=3, chaos=True, seed=5, rows_max=20)
    assert outcome.elsewhere["bids"] > 0
    assert outcome.elsewhere["aggregate"] > 0


def test_a_flow_can_write_to_its_own_sinks() -> None:
    flow = dg.Dataflow("writing")
    kept = dg.to_memory()
    flow.source(dg.from_iterable(bids((1, 2, 3)))).sink(kept)
    run(flow, writes=True)
    assert kept.rows == bids((1, 2, 3))


def test_no_row_is_lost_however_long_reading_takes() -> None:
    """A script that was read for a few milliseconds at a time once lost the rest of a batch on a busy machine."""
    rows = bids(*((1, 1, 0) for _ in range(200_000)))
    assert [row["bids"] for row in run(counting(), rows, rows_max=len(rows)).rows()] == [len(rows)]


def test_pushed_rows_are_read_at_once_however_far_event_time_jumps() -> None:
    flow = dg.Dataflow("jumps")
    rows = flow.source(dg.from_iterable([], {"n": int, "at": int}, time="at", name="rows"))
    rows.filter(dg.col("n") > 0).sink(dg.to_memory())
    simulation = Simulation(flow, open_sources=["rows"])
    for number, at in ((1, 1_000), (2, 3_600_000), (3, 7_200_000)):
        simulation.push("rows", [(number, at)])
        simulation.advance("1s")
        assert len(simulation.rows()) == number
