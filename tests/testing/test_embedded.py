"""dg.run: a flow in this process, with its own sinks."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import dirigo as dg

ROWS = [{"n": number} for number in range(5)]


def test_rows_come_from_sinks_in_memory_and_others_write(tmp_path: Path) -> None:
    flow = dg.Dataflow("both")
    rows = flow.source(dg.from_iterable(ROWS))
    kept = dg.to_memory()
    rows.sink(kept)
    rows.sink(dg.to_parquet(tmp_path / "out"))
    ran = dg.run(flow)
    assert ran.rows() == kept.rows == ROWS
    assert ran.table().num_rows == pq.read_table(tmp_path / "out").num_rows == 5
    assert ran.sinks == ["to_memory"]
    with pytest.raises(dg.DirigoError, match=r"name one of the sinks to_memory, not 'to_parquet'"):
        ran.rows("to_parquet")


def test_a_flow_that_keeps_no_rows_says_how_to_keep_them() -> None:
    flow = dg.Dataflow("gone")
    flow.source(dg.from_iterable(ROWS)).sink(dg.to_nothing())
    with pytest.raises(dg.DirigoError, match=r"no sink of 'gone' keeps rows; end a stream with dg\.to_memory\(\)"):
        dg.run(flow).rows()


def test_time_is_virtual() -> None:
    flow = dg.Dataflow("slow", slo=dg.SLO(latency="1s"))
    times = [{"at": 1_000 * number} for number in range(3_600)]
    flow.source(dg.paced(dg.from_iterable(times, time="at"))).window(dg.Tumbling("60s")).aggregate(n=dg.count()).sink(
        dg.to_memory()
    )
    ran = dg.run(flow, strategy="edf")
    assert [row["n"] for row in ran.rows()] == [60] * 60
    assert ran.satisfaction.results == 1.0


def test_the_rows_of_a_run_stay_its_own_when_their_sink_is_used_again() -> None:
    kept = dg.to_memory()

    def few(count: int) -> dg.Dataflow:
        flow = dg.Dataflow("few")
        flow.source(dg.from_iterable(ROWS[:count])).sink(kept)
        return flow

    first, second = dg.run(few(2)), dg.run(few(4))
    assert first.rows() == ROWS[:2]
    assert second.rows() == kept.rows == ROWS[:4]


@pytest.mark.parametrize("what", [None, "flow", []], ids=str)
def test_what_is_no_flow_is_refused(what: object) -> None:
    with pytest.raises(dg.DirigoError, match=r"dg\.run takes one flow, a dg\.Dataflow, not "):
        dg.run(what)  # type: ignore[arg-type]


def test_several_flows_are_refused_before_any_of_them_runs() -> None:
    seen: list[dg.Row] = []
    flow = dg.Dataflow("one")
    rows = flow.source(dg.from_iterable(ROWS))
    rows.sink(dg.to_callback(seen.append))
    with pytest.raises(dg.DirigoError, match=r"dg\.run takes one flow, a dg\.Dataflow, not list"):
        dg.run([flow])  # type: ignore[arg-type]
    with pytest.raises(dg.DirigoError, match=r"dg\.run takes one flow, a dg\.Dataflow, not Stream"):
        dg.run(rows)  # type: ignore[arg-type]
    assert not seen
