"""What is stored and summarised, against numpy over the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dirigo_lab.experiments.experiment import ExperimentSummary, Labels, Latencies, Outcome, Scale, Size
from dirigo_lab.experiments.reporting.store import FIGURES, LATENCIES, PER_WORKER, StoringError, store
from dirigo_lab.experiments.reporting.summary import PERCENTILES, session_for, summarise
from experiments.pretended import OBJECTIVE_MS, RESULTS, Pretended, outcome_of

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session_for() as session:
        with session_for(session) as same:
            assert same is session
        yield session  # still running
    assert session.sparkContext._jsc is None


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    settings = Pretended().settings(Scale.PAPER, Size.FULL)
    return [outcome_of(labels, seed, RESULTS + 10 * seed) for labels in settings for seed in SEEDS]


@pytest.fixture(scope="module")
def folder(outcomes: list[Outcome], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "pretended"
    store(outcomes, folder)
    return folder


@pytest.fixture(scope="module")
def summary(spark: Any, folder: Path, outcomes: list[Outcome]) -> ExperimentSummary:
    return summarise(spark, folder, outcomes)


def test_every_latency_is_kept_with_its_labels(folder: Path, outcomes: list[Outcome]) -> None:
    table = pq.read_table(folder / LATENCIES)
    types = {"strategy": pa.string(), "workers": pa.int64(), "load": pa.float64(), "seed": pa.int64(), "job": pa.string()}
    assert {name: table.schema.field(name).type for name in types} == types
    assert table.column_names == [*types, "objective_ms", "at_s", "latency_ms"]
    kept = [np.concatenate([np.asarray(each.latency_ms) for each in outcome.latencies]) for outcome in outcomes]
    assert np.array_equal(table["latency_ms"].to_numpy(), np.concatenate(kept))
    assert set(table["objective_ms"].to_pylist()) == {OBJECTIVE_MS, float("inf")}
    first = table.slice(1, 1).to_pylist()[0]
    assert {name: first[name] for name in ("strategy", "workers", "load", "seed", "job", "at_s")} == {
        "strategy": "reject_send",
        "workers": 8,
        "load": 0.5,
        "seed": 0,
        "job": "urgent",
        "at_s": 0.1,
    }


def test_figures_and_workers_have_a_row_each(folder: Path, outcomes: list[Outcome]) -> None:
    figures = pq.read_table(folder / FIGURES).to_pylist()
    assert len(figures) == 2 * len(outcomes)
    assert figures[2] == {
        "strategy": "reject_send",
        "workers": 8,
        "load": 0.5,
        "seed": 1,
        "figure": "forwards",
        "value": 18.0,
    }
    workers = pq.read_table(folder / PER_WORKER).to_pylist()
    assert [(row["seed"], row["name"], row["worker"], row["value"]) for row in workers[3:6]] == [
        (1, "busy_s", 0, 1.0),
        (1, "busy_s", 1, 2.0),
        (1, "busy_s", 2, 3.0),
    ]


def test_percentiles_are_exact_and_spread_over_the_seeds(summary: ExperimentSummary, outcomes: list[Outcome]) -> None:
    for job, number in (("urgent", 0), ("bulk", 1)):
        row = summary.one(job=job, strategy="fifo", workers=4)
        runs = [each.latencies[number] for each in outcomes if each.labels == row.labels]
        assert [len(run.latency_ms) for run in runs] == [
            len(runs[0].latency_ms) + 10 // (number + 1) * seed for seed in SEEDS
        ]
        expected = {f"p{percent}": [np.percentile(run.latency_ms, percent) for run in runs] for percent in PERCENTILES}
        expected["max"] = [run.latency_ms.max() for run in runs]
        expected["mean"] = [run.latency_ms.mean() for run in runs]
        expected["satisfaction"] = [(run.latency_ms <= run.objective_ms).mean() for run in runs]
        assert set(row.values) == set(expected)
        for name, values in expected.items():
            spread = row.values[name]
            wanted = [np.median(values), min(values), max(values)]
            assert [spread.median, spread.low, spread.high] == pytest.approx(wanted, rel=1e-12), name
        assert row.results == round(np.mean([len(run.latency_ms) for run in runs]))
    urgent = summary.one(job="urgent", strategy="fifo", workers=4)
    assert 0.1 < urgent["satisfaction"] < 0.9  # or the comparison above says little
    assert urgent.values["p50"].low < urgent["p50"] < urgent.values["p50"].high
    assert summary.one(job="bulk", strategy="fifo", workers=4)["satisfaction"] == 1.0


def test_rows_are_in_the_order_of_the_settings_and_figures_have_a_row_of_their_own(summary: ExperimentSummary) -> None:
    settings = Pretended().settings(Scale.PAPER, Size.FULL)
    assert [(row.labels, row.job) for row in summary.rows] == [
        (labels, job) for labels in settings for job in ("urgent", "bulk", "")
    ]
    forwards = summary.one(job="", strategy="fifo", workers=2).values["forwards"]
    assert (forwards.median, forwards.low, forwards.high) == (12.0, 2.0, 22.0)
    assert summary.one(job="", strategy="fifo", workers=2).results == 410 + 205


def test_labels_may_be_missing_and_a_job_without_results_is_still_told(spark: Any, tmp_path: Path) -> None:
    few = Latencies.of("job", 10.0, [(0.0, 10.0), (1.0, 30.0)])
    none = Latencies.of("job", 10.0, [])
    odd: Labels = {"a`b": 1.5, "n": 1, "N": "x"}
    outcomes = [
        Outcome({"n": 1}, 0, [few]),
        Outcome({"n": 1}, 1, [none]),
        Outcome({"n": 2}, 0, [none], {"p50": 3.0}),
        Outcome(odd, 0, [], {"results": 4.0}),
    ]
    store(outcomes, tmp_path)
    found = summarise(spark, tmp_path, outcomes)
    first, second, whole, last = found.rows
    assert (first.labels, first.results, first["p50"], first["satisfaction"]) == ({"n": 1}, 1, 20.0, 0.5)
    assert (second.labels, second.job, second.results, second.values) == ({"n": 2}, "job", 0, {})
    assert (whole.labels, whole.job, whole["p50"]) == ({"n": 2}, "", 3.0)
    assert (last.labels, last.job, last["results"]) == (odd, "", 4.0)
    assert found.outcomes is outcomes


def test_labels_that_cannot_be_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoringError, match="a label cannot be called 'job'"):
        store([Outcome({"job": 1}, 0, [])], tmp_path)
    with pytest.raises(StoringError, match="the label 'm' is int and str; let all"):
        store([Outcome({"m": 1}, 0, []), Outcome({"m": "many"}, 0, [])], tmp_path)


def test_numbers_that_are_none_are_noticed(tmp_path: Path) -> None:
    latencies = Latencies("job", 1.0, np.array([1.0]), np.array([float("inf")]))
    with pytest.raises(AssertionError, match="has no latency"):
        store([Outcome({"n": 1}, 0, [latencies])], tmp_path)
    with pytest.raises(AssertionError, match="each latency has its moment"):
        store([Outcome({"n": 1}, 0, [replace(latencies, at_s=np.array([]))])], tmp_path)
