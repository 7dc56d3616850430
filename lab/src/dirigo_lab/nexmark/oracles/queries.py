"""Which queries have an oracle, the SQL text of each, and the Parquet files that a query's tables are read from."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Literal

from dirigo.errors import DirigoError

Dialect = Literal["duckdb", "spark"]

# q12 counts by processing time, which no batch engine can repeat; q12_event is its repeatable variant.
QUERIES = (*(f"q{number}" for number in range(12)), "q12_event", *(f"q{number}" for number in range(13, 23)))
_TABLE_READ = re.compile(r"\b(?:FROM|JOIN)\s+(person|auction|bid|side_input)\b")


def sql_text(query: str, dialect: Dialect) -> str:
    """The SQL of `query`: the text of that dialect if there is one, otherwise the text for all."""
    if query not in QUERIES:
        raise DirigoError(f"There is no oracle for the query '{query}': choose one of {', '.join(QUERIES)}.")
    folder = files(__package__) / "sql"
    own = folder / f"{query}.{dialect}.sql"
    text = own if own.is_file() else folder / f"{query}.sql"
    return text.read_text(encoding="utf-8")


def table_files(query: str, sql: str, events: Path) -> dict[str, list[str]]:
    """Per table that `sql` reads, its Parquet files. Both engines get the same list, whatever else lies in a folder."""
    tables = sorted(set(_TABLE_READ.findall(sql)))
    found = {table: sorted(str(file) for file in (events / table).glob("[!._]*.parquet")) for table in tables}
    for table, its_files in found.items():
        if not its_files:
            raise DirigoError(
                f"The oracle of {query} found no Parquet file in {events / table}: write the events there first."
            )
    return found
