"""Answers Nexmark queries with Spark SQL over events in Parquet folders, and starts the small session that this needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from dirigo.spark.session import OwnSession
from dirigo_lab.nexmark.oracles.comparison import normalise
from dirigo_lab.nexmark.oracles.queries import sql_text, table_files


def run(spark: Any, query: str, events: Path) -> pa.Table:
    """The normalised answer to `query` over the tables in the folder `events`; the session `spark` is left as it is."""
    text = sql_text(query, "spark")
    tables = table_files(query, text, events)
    # A session beside the caller's: same engine, but views and settings of its own.
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", spark.conf.get("spark.sql.shuffle.partitions"))
    for table, its_files in tables.items():
        session.read.parquet(*its_files).createOrReplaceTempView(table)
    return normalise(session.sql(text).toArrow())


@contextmanager
def local_session(settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A quiet Spark session on two threads of this machine; when left, it and the Java process it started are gone.

    `settings` come on top of ours, for example `{"spark.driver.memory": "4g"}` for many events.
    """
    ours = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    with OwnSession(0, "local[2]", {**ours, **(settings or {})}, name="dirigo nexmark oracle") as spark:
        yield spark
