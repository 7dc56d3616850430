"""Running a query: its rows are written or counted, and it is told how far it is."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dirigo.flow.errors import FlowError
from dirigo_lab.nexmark import run_query


@pytest.mark.parametrize("how", [{}, {"workers": 3}, {"workers": 2, "chaos": True, "seed": 3}])
def test_rows_are_counted_or_written_and_both_agree(how: dict[str, Any], tmp_path: Path) -> None:
    counted = run_query("q20", 10_000, **how)
    written = run_query("q20", 10_000, out=tmp_path, **how)
    assert counted.rows == written.rows == pq.read_table(tmp_path / "q20").num_rows > 0
    assert counted.query == "q20"
    assert counted.events == 10_000
    assert counted.events_per_s == 10_000 / counted.seconds


def test_rows_of_an_earlier_run_are_replaced(tmp_path: Path) -> None:
    run_query("q0", 10_000, out=tmp_path)
    again = run_query("q0", 1_000, out=tmp_path)
    assert pq.read_table(tmp_path / "q0").num_rows == again.rows == 920


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("query", ["q2", "q3", "q9"])
def test_progress_is_told_up_to_the_last_event(query: str, workers: int) -> None:
    told: list[int] = []
    run_query(query, 50_000, progress=told.append, workers=workers)
    assert all(before <= after for before, after in pairwise(told))
    assert told[-1] == 50_000


def test_one_event_is_enough_and_a_query_that_reads_none_of_it_ends_too() -> None:
    told: list[int] = []
    assert run_query("q0", 1, progress=told.append).rows == 0  # the only event is a person
    assert told[-1] == 1
    assert run_query("q3", 1).rows == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "q21a"}, "there is no query 'q21a'; did you mean 'q21'?"),
        ({"name": "winners"}, "there is no query 'winners'; choose one of q0, q1"),
        ({"events": 0}, "0 events are too few; ask for at least 1."),
        ({"rate": 0}, "choose a rate from 1 to 1,000,000"),
        ({"host": "moon"}, "there is no host 'moon'; use spark or sim."),
        ({"host": "spark"}, "use run_on_cluster with a cluster on Spark."),
        ({"workers": 0}, "0 workers are too few; ask for at least 1."),
    ],
)
def test_bad_input_is_refused_with_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FlowError) as caught:
        run_query(**{"name": "q0", "events": 100, **arguments})
    assert sentence in str(caught.value)
