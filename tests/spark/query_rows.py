"""Ten Nexmark queries with Spark SQL's answers to them, to compare what jobs on a cluster write with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dirigo.nexmark.generator import Generator
from dirigo_lab.nexmark.check import write_side_input
from dirigo_lab.nexmark.events import write_events
from dirigo_lab.nexmark.oracles import comparison, spark_oracle

EVENTS = 20_000
RATE = 1_000  # 20 s of event time, so that windows close on the way
QUERIES = ("q7", "q12_event", "q1", "q3", "q5", "q8", "q11", "q13", "q17", "q20")


def answers(spark: Any, folder: Path) -> dict[str, pa.Table]:
    """Spark SQL's."""
    write_events(Generator(rate=RATE), EVENTS, folder)
    write_side_input(folder)
    return {query: spark_oracle.run(spark, query, folder) for query in QUERIES}


def assert_equal(results: Path, expected: Mapping[str, pa.Table]) -> None:
    """The rows in RESULTS/<query> are the expected ones."""
    for query in QUERIES:
        found = comparison.normalise(pq.read_table(results / query))
        assert found.num_rows > 0, query
        assert comparison.difference(found, expected[query], "Dirigo", "Spark SQL") is None, query
