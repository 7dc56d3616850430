"""The streams that queries read: every event once, only the columns asked for, as ordered as they claim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.errors import FlowError
from dirigo.flow.sources import Source
from dirigo.nexmark import Generator, auctions, bids, persons
from dirigo.nexmark.schemas import AUCTION, BID, PERSON
from dirigo.nexmark.sources import EventSource
from dirigo_lab.nexmark import GeneratedTables, ParquetTables
from dirigo_lab.nexmark.events import write_events

MakeSource = Callable[..., EventSource]
SOURCES: list[tuple[MakeSource, str, pa.Schema]] = [
    (persons, "persons", PERSON),
    (auctions, "auctions", AUCTION),
    (bids, "bids", BID),
]


def read(source: Source, wanted: int = 1, rows_max: int = 4096) -> list[pa.Table]:
    """What each split gives, read to its end."""
    found = []
    for split in source.splits(wanted):
        batches = []
        while not split.ended:
            piece = split.read(rows_max)
            if piece is not None:
                assert not piece.bad
                assert piece.rows.num_rows <= rows_max
                batches.append(piece.rows)
        found.append(pa.Table.from_batches(batches, source.schema))
    return found


@pytest.mark.parametrize(("make", "method", "schema"), SOURCES)
def test_a_source_gives_what_the_generator_gives(make: MakeSource, method: str, schema: pa.Schema) -> None:
    source = make(12_345, 700)
    assert source.schema == schema
    assert source.time == "date_time"
    assert source.is_bounded
    (found,) = read(source)
    expected = getattr(Generator(rate=700), method)(0, 12_345)
    assert found.equals(pa.Table.from_batches([expected]))


@settings(max_examples=40, deadline=None)
@given(
    which=st.sampled_from(SOURCES),
    events=st.integers(0, 3_000),
    wanted=st.integers(1, 5),
    block=st.integers(50, 700),
    group=st.sampled_from([1, 7, 100, 333]),
    rows_max=st.integers(1, 600),
)
def test_splits_cover_every_event_once_and_are_as_ordered_as_the_source_says(
    which: tuple[MakeSource, str, pa.Schema], events: int, wanted: int, block: int, group: int, rows_max: int
) -> None:
    make, method, _ = which
    source = make(events, 300, ["event_number", "date_time"], out_of_order_group=group, block_events=block)
    splits = read(source, wanted, rows_max)
    assert 1 <= len(splits) <= wanted
    generator = Generator(rate=300, out_of_order_group=group)
    expected = getattr(generator, method)(0, events, ["event_number"]).column("event_number").to_pylist()
    found = [number for split in splits for number in split["event_number"].to_pylist()]
    assert sorted(found) == sorted(expected)
    for split in splits:
        times = split["date_time"].combine_chunks().cast(pa.int64()).to_numpy()
        if len(times):
            assert (np.maximum.accumulate(times) - times).max() <= source.out_of_orderness_ms


def test_splits_move_through_event_time_together() -> None:
    source = bids(30_000, 1_000, ["event_number"], block_events=1_000)
    splits = source.splits(3)
    for step in range(10):
        numbers = []
        for split in splits:
            piece = split.read(4096)
            assert piece is not None
            numbers += piece.rows.column("event_number").to_pylist()
        # Three blocks of a thousand events each, side by side.
        assert min(numbers) // 1_000 == 3 * step
        assert max(numbers) // 1_000 == 3 * step + 2
    assert all(split.ended for split in splits)


def test_only_the_columns_asked_for_come_and_in_that_order() -> None:
    source = bids(5_000, columns=["price", "auction"])
    assert source.schema.names == ["price", "auction"]
    assert source.time is None
    (found,) = read(source)
    everything = Generator().bids(0, 5_000)
    assert found["price"].combine_chunks().equals(everything.column("price"))
    assert found["auction"].combine_chunks().equals(everything.column("auction"))


@pytest.mark.parametrize("columns", [(), ("seller", "date_time", "id"), ("category",)])
def test_files_and_the_generator_give_the_same_rows(columns: tuple[str, ...], tmp_path: Path) -> None:
    write_events(Generator(rate=500), 4_000, tmp_path)
    generated, stored = GeneratedTables(4_000, 500).auctions(*columns), ParquetTables(tmp_path).auctions(*columns)
    assert generated.schema == stored.schema
    assert generated.time == stored.time
    assert read(generated)[0].equals(read(stored)[0])


def test_all_three_kinds_can_be_read_from_files(tmp_path: Path) -> None:
    write_events(Generator(), 1_000, tmp_path)
    tables = ParquetTables(tmp_path)
    assert [read(source)[0].num_rows for source in (tables.persons(), tables.auctions(), tables.bids())] == [20, 60, 920]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: bids(100, 1_000_001), "choose a rate from 1 to 1,000,000"),
        (lambda: bids(-1), "bids: -1 events were asked for; ask for 0 or more"),
        (lambda: persons(100, columns=["price"]), "price"),
        (lambda: persons(100, block_events=49), "a block of 49 events may hold no persons"),
        (lambda: ParquetTables(Path("nowhere")).bids(), "there is no file or folder 'nowhere/bid'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_one_sentence(make: Callable[[], Source], sentence: str) -> None:
    with pytest.raises(FlowError) as caught:
        make()
    assert sentence in str(caught.value)
