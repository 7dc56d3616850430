"""Compares the rows that queries wrote with those of an engine that nobody here wrote, over the same events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dirigo.flow.errors import FlowError
from dirigo.nexmark.generator import Generator
from dirigo.runtime.folders import OwnFolder
from dirigo_lab.nexmark.events import write_events
from dirigo_lab.nexmark.oracles import comparison, duckdb_oracle, spark_oracle
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.queries.joins.q13 import side_input

ENGINES = {"duckdb": "DuckDB", "spark": "Spark SQL"}

Answer = Callable[[str, Path], pa.Table]


def check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise FlowError(f"there is no engine '{engine}' to check with; use {' or '.join(ENGINES)}.")


def differences(
    names: Iterable[str], events: int, rate: int, results: Path, engine: str, spark: Any = None
) -> Iterator[tuple[str, str | None]]:
    """Query by query, how the rows in RESULTS/<query> differ from an engine's: None where they do not.

    A query that does not repeat itself is left out. ``spark``: a session that runs already.
    """
    check_engine(engine)
    comparable = [name for name in names if QUERIES[name].is_deterministic]
    if not comparable:
        return
    with OwnFolder("events") as directory, _answers(engine, spark) as answer:
        write_events(Generator(rate=rate), events, directory)
        write_side_input(directory)
        for name in comparable:
            found = comparison.normalise(pq.read_table(results / name))
            yield name, comparison.difference(found, answer(name, directory), "Dirigo", ENGINES[engine])


def write_side_input(directory: Path) -> None:
    """The bounded table of q13, where the oracles look for it."""
    (directory / "side_input").mkdir(exist_ok=True)
    pq.write_table(side_input(), directory / "side_input" / "part-0.parquet")


@contextmanager
def _answers(engine: str, spark: Any) -> Iterator[Answer]:
    if engine == "duckdb":
        yield duckdb_oracle.run
    elif spark is not None:
        yield lambda name, events: spark_oracle.run(spark, name, events)
    else:
        with spark_oracle.local_session() as session:
            yield lambda name, events: spark_oracle.run(session, name, events)
