"""That jobs are killed and come back in the benchmark of recovery, and that it sees what is wrong; how fast is no matter."""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dirigo_lab.bench.recovery.keyed_rows import KeyedResults, KeyedRows, KeyedRowsTold, StateShape
from dirigo_lab.bench.recovery.kills import AwayTimes, measure_away
from dirigo_lab.bench.recovery.tables import render_away


def test_a_killed_job_gives_each_result_once(tmp_path: Path) -> None:
    told: list[str] = []
    away = measure_away(told.append, tmp_path, state_mb=1, kills=1, every_s=0.3)
    assert away.wrong == ()
    assert away.runs_s[0] <= away.shown_s[0]
    assert away.made_s[0] <= away.shown_s[0]
    assert any("kill 1 of 1" in what for what in told)
    assert render_away((away,)).row_count == 1


def test_rows_go_on_from_a_position_as_they_would_have() -> None:
    source = KeyedRows(StateShape(keys=10, bytes_per_key=100, rows_per_s=1_000, changing=5), start_ms=0)
    (split,) = source.splits(1)
    (again,) = source.splits(1)
    first, second = split.read(10), split.read(100)
    assert first is not None
    assert second is not None
    assert first.rows.column("key").to_pylist() == list(range(10))
    assert sorted(second.rows.column("key").to_pylist()[:5]) == list(range(5))  # each that changes, once per turn
    again.seek(10)
    assert again.read(100) == second


def test_a_row_that_came_twice_or_was_counted_wrongly_is_seen() -> None:
    shape = StateShape(keys=10, bytes_per_key=100, rows_per_s=1)
    results = KeyedResults(shape)
    rows = {"number": [10, 11], "due_ms": [5, 6], "made_ms": [7.0, 8.0], "times": [2, 3]}
    results.take(pa.record_batch(rows))
    assert results.wrong == ["1 rows with a wrong count"]
    results.take(pa.record_batch(rows).slice(0, 1))
    assert results.wrong[1:] == ["1 rows twice"]
    assert results.first_due_after(5) is not None
    assert results.first_due_after(6) is None


def test_old_results_are_not_looked_at_when_a_new_one_is_waited_for() -> None:
    results = KeyedResults(StateShape(keys=10, bytes_per_key=100, rows_per_s=1))
    unreadable: Any = None
    results._told.append(KeyedRowsTold(1_000.0, unreadable, unreadable, unreadable))
    assert results.first_due_after(2_000.0) is None
    now_ms = int(time.time() * 1000)
    results.take(pa.record_batch({"number": [10], "due_ms": [now_ms - 5], "made_ms": [now_ms - 4.0], "times": [2]}))
    assert results.first_due_after(now_ms - 5) is None
    found = results.first_due_after(now_ms - 10)
    assert found is not None
    assert found[0] == now_ms - 4.0


def test_the_median_and_the_99th_percentile_are_told() -> None:
    away = AwayTimes(1, 1.0, 3, (0.1, 0.2, 0.6), (0.3, 0.5, 0.7), (1.0, 1.5, 1.4), ())
    assert away.medians == (0.2, 0.5, 1.4)
    assert away.p99s == pytest.approx((0.592, 0.696, 1.498))
