"""Answers Nexmark queries with DuckDB, over events in Parquet folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo_lab.nexmark.oracles.comparison import normalise
from dirigo_lab.nexmark.oracles.queries import sql_text, table_files


def run(query: str, events: Path) -> pa.Table:
    """The normalised answer to `query` over the tables in the folder `events`."""
    text = sql_text(query, "duckdb")
    tables = table_files(query, text, events)
    # Nothing is fetched while a query runs: all that the SQL needs is part of DuckDB itself.
    with _duckdb().connect(":memory:", config={"autoinstall_known_extensions": "false"}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for table, its_files in tables.items():
            connection.read_parquet(its_files).create_view(table)
        return normalise(connection.sql(text).to_arrow_table())


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise DirigoError("The DuckDB oracle needs DuckDB, which is not installed: run `pip install duckdb`.") from error
    return duckdb
