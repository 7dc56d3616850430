"""Nexmark's events as Parquet files, for engines that read tables and for comparing results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dirigo.flow.errors import FlowError
from dirigo.nexmark.generator import Generator
from dirigo.nexmark.schemas import AUCTION, BID, PERSON

EVENTS_AT_ONCE = 50_000
ROWS_PER_GROUP = 128 * 1024
SCHEMAS = {"person": PERSON, "auction": AUCTION, "bid": BID}
_FILE = "part-0.parquet"


def write_events(
    generator: Generator, events: int, directory: Path, progress: Callable[[int], None] | None = None
) -> dict[str, Path]:
    """Write the first `events` events as one file for each kind, DIRECTORY/person/part-0.parquet and so on.

    Replaces the files of an earlier call, once all of the new ones are complete. Memory stays bounded. `progress` is told,
    now and then, how many events are done. Returns the folder of each kind.
    """
    if events < 0:
        raise FlowError(f"{events} events were asked for: ask for 0 or more.")
    folders = {kind: directory / kind for kind in SCHEMAS}
    tables: dict[str, _TableFile] = {}
    try:
        for kind, folder in folders.items():
            tables[kind] = _TableFile(folder, SCHEMAS[kind])
        for first in range(0, events, EVENTS_AT_ONCE):
            last = min(first + EVENTS_AT_ONCE, events)
            tables["person"].add(generator.persons(first, last))
            tables["auction"].add(generator.auctions(first, last))
            tables["bid"].add(generator.bids(first, last))
            if progress is not None:
                progress(last)
        for table in tables.values():
            table.finish()
    except BaseException:
        for table in tables.values():
            table.discard()
        raise
    for table in tables.values():
        table.publish()
    return folders


class _TableFile:
    """One Parquet file that appears under its name only when it is complete."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._hidden = folder / f".{_FILE}.unfinished"  # readers skip names that begin with a dot
        self._schema = schema
        self._writer = pq.ParquetWriter(self._hidden, schema)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        if self._waiting_rows >= ROWS_PER_GROUP:
            self._write_waiting()

    def finish(self) -> None:
        if self._waiting_rows:
            self._write_waiting()
        self._writer.close()

    def publish(self) -> None:
        """Take the place of all earlier parts: a reader of the folder would mix them with this one."""
        for part in self._folder.glob("part-*.parquet"):
            part.unlink()
        self._hidden.rename(self._folder / _FILE)

    def discard(self) -> None:
        self._writer.close()
        self._hidden.unlink(missing_ok=True)

    def _write_waiting(self) -> None:
        table = pa.Table.from_batches(self._waiting, schema=self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)  # the rows that wait make one group
        self._waiting = []
        self._waiting_rows = 0
