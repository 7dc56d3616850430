"""Summarises what was stored, with Spark: exact percentiles of each run, then the median and the range over the seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dirigo_lab.experiments.experiment import ExperimentSummary, Labels, Outcome, ResultRow, Spread
from dirigo_lab.experiments.reporting.store import FIGURES, LATENCIES, label_names
from dirigo_lab.nexmark.oracles.spark_oracle import local_session

PERCENTILES = (5, 25, 50, 75, 95, 99)
_RESULTS = "results"
_WHOLE_RUN = ""  # the job of what concerns no job alone

Setting = tuple[Any, ...]  # the values of all labels, None for one that a setting does not have


@contextmanager
def session_for(spark: Any = None) -> Iterator[Any]:
    """The session that is given, which is left running; or a small one of our own, which is gone afterwards."""
    if spark is not None:
        yield spark
    else:
        with local_session() as own:
            yield own


def summarise(spark: Any, folder: Path, outcomes: Sequence[Outcome]) -> ExperimentSummary:
    """What `store` wrote into the folder for these outcomes, as rows in their order."""
    names = label_names(outcomes)
    found: dict[tuple[Setting, str], dict[str, Spread]] = {}
    results: dict[tuple[Setting, str], float] = {}  # over all seeds
    for *setting, job, name, median, low, high, total in _spreads(spark, folder, names):
        key = (tuple(setting), job)
        if job != _WHOLE_RUN and name == _RESULTS:
            results[key] = total
        else:
            found.setdefault(key, {})[name] = Spread(median, low, high)
    rows = []
    for labels, setting, runs in _settings(outcomes, names):
        counts = {job: results.get((setting, job), 0.0) / len(runs) for job in _jobs(runs)}
        rows += [ResultRow(labels, job, round(count), found.get((setting, job), {})) for job, count in counts.items()]
        if (setting, _WHOLE_RUN) in found:
            rows.append(ResultRow(labels, _WHOLE_RUN, round(sum(counts.values())), found[setting, _WHOLE_RUN]))
    return ExperimentSummary(rows, outcomes)


def _spreads(spark: Any, folder: Path, names: Sequence[str]) -> list[Any]:
    """Per setting, job and name of a value: its median, least and greatest over the seeds, and their sum."""
    from pyspark.sql import functions

    # A session beside the caller's, with settings of its own: a label may be `n` and another one `N`.
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    labels = [f"label_{number}" for number in range(len(names))]  # by number: nobody's label is called that

    def read(file: str, *others: Any) -> Any:
        given = [
            functions.col("`" + name.replace("`", "``") + "`").alias(label)
            for name, label in zip(names, labels, strict=True)
        ]
        return session.read.parquet(str(folder / file)).select(*given, *others)

    latency = functions.col("latency_ms")
    is_in_time = (latency <= functions.col("objective_ms")).cast("double")  # infinity is more than any latency
    percentiles = functions.percentile(latency, [percent / 100 for percent in PERCENTILES])
    per_run = (
        read(LATENCIES, "job", "seed", "objective_ms", "latency_ms")
        .groupBy(*labels, "job", "seed")
        .agg(
            functions.count(latency).cast("double").alias(_RESULTS),
            percentiles.alias("percentiles"),
            functions.max(latency).alias("max"),
            functions.avg(latency).alias("mean"),
            functions.avg(is_in_time).alias("satisfaction"),
        )
        .select(
            "*", *(functions.col("percentiles")[place].alias(f"p{percent}") for place, percent in enumerate(PERCENTILES))
        )
    )
    values = [_RESULTS, *(f"p{percent}" for percent in PERCENTILES), "max", "mean", "satisfaction"]
    of_jobs = per_run.unpivot([*labels, "job"], values, "name", "value")
    of_runs = read(FIGURES, functions.lit(_WHOLE_RUN).alias("job"), functions.col("figure").alias("name"), "value")
    value = functions.col("value")
    spreads = (
        of_jobs.unionByName(of_runs)
        .groupBy(*labels, "job", "name")
        .agg(functions.percentile(value, 0.5), functions.min(value), functions.max(value), functions.sum(value))
    )
    return list(spreads.collect())


def _settings(outcomes: Sequence[Outcome], names: Sequence[str]) -> Iterator[tuple[Labels, Setting, list[Outcome]]]:
    """The settings in their order, each with its runs."""
    runs: dict[Setting, list[Outcome]] = {}
    for outcome in outcomes:
        runs.setdefault(tuple(outcome.labels.get(name) for name in names), []).append(outcome)
    for setting, its_runs in runs.items():
        yield its_runs[0].labels, setting, its_runs


def _jobs(runs: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(latencies.job for run in runs for latencies in run.latencies))
