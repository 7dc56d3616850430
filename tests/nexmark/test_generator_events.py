"""Events written as Parquet are those that the generator makes."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dirigo.flow.errors import FlowError
from dirigo.nexmark.generator import Generator
from dirigo_lab.nexmark.events import write_events


def test_written_events_read_back_as_generated(tmp_path: Path) -> None:
    generator = Generator(out_of_order_group=100)
    told: list[int] = []
    folders = write_events(generator, 320_017, tmp_path / "events", told.append)
    assert told == [50_000, 100_000, 150_000, 200_000, 250_000, 300_000, 320_017]
    assert folders == {kind: tmp_path / "events" / kind for kind in ("person", "auction", "bid")}
    for kind, folder in folders.items():
        assert [path.name for path in folder.iterdir()] == ["part-0.parquet"]
        expected = getattr(generator, f"{kind}s")(0, 320_017)
        read = pq.read_table(folder / "part-0.parquet")
        assert read.schema == expected.schema
        assert read.combine_chunks().to_batches()[0].equals(expected)


def test_large_tables_are_written_in_pieces(tmp_path: Path) -> None:
    write_events(Generator(), 320_000, tmp_path)
    bids = pq.ParquetFile(tmp_path / "bid" / "part-0.parquet")
    assert [bids.metadata.row_group(group).num_rows for group in range(bids.num_row_groups)] == [138_000, 138_000, 18_400]


def test_what_was_written_before_is_replaced(tmp_path: Path) -> None:
    write_events(Generator(), 5_000, tmp_path)
    (tmp_path / "bid" / "part-0.parquet").rename(tmp_path / "bid" / "part-1.parquet")
    (tmp_path / "bid" / "notes.txt").write_text("kept")
    write_events(Generator(), 500, tmp_path)
    assert sorted(path.name for path in (tmp_path / "bid").iterdir()) == ["notes.txt", "part-0.parquet"]
    assert pq.read_metadata(tmp_path / "bid" / "part-0.parquet").num_rows == 460


def test_no_events_are_empty_tables_with_their_columns(tmp_path: Path) -> None:
    write_events(Generator(), 0, tmp_path)
    assert pq.read_table(tmp_path / "auction" / "part-0.parquet").equals(Generator().auctions(0, 0).schema.empty_table())


def test_fewer_than_no_events_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="ask for 0 or more"):
        write_events(Generator(), -1, tmp_path)


def test_a_failure_keeps_what_was_written_before(tmp_path: Path) -> None:
    write_events(Generator(), 500, tmp_path)

    def fail(_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_events(Generator(), 5_000, tmp_path, fail)
    assert [path.name for path in (tmp_path / "bid").iterdir()] == ["part-0.parquet"]
    assert pq.read_metadata(tmp_path / "bid" / "part-0.parquet").num_rows == 460
