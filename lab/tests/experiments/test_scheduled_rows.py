"""A source that gives rows and watermarks when a schedule says so."""

from collections.abc import Iterator

import pyarrow as pa

from dirigo.flow.sources.reader import SourceReader
from dirigo.kernel import Output
from dirigo_lab.experiments.window_jobs.scheduled_rows import Entry, ScheduledRows


def entries() -> Iterator[Entry]:
    yield from (Entry(0.0, 1), Entry(0.1, 2), Entry(0.2, None), Entry(0.2, 3), Entry(0.5, 4))


def test_all_rows_that_are_due_come_at_once_and_never_past_a_watermark() -> None:
    (split,) = ScheduledRows(entries).splits(1)
    now = 10.0
    split.clock = lambda: now
    assert split.read(100) is None  # it begins a second later
    assert split.next_due_s == 11.0
    now = 11.3
    piece = split.read(100)
    assert piece is not None
    assert piece.rows.column("value").to_pylist() == [1, 2]
    assert piece.due_s == 11.0
    assert piece.rows.column("due_s").to_pylist() == [11.0, 11.1]
    watermark = split.read(100)
    assert watermark is not None
    assert (watermark.rows.num_rows, watermark.reached_ms, watermark.due_s) == (0, 200, 11.2)
    last = split.read(100)
    assert last is not None
    assert last.rows.column("value").to_pylist() == [3]
    assert not split.ended
    now = 11.5
    assert split.read(100) is not None
    assert split.ended


def test_no_more_rows_than_are_asked_for() -> None:
    (split,) = ScheduledRows(entries).splits(1)
    now = 10.0
    split.clock = lambda: now
    split.read(1)
    now = 12.0
    piece = split.read(1)
    assert piece is not None
    assert piece.rows.num_rows == 1


def test_each_row_is_a_message_of_its_own() -> None:
    source = ScheduledRows(entries)
    (split,) = source.splits(1)
    now = 10.0
    split.clock = lambda: now
    reader = SourceReader(source, split, "job/source/0", "job/rows/0", 1)
    reader.read(100, now)
    now = 11.15
    emitted = reader.read(100, now)
    assert all(isinstance(each, Output) for each in emitted)
    batches: list[pa.RecordBatch] = [each.payload[1] for each in emitted]
    assert [batch.num_rows for batch in batches] == [1, 1]


def test_splits_that_are_read_at_different_times_begin_together_if_told_when() -> None:
    splits = ScheduledRows(entries, entries, begins_s=12.0).splits(2)
    for now, split in zip((10.0, 10.7), splits, strict=True):
        split.clock = lambda now=now: now  # type: ignore[misc]
        assert split.read(100) is None
        assert split.next_due_s == 12.0
