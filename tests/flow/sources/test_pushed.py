"""Rows that are pushed from outside, and what they do to event time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.watermark import END, Watermark
from dirigo.flow.sources import SourceBatch
from dirigo.flow.sources.pushed import PIECE_BYTES, PushedSource, PushedSplit, ReleasedRows
from dirigo.flow.sources.reader import SourceReader
from dirigo.kernel import CriticalOutput, Output

COLUMNS = {"t": int}


class Line:
    """Micro-batches that are there already."""

    def __init__(self, micro_batches: Iterable[ReleasedRows], has_ended: bool = False) -> None:
        self.waiting = deque(micro_batches)
        self.has_ended = has_ended

    @property
    def ended(self) -> bool:
        return self.has_ended and not self.waiting

    def take(self) -> ReleasedRows | None:
        return self.waiting.popleft() if self.waiting else None

    @property
    def next_number(self) -> None:
        """What was taken cannot be taken again."""

    def seek(self, number: int) -> None:
        raise AssertionError("there are no numbers")


def rows(*times: int) -> pa.RecordBatch:
    return pa.record_batch({"t": pa.array(times, pa.int64())})


def released(*batches: Iterable[int], reached_ms: int | None = None) -> ReleasedRows:
    return ReleasedRows((rows(*each) for each in batches), reached_ms)


def split_of(source: PushedSource) -> PushedSplit:
    (split,) = source.splits(1)
    assert isinstance(split, PushedSplit)
    return split


def reader_of(line: Line | None, idle_after: str | None = None) -> SourceReader:
    source = PushedSource(COLUMNS, time="t", idle_after=idle_after)
    split = split_of(source)
    if line is not None:
        split.attach(line)
    return SourceReader(source, split, "j/s.source/0", "j/s/0", watermark_every_ms=1)


def told(emissions: Iterable[Output | CriticalOutput]) -> list[int | str]:
    """Numbers of rows, and watermarks as text."""
    return [
        f"{each.payload.time_ms}{' idle' if each.payload.is_idle else ''}"
        if isinstance(each, CriticalOutput) and isinstance(each.payload, Watermark)
        else each.payload[1].num_rows
        for each in emissions
    ]


def test_before_a_queue_is_attached_nothing_comes_and_nothing_ends() -> None:
    split = split_of(PushedSource(COLUMNS))
    assert split.read(10) is None
    assert not split.ended


def test_there_are_as_many_splits_as_wanted() -> None:
    splits = PushedSource(COLUMNS).splits(3)
    assert [split.number for split in splits if isinstance(split, PushedSplit)] == [0, 1, 2]


@settings(max_examples=60)
@given(
    micro_batches=st.lists(st.lists(st.integers(0, 7), max_size=4), max_size=4),
    rows_max=st.integers(1, 10),
)
def test_every_row_comes_once_in_order_and_only_the_last_piece_of_a_micro_batch_lets_time_go_on(
    micro_batches: list[list[int]], rows_max: int
) -> None:
    number = 0
    line = Line([], has_ended=True)
    ends = []  # how many rows there are when a micro-batch is complete
    for sizes in micro_batches:
        batches = []
        for size in sizes:
            batches.append(range(number, number + size))
            number += size
        line.waiting.append(released(*batches))
        ends.append(number)
    split = split_of(PushedSource(COLUMNS))
    split.attach(line)
    found: list[int] = []
    let_go = []
    while not split.ended:
        piece = split.read(rows_max)
        if piece is None:
            continue
        assert piece.rows.num_rows <= rows_max
        found += piece.rows.column("t").to_pylist()
        if not piece.holds_time:
            let_go.append(len(found))
    assert found == list(range(number))
    assert let_go == ends


def test_rows_and_watermarks_count_from_when_their_micro_batch_arrived() -> None:
    first = ReleasedRows(iter([rows(1, 2), rows(3)]), 3, 50.0)
    without_rows = ReleasedRows(iter([]), 9, 60.0)
    reader = reader_of(Line([first, without_rows, ReleasedRows(iter([rows(20)]), 20)]))
    created = [[each.created for each in reader.read(2, now_s)] for now_s in (100.0, 101.0, 102.0, 103.0)]
    assert created == [[50.0], [50.0, 50.0], [60.0], [103.0, 103.0]]


def test_small_batches_are_put_together_and_large_ones_are_not() -> None:
    split = split_of(PushedSource({"text": bytes}))
    large = pa.record_batch({"text": pa.array([b"x" * PIECE_BYTES], pa.binary())})
    small = pa.record_batch({"text": pa.array([b"x"], pa.binary())})
    split.attach(Line([ReleasedRows(iter([small, small, large, large, small]))], has_ended=True))
    sizes = []
    while not split.ended:
        piece = split.read(1000)
        assert piece is not None
        sizes.append(piece.rows.num_rows)
    assert sizes == [3, 1, 1]


def test_time_stands_still_inside_a_micro_batch() -> None:
    reader = reader_of(Line([released([50], [90, 20], [40]), released([95])]))
    assert told(reader.read(2, 0.0)) == [2]
    assert told(reader.read(1, 0.0)) == [1]
    assert told(reader.read(9, 0.0)) == [1, "90"]
    assert told(reader.read(9, 0.0)) == [1, "95"]


def test_a_split_that_got_no_rows_still_hears_how_far_the_others_are() -> None:
    line = Line([released(reached_ms=70), released([60], reached_ms=80)])
    reader = reader_of(line)
    assert told(reader.read(9, 0.0)) == ["70"]
    assert told(reader.read(9, 0.0)) == [1, "80"]
    line.has_ended = True
    assert told(reader.read(9, 0.0)) == [str(END)]


def test_idleness_does_not_begin_inside_a_micro_batch() -> None:
    class Stuttering(PushedSplit):
        """Gives half of a micro-batch, then nothing for some time."""

        def read(self, rows_max: int) -> SourceBatch | None:
            return next(pieces)

    pieces = iter([SourceBatch(rows(50), holds_time=True), None, None, SourceBatch(rows(40)), None, None])
    source = PushedSource(COLUMNS, time="t", idle_after="1s")
    reader = SourceReader(source, Stuttering(source.schema, 0), "j/s.source/0", "j/s/0", watermark_every_ms=1)
    assert [told(reader.read(9, float(now))) for now in range(6)] == [[1], [], [], [1, "50"], [], ["50 idle"]]


def test_news_of_time_ends_idleness() -> None:
    line = Line([released([10])])
    reader = reader_of(line, idle_after="1s")
    assert [told(reader.read(9, float(now))) for now in range(3)] == [[1, "10"], [], ["10 idle"]]
    line.waiting.append(released(reached_ms=30))
    assert told(reader.read(9, 3.0)) == ["10", "30"]


def test_a_bounded_source_ends_when_all_is_read() -> None:
    line = Line([released([1])], has_ended=True)
    split = split_of(PushedSource(COLUMNS, is_bounded=True))
    split.attach(line)
    assert split.read(9) is not None
    assert split.ended
    assert split.read(9) is None


def test_dictionaries_are_refused() -> None:
    with pytest.raises(FlowError, match=r"the column 'word'.*type of its values"):
        PushedSource(pa.schema([("word", pa.list_(pa.dictionary(pa.int32(), pa.string())))]))
