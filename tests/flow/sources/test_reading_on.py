"""Every source that can be read again: however reads are cut, each row comes once, before the position or behind it."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dirigo as dg
from dirigo.flow.event_time.watermark import Watermark
from dirigo.flow.sources.files import line_blocks
from dirigo.flow.sources.reader import SourceReader
from dirigo.nexmark.sources import bids

ROWS = [{"n": n, "at": n * 10} for n in range(60)]
SCHEMA = {"n": int, "at": int}


def made(first: int, count: int) -> list[dict[str, Any]]:
    return [{"n": "x" if n % 5 == 3 else n, "at": n * 10} for n in range(first, first + count)]


def mixed() -> list[Any]:
    """Rows, tables in several pieces, and an empty one."""
    tables = [pa.Table.from_pylist(ROWS[start : start + 12]) for start in (5, 17)]
    return [*ROWS[:5], pa.concat_tables(tables), *made(29, 9), pa.Table.from_pylist(ROWS[:0], tables[0].schema), *ROWS[38:]]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_blocks, "BLOCK_BYTES", 100)  # so that a file has many blocks
        for kind in ("csv", "jsonl", "gz", "parquet"):
            (Path(path) / kind).mkdir()
        for number in range(2):
            rows = made(number * 30, 30)
            lines = "".join(f"{row['n']},{row['at']}\n" for row in rows)
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (Path(path) / "csv" / f"{number}.csv").write_text("\ufeffn,at\n\n" + lines)
            (Path(path) / "jsonl" / f"{number}.jsonl").write_text(text[:-1])
            (Path(path) / "gz" / f"{number}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
            table = pa.Table.from_pylist(ROWS[number * 30 : number * 30 + 30])
            pq.write_table(table, Path(path) / "parquet" / f"{number}.parquet", row_group_size=8)
        yield Path(path)


SOURCES: dict[str, Callable[[Path], dg.Source]] = {
    "generator": lambda _: dg.from_generator(made, SCHEMA, 60, block=7),
    "nexmark": lambda _: bids(80, block_events=50),
    "list": lambda _: dg.from_iterable(mixed(), SCHEMA),
    "function": lambda _: dg.from_iterable(lambda: iter(mixed()), SCHEMA),
    "csv": lambda folder: dg.from_csv(folder / "csv", SCHEMA),
    "json_lines": lambda folder: dg.from_json_lines(folder / "jsonl", SCHEMA),
    "compressed": lambda folder: dg.from_json_lines(folder / "gz", SCHEMA),
    "parquet": lambda folder: dg.from_parquet(folder / "parquet"),
    "paced": lambda _: dg.paced(dg.from_generator(made, SCHEMA, 60, block=7, time="at"), speed=10),
    "shaped": lambda _: dg.shaped(dg.from_generator(made, SCHEMA, 60, block=7), dg.loads.square(5, 50, period="1s")),
}


class Reading:
    """A split that is read on a clock that goes on a little with each read."""

    def __init__(self, source: dg.Source, now_s: float = 0.0) -> None:
        (self.split,) = source.splits(1)
        self.split.clock = lambda: self.now_s
        self.now_s = now_s
        self.good: list[Any] = []
        self.bad: list[dg.BadRow] = []
        self.due: list[float | None] = []

    def read(self, rows_max: int) -> None:
        self.now_s += 0.05
        found = self.split.read(rows_max)
        if found is not None:
            self.good += found.rows.to_pylist()
            self.bad += found.bad
            self.due.append(found.due_s)

    def to_the_end(self) -> Reading:
        while not self.split.ended:
            self.read(9)
        return self


@pytest.mark.parametrize("kind", SOURCES)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.lists(st.integers(1, 11), max_size=8), min_size=1, max_size=3))
def test_whatever_reads_there_are_before_a_position_the_rest_comes_behind_it(
    folder: Path, kind: str, pieces: list[list[int]]
) -> None:
    source = SOURCES[kind](folder)
    whole = Reading(source).to_the_end()
    good: list[Any] = []
    bad: list[dg.BadRow] = []
    now_s, position = 0.0, None
    for sizes in [*pieces, None]:  # with a loss behind each piece but the last
        reading = Reading(source, now_s)
        if position is not None:
            reading.split.seek(msgspec.msgpack.decode(msgspec.msgpack.encode(position)))
        for size in sizes or ():
            if not reading.split.ended:
                reading.read(size)
        if sizes is None:
            reading.to_the_end()
        good += reading.good
        bad += reading.bad
        now_s, position = reading.now_s, reading.split.position()
        reading.split.close()
    assert good == whole.good
    assert bad == whole.bad


@pytest.mark.parametrize("kind", ["paced", "shaped"])
def test_rows_that_were_due_while_nobody_read_are_due_at_once_and_the_rest_when_they_would_have_been(
    folder: Path, kind: str
) -> None:
    first = Reading(SOURCES[kind](folder))
    for _ in range(6):
        first.read(3)
    later = Reading(SOURCES[kind](folder), now_s=first.now_s + 30.0)
    later.split.seek(first.split.position())
    given = len(first.good) + len(first.bad)
    later.read(1000)
    later.read(1000)
    assert later.due[0] is not None
    assert later.due[0] <= first.now_s + 1.0, "they are as late as they are"
    later.to_the_end()
    assert given + len(later.good) + len(later.bad) == 60
    assert later.now_s < first.now_s + 40.0, "all was due by then, and the pace has not begun anew"


@pytest.mark.parametrize("kind", ["function", "compressed", "parquet"])
def test_a_source_that_is_on_its_way_to_its_position_is_not_idle(kind: str, tmp_path: Path) -> None:
    """Or the others would not wait for it, and its rows would be late."""

    def reader() -> SourceReader:
        (split,) = source.splits(1)
        return SourceReader(source, split, "rows.source/0", "rows/0", 0)

    source = late_sources(kind, tmp_path)
    first = reader()
    while first.rows < 8_000:
        first.read(100, 0.0)
    again = reader()
    again.restore(first.capture())
    again.split.read_for_s = 0.0  # it takes several reads to come there
    told: list[Any] = []
    for now_s in range(10_000):
        told += again.read(100, float(now_s))
        if again.rows > first.rows:
            break
    assert now_s > 3
    assert again.rows > first.rows
    assert not [each.payload for each in told if isinstance(each.payload, Watermark) and each.payload.is_idle]


def test_a_load_that_was_over_before_its_source_was_back_is_released_all_the_same() -> None:
    def numbers() -> Iterator[dict[str, int]]:
        return iter([{"n": n, "at": n} for n in range(1_000)])

    def shaped(now_s: float) -> Reading:
        load = dg.loads.trace([500.0, 500.0], every="1s")
        reading = Reading(dg.shaped(dg.from_iterable(numbers, SCHEMA), load), now_s)
        reading.split.read_for_s = 0.0  # it takes several reads to come there
        return reading

    first = shaped(0.0)
    while len(first.good) < 500:
        first.read(100)
    later = shaped(60.0)
    later.split.seek(first.split.position())
    later.to_the_end()
    assert [row["n"] for row in first.good + later.good] == list(range(1_000))


def late_sources(kind: str, folder: Path) -> dg.Source:
    """Many rows, of which a source says soon that it is idle."""
    rows = [{"n": n, "at": n} for n in range(10_000)]
    if kind == "function":
        return dg.from_iterable(lambda: iter(rows), SCHEMA, time="at", idle_after="1s")
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
        return dg.from_parquet(folder / "rows.parquet", time="at", idle_after="1s")
    lines = "".join(json.dumps(row | {"text": os.urandom(40).hex()}) + "\n" for row in rows)
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 1))
    schema = SCHEMA | {"text": str}
    return dg.from_json_lines(folder / "rows.jsonl.gz", schema, time="at", idle_after="1s")


def read_on(source: dg.Source, position: Any) -> None:
    reading = Reading(source)
    reading.split.seek(position)
    reading.read(5)


def test_files_that_have_changed_since_are_refused_in_a_sentence(tmp_path: Path) -> None:
    text, table = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    text.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), table)
    sources = [dg.from_json_lines(text, SCHEMA), dg.from_parquet(table)]
    positions = []
    for source in sources:
        reading = Reading(source)
        reading.read(5)
        positions.append(reading.split.position())
        reading.split.close()
    with text.open("a") as file:
        file.write('{"n": 99, "at": 0}\n')
    read_on(sources[0], positions[0])  # what is behind may grow
    text.write_text("".join(json.dumps(row) + "\n" for row in ROWS[::-1]))
    pq.write_table(pa.Table.from_pylist(ROWS[1:]), table)
    for source, position in zip(sources, positions, strict=True):
        with pytest.raises(dg.FlowError, match=r"'.*a\..*' has changed since a part of it was read; put it back"):
            read_on(source, position)
    text.write_text("")
    with pytest.raises(dg.FlowError, match="has changed since"):
        read_on(sources[0], positions[0])
    text.unlink()
    table.unlink()
    for source, position in zip(sources, positions, strict=True):
        with pytest.raises(dg.FlowError, match=r"'.*a\..*' (cannot be read|is no readable Parquet file)"):
            read_on(source, position)


def test_a_table_that_was_replaced_by_one_as_large_is_refused(tmp_path: Path) -> None:
    source = dg.from_parquet(_written(tmp_path, ROWS))
    reading = Reading(source)
    reading.read(5)
    size = (tmp_path / "a.parquet").stat().st_size
    read_on(source, reading.split.position())
    _written(tmp_path, [{"n": 59 - row["n"] * 59 // 60, "at": row["at"] + 1} for row in ROWS])
    assert (tmp_path / "a.parquet").stat().st_size == size
    with pytest.raises(dg.FlowError, match=r"'.*a\.parquet' has changed since a part of it was read; put it back"):
        read_on(source, reading.split.position())


def _written(folder: Path, rows: list[dict[str, int]]) -> Path:
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, folder / "a.parquet", use_dictionary=False, compression="none")
    return folder / "a.parquet"


def test_a_folder_in_which_files_have_come_and_gone_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"n": 1, "at": 1}\n')
    reading = Reading(dg.from_json_lines(tmp_path, SCHEMA))
    position = reading.split.position()
    (tmp_path / "a.jsonl").write_text('{"n": 1, "at": 1}\n')
    with pytest.raises(dg.FlowError, match=r"the files have changed since they were read up to '.*b\.jsonl'; put them back"):
        read_on(dg.from_json_lines(tmp_path, SCHEMA), position)


def test_an_iterable_with_fewer_rows_than_before_is_refused() -> None:
    reading = Reading(dg.from_iterable(ROWS))
    reading.read(40)
    with pytest.raises(dg.FlowError, match="it has fewer rows now than were read before row 41; give the same rows"):
        read_on(dg.from_iterable(ROWS[:30]), reading.split.position())
    reading = Reading(dg.from_iterable([pa.Table.from_pylist(ROWS)]))
    reading.read(40)
    for fewer in ([pa.Table.from_pylist(ROWS[:9])], ROWS[:0]):
        with pytest.raises(dg.FlowError, match="it has fewer rows now than were read before row 41"):
            read_on(dg.from_iterable(fewer, SCHEMA), reading.split.position())


def test_what_cannot_be_made_again_is_not_replayable() -> None:
    assert dg.from_iterable(ROWS).is_replayable
    assert not dg.from_iterable(iter(ROWS)).is_replayable
    assert not dg.from_iterable({("a", 1), ("b", 2)}, {"text": str, "n": int}).is_replayable
    assert not dg.paced(dg.from_iterable(iter(ROWS), time="at")).is_replayable
    assert dg.shaped(dg.from_iterable(ROWS), dg.loads.constant(10)).is_replayable
