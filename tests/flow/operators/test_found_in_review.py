"""Mistakes that a review found, each as small as it can be shown."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.testing import Simulation, run

ROW = {"at": int, "key": int, "value": int}


def source(flow: dg.Dataflow, rows: Sequence[tuple[int, int | None, int]]) -> dg.Stream:
    return flow.source(
        dg.from_iterable([dict(zip(ROW, row, strict=True)) for row in rows], schema=ROW, time="at", name="rows")
    )


@pytest.mark.parametrize("seed", range(4))
def test_what_belongs_together_in_a_window_of_processing_time_stays_together(seed: int) -> None:
    """Counts and distinct values of the same rows once travelled apart, and the clock went on between them."""
    flow = dg.Dataflow("apart")
    rows = source(flow, [(number * 10, number % 5, number) for number in range(300)])
    windows = rows.key_by("key").window(dg.Tumbling("20ms", time="processing"))
    windows.aggregate(n=dg.count(), different=dg.distinct("value")).sink(dg.to_memory(name="out"))
    results = run(flow, workers=3, seed=seed, chaos=True, rows_max=10).rows()
    assert sum(row["n"] for row in results) == 300
    assert [row for row in results if row["n"] != row["different"]] == []


@pytest.mark.parametrize("seed", range(6))
def test_what_belongs_together_stays_together_when_windows_are_emitted_again(seed: int) -> None:
    rng = random.Random(1)
    flow = dg.Dataflow("again")
    late = [0, 0, 500, 1500, 3000]
    rows = source(flow, [(max(0, number * 50 - rng.choice(late)), rng.randrange(12), number) for number in range(300)])
    windows = rows.deduplicate("value", "at").key_by("key").window(dg.Tumbling("1s"), allowed_lateness="20s")
    windows.aggregate(n=dg.count(), different=dg.distinct("value")).sink(dg.to_memory(name="out"))
    results = run(flow, workers=3, seed=seed, chaos=True, rows_max=10).rows()
    assert [row for row in results if row["n"] != row["different"]] == []


def test_windows_shorter_than_the_unit_of_time_have_exact_bounds() -> None:
    schema = pa.schema([("at", pa.timestamp("s", "UTC")), ("key", pa.int64())])
    rows = [{"at": datetime(2020, 1, 1, 0, 0, second, tzinfo=UTC), "key": 1} for second in range(5)]
    flow = dg.Dataflow("seconds")
    stream = flow.source(dg.from_iterable(rows, schema, time="at", name="rows"))
    short = stream.key_by("key").window(dg.Tumbling("500ms")).aggregate(n=dg.count())
    short.sink(dg.to_memory(name="short"))
    stream.key_by("key").window(dg.Session("500ms")).aggregate(n=dg.count()).sink(dg.to_memory(name="sessions"))
    long = short.select("key", "n", at="window_end").key_by("key").window(dg.Tumbling("2s"))
    long.aggregate(n=dg.sum("n")).sink(dg.to_memory(name="long"))
    outcome = run(flow, rows_max=2)
    for sink in ("short", "sessions"):
        assert {(row["window_end"] - row["window_start"]).total_seconds() for row in outcome.rows(sink)} == {0.5}
    assert [row["n"] for row in sorted(outcome.rows("long"), key=lambda row: row["window_start"])] == [2, 2, 1]
    assert outcome.late_rows_dropped == {}


def test_sessions_of_many_keys_far_apart_in_time_are_not_mixed_up() -> None:
    far = 221_845_392_000_000
    rows = [(1_600_000_000_000 + later, key, 1) for later in (0, 5_000) for key in range(50_000)] + [(far, -1, 1)]
    flow = dg.Dataflow("far", partitions=1)
    sessions = source(flow, rows).key_by("key").window(dg.Session("1s")).aggregate(n=dg.count())
    sessions.sink(dg.to_memory(name="out"))
    assert run(flow, rows_max=len(rows)).table().num_rows == 100_001


def test_many_sessions_of_one_key_may_end_at_once() -> None:
    flow = dg.Dataflow("many")
    rows = source(flow, [(number * 2_000, number % 3, number) for number in range(900)])
    sessions = rows.key_by("key").window(dg.Session("1s"))
    sessions.aggregate(n=dg.count(), values=dg.sum("value"), middle=dg.median("value")).sink(dg.to_memory(name="out"))
    results = run(flow, rows_max=900).rows()
    assert sorted((row["window_start"], row["n"], row["values"], row["middle"]) for row in results) == [
        (number * 2_000, 1, number, float(number)) for number in range(900)
    ]


def test_the_stream_of_errors_hears_of_time_wherever_it_is_written() -> None:
    flow = dg.Dataflow("errors", on_error="side_output")
    flow.errors.key_by("operator").aggregate(n=dg.count(), emit="watermark").sink(dg.to_memory(name="errors"))
    rows = source(flow, [(number * 100, None if number % 10 == 0 else 1, 1) for number in range(100)])
    rows.key_by("key").window(dg.Tumbling("1s")).aggregate(n=dg.count()).sink(dg.to_memory(name="out"))
    assert [row["n"] for row in run(flow, rows_max=5).rows("errors")] == list(range(1, 11))


def test_a_source_that_goes_quiet_first_tells_how_far_it_is() -> None:
    flow = dg.Dataflow("quiet", watermark_every="10s")
    windows = source(flow, []).key_by("key").window(dg.Tumbling("50ms"))
    windows.aggregate(n=dg.count()).sink(dg.to_memory(name="out"))
    simulation = Simulation(flow, open_sources="rows")
    simulation.push("rows", [{"at": 1_000, "key": 1, "value": 1}])
    simulation.advance("1s")
    simulation.push("rows", [{"at": 1_060, "key": 1, "value": 1}])
    simulation.advance("1s")
    assert [row["window_start"] for row in simulation.rows()] == [1_000]
