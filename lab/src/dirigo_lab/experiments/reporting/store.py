"""Keeps what runs gave as Parquet files: every single latency, the figures of each run, and those of each worker.

Each label of a setting is a column of its own, with its own type, so that anybody can ask the files with any engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dirigo.errors import DirigoError
from dirigo_lab.experiments.experiment import Label, Latencies, Outcome

LATENCIES, FIGURES, PER_WORKER = "latencies.parquet", "figures.parquet", "per_worker.parquet"

_LATENCIES = {
    "seed": pa.int64(),
    "job": pa.string(),
    "objective_ms": pa.float64(),
    "at_s": pa.float64(),
    "latency_ms": pa.float64(),
}
_FIGURES = {"seed": pa.int64(), "figure": pa.string(), "value": pa.float64()}
_PER_WORKER = {"seed": pa.int64(), "name": pa.string(), "worker": pa.int64(), "value": pa.float64()}
_TAKEN = {*_LATENCIES, *_FIGURES, *_PER_WORKER}


class StoringError(DirigoError):
    """Outcomes cannot be kept as a table."""


def store(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Write the three files of an experiment into its folder, in place of earlier ones."""
    labels = _label_types(outcomes)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / LATENCIES, labels, _LATENCIES, _latencies(outcomes))
    _write(folder / FIGURES, labels, _FIGURES, _figures(outcomes))
    _write(folder / PER_WORKER, labels, _PER_WORKER, _per_worker(outcomes))


def label_names(outcomes: Sequence[Outcome]) -> list[str]:
    """All labels, in the order in which settings have them."""
    return list(dict.fromkeys(name for outcome in outcomes for name in outcome.labels))


Rows = tuple[Mapping[str, Label], int, dict[str, Any]]  # labels, how many rows, and the other columns or their one value


def _latencies(outcomes: Sequence[Outcome]) -> Iterator[Rows]:
    for outcome in outcomes:
        jobs = [latencies.job for latencies in outcome.latencies]
        assert all(jobs), "a job without a name: that stands for the run as a whole"
        assert len(set(jobs)) == len(jobs), f"a job has its latencies twice: {jobs}"
        for latencies in outcome.latencies:
            columns = {"seed": outcome.seed, "job": latencies.job, "objective_ms": latencies.objective_ms}
            yield outcome.labels, _length(latencies), {**columns, "at_s": latencies.at_s, "latency_ms": latencies.latency_ms}


def _length(latencies: Latencies) -> int:
    assert len(latencies.at_s) == len(latencies.latency_ms), f"{latencies.job}: each latency has its moment"
    assert np.isfinite(latencies.latency_ms).all(), f"{latencies.job}: a result that never came has no latency"
    return len(latencies.at_s)


def _figures(outcomes: Sequence[Outcome]) -> Iterator[Rows]:
    for outcome in outcomes:
        names, values = list(outcome.figures), [float(value) for value in outcome.figures.values()]
        yield outcome.labels, len(names), {"seed": outcome.seed, "figure": names, "value": values}


def _per_worker(outcomes: Sequence[Outcome]) -> Iterator[Rows]:
    for outcome in outcomes:
        for name, values in outcome.per_worker.items():
            numbers = [float(value) for value in values]
            workers = list(range(len(numbers)))
            yield outcome.labels, len(workers), {"seed": outcome.seed, "name": name, "worker": workers, "value": numbers}


def _write(path: Path, labels: Mapping[str, Any], others: Mapping[str, Any], rows: Iterator[Rows]) -> None:
    """Run by run, so that there is never more than one in memory a second time."""
    schema = pa.schema({**labels, **others})
    with pq.ParquetWriter(path, schema) as writer:
        for its_labels, count, its_others in rows:
            columns = {name: its_labels.get(name) for name in labels} | its_others
            arrays = [_column(columns[field.name], count, field.type) for field in schema]
            if count:
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _column(value: Any, count: int, kind: Any) -> Any:
    if isinstance(value, list | np.ndarray):
        assert len(value) == count
        return pa.array(value, kind)
    return pa.repeat(pa.scalar(value, kind), count)


def _label_types(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    types = {}
    for name in label_names(outcomes):
        if name in _TAKEN:
            raise StoringError(f"a label cannot be called '{name}', which is a column already; choose another name.")
        kinds = {type(outcome.labels[name]) for outcome in outcomes if name in outcome.labels}
        if kinds == {str}:
            types[name] = pa.string()
        elif kinds == {int}:
            types[name] = pa.int64()
        elif kinds <= {int, float}:
            types[name] = pa.float64()
        else:
            told = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise StoringError(f"the label '{name}' is {told}; let all its values be text, or all be numbers.")
    return types
