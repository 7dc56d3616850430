"""Rows out of Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dirigo.flow.errors import FlowError
from dirigo.flow.sources import Split, from_parquet


def write(path: Path, first: int, count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = list(range(first, first + count))
    pq.write_table(pa.table({"n": numbers, "text": [str(number) for number in numbers]}), path, row_group_size=7)


def numbers_of(split: Split, rows_max: int = 5) -> list[int]:
    found: list[int] = []
    while not split.ended:
        piece = split.read(rows_max)
        if piece is not None:
            assert piece.rows.num_rows <= rows_max
            found += piece.rows.column("n").to_pylist()
    split.close()
    return found


def test_one_file_is_read_in_small_pieces(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 23)
    source = from_parquet(tmp_path / "a.parquet")
    assert source.schema == pa.schema([("n", pa.int64()), ("text", pa.string())])
    (split,) = source.splits(4)
    assert numbers_of(split) == list(range(23))


def test_pieces_may_become_smaller_while_reading(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 20)
    (split,) = from_parquet(str(tmp_path)).splits(1)
    first = split.read(10)
    assert first is not None
    assert first.rows.column("n").to_pylist() + numbers_of(split, 3) == list(range(20))


@pytest.mark.parametrize("wanted", [1, 2, 3, 5, 8])
def test_splits_cover_every_file_exactly_once(tmp_path: Path, wanted: int) -> None:
    for number in range(5):
        write(tmp_path / f"part-{number}.parquet", number * 10, 10)
    splits = from_parquet(tmp_path).splits(wanted)
    assert len(splits) == min(wanted, 5)
    found = [numbers_of(split) for split in splits]
    assert sorted(number for each in found for number in each) == list(range(50))
    if wanted == 2:
        assert found[0] == [*range(10), *range(20, 30), *range(40, 50)]


def test_hidden_files_are_skipped_and_folders_below_are_read(tmp_path: Path) -> None:
    write(tmp_path / "day=1" / "a.parquet", 0, 3)
    write(tmp_path / ".hidden.parquet", 100, 3)
    write(tmp_path / "_unfinished" / "a.parquet", 200, 3)
    (tmp_path / "_SUCCESS").write_text("")
    (split,) = from_parquet(tmp_path).splits(2)
    assert numbers_of(split) == [0, 1, 2]


def test_only_the_named_columns_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 3)
    source = from_parquet(tmp_path, columns=["text"])
    (split,) = source.splits(1)
    piece = split.read(10)
    assert piece is not None
    assert piece.rows.to_pylist() == [{"text": "0"}, {"text": "1"}, {"text": "2"}]
    split.close()
    with pytest.raises(FlowError, match="did you mean 'text'"):
        from_parquet(tmp_path, columns=["txt"])
    with pytest.raises(FlowError, match="no column 'n'"):
        from_parquet(tmp_path, columns=["text"], time="n")


def test_a_file_without_rows_gives_none(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 0)
    (split,) = from_parquet(tmp_path).splits(1)
    assert numbers_of(split) == []


def test_wrong_places_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="there is no file or folder"):
        from_parquet(tmp_path / "missing")
    with pytest.raises(FlowError, match="there are no files"):
        from_parquet(tmp_path)
    (tmp_path / "a.parquet").write_text("no parquet")
    with pytest.raises(FlowError, match=r"a.parquet' is no readable Parquet file"):
        from_parquet(tmp_path)


def test_files_with_other_columns_are_refused_at_once(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 3)
    pq.write_table(pa.table({"n": ["x"], "text": ["y"]}), tmp_path / "b.parquet")
    with pytest.raises(FlowError, match=r"'n' has type string in .*b.parquet' but int64"):
        from_parquet(tmp_path)


def test_closing_early_ends_the_split(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 0, 20)
    (split,) = from_parquet(tmp_path).splits(1)
    split.read(3)
    split.close()
    split.close()
    assert split.ended
    assert split.read(3) is None


def test_a_large_row_group_is_not_read_at_once(tmp_path: Path) -> None:
    count = 1_000_000
    table = pa.table({name: pa.array(range(count)) for name in "ab"})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=count, compression="none", use_dictionary=False)
    del table
    before = pa.total_allocated_bytes()
    (split,) = from_parquet(tmp_path).splits(1)
    peak = 0
    while not split.ended:
        split.read(4096)
        peak = max(peak, pa.total_allocated_bytes() - before)
    split.close()
    assert peak < (tmp_path / "a.parquet").stat().st_size / 2
