"""Results as Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dirigo.flow.errors import FlowError
from dirigo.flow.sinks import to_parquet
from dirigo.flow.sources import from_parquet

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("ms", "UTC")), ("tags", pa.list_(pa.string()))])


def batch(first: int, count: int) -> pa.RecordBatch:
    rows = [{"n": number, "at": number, "tags": [str(number)]} for number in range(first, first + count)]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_rows_come_back_as_they_went(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "results"
    sink = to_parquet(folder)
    sink.prepare(SCHEMA)
    for partition in range(2):
        writer = sink.open(SCHEMA, partition)
        writer.write(batch(partition * 100, 60))
        writer.flush()
        writer.write(batch(partition * 100 + 60, 40))
        writer.close()
        writer.close()
    assert names_in(folder) == ["part-0-00000.parquet", "part-1-00000.parquet"]
    source = from_parquet(folder, time="at")
    assert source.schema == SCHEMA
    rows: list[dict[str, Any]] = []
    (split,) = source.splits(1)
    while not split.ended:
        piece = split.read(30)
        rows += [] if piece is None else piece.rows.to_pylist()
    assert rows == batch(0, 200).to_pylist()


def test_files_have_at_most_so_many_rows(tmp_path: Path) -> None:
    sink = to_parquet(tmp_path, rows_per_file=25)
    writer = sink.open(SCHEMA, 3)
    writer.write(batch(0, 70))
    writer.write(batch(70, 5))
    writer.close()
    files = sorted(tmp_path.iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [25, 25, 25]
    assert [file.name for file in files] == [f"part-3-0000{number}.parquet" for number in range(3)]
    assert pa.concat_tables([pq.read_table(file) for file in files]).column("n").to_pylist() == list(range(75))


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    writer = to_parquet(tmp_path, rows_per_file=100_000).open(SCHEMA, 0)
    writer.write(batch(0, 70_000))
    writer.flush()
    (hidden,) = names_in(tmp_path)
    assert hidden.startswith(".part-0-00000.parquet.")
    with pytest.raises(FlowError, match="there are no files"):
        from_parquet(tmp_path)
    writer.write(batch(70_000, 30_000))
    assert names_in(tmp_path) == ["part-0-00000.parquet"]
    writer.close()
    assert names_in(tmp_path) == ["part-0-00000.parquet"]


def test_small_batches_share_a_row_group(tmp_path: Path) -> None:
    writer = to_parquet(tmp_path).open(SCHEMA, 0)
    for number in range(50):
        writer.write(batch(number * 10, 10))
    writer.close()
    assert pq.read_metadata(tmp_path / "part-0-00000.parquet").num_row_groups == 1


def test_an_empty_result_leaves_one_file_with_the_columns(tmp_path: Path) -> None:
    sink = to_parquet(tmp_path)
    for partition in range(3):
        writer = sink.open(SCHEMA, partition)
        writer.write(batch(0, 0))
        writer.close()
    assert names_in(tmp_path) == ["part-0-00000.parquet"]
    table = pq.read_table(tmp_path / "part-0-00000.parquet")
    assert (table.schema, table.num_rows) == (SCHEMA, 0)


def test_earlier_results_are_kept_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    writer = to_parquet(tmp_path, rows_per_file=5).open(SCHEMA, 0)
    writer.write(batch(0, 10))
    writer.close()
    (tmp_path / ".part-1-00000.parquet.g0-12345678").write_text("left by a crash")
    with pytest.raises(FlowError, match='mode="overwrite"'):
        to_parquet(tmp_path).prepare(SCHEMA)
    assert len(names_in(tmp_path)) == 3
    sink = to_parquet(tmp_path, rows_per_file=5, mode="overwrite")
    sink.prepare(SCHEMA)
    assert [name for name in names_in(tmp_path) if name.startswith("part")] == names_in(tmp_path)[1:]
    writer = sink.open(SCHEMA, 0)
    writer.write(batch(0, 5))
    (new,) = names_in(tmp_path)
    assert new.startswith("part-0-00002-")


def test_files_of_others_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "part-0-00000.parquet").write_text("")
    with pytest.raises(FlowError, match=r"thesis\.txt' is no earlier result"):
        to_parquet(tmp_path, mode="overwrite").prepare(SCHEMA)
    assert names_in(tmp_path) == ["part-0-00000.parquet", "thesis.txt"]


def test_places_and_columns_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FlowError, match="cannot be made a folder"):
        to_parquet(tmp_path / "file").prepare(SCHEMA)
    with pytest.raises(FlowError, match="Parquet cannot hold these columns"):
        to_parquet(tmp_path / "new").prepare(pa.schema([("a", pa.month_day_nano_interval())]))
    assert not (tmp_path / "new").exists()
    with pytest.raises(FlowError, match="rows_per_file is 0"):
        to_parquet(tmp_path, rows_per_file=0)
