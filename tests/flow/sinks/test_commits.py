"""File sinks through snapshots, losses and recoveries in any order, beside a list of the rows that must be visible."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from dirigo.flow.errors import OperatorFailure
from dirigo.flow.sinks.sink import Writer

SCHEMA = pa.schema([("n", pa.int64())])
SINKS: dict[str, Callable[[Path], dg.Sink]] = {
    "parquet": lambda folder: dg.to_parquet(folder, rows_per_file=3),
    "json_lines": lambda folder: dg.to_json_lines(folder),
}
STEPS = ("write", "cut", "sync", "commit", "again", "elsewhere", "lost", "let go", "asleep", "awake")


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost with the power here, so nobody need wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def rows_of(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(first, first + count))}, SCHEMA)


def visible(folder: Path) -> list[int]:
    """All rows, in the order of the files' names."""
    rows: list[int] = []
    for file in sorted(folder.glob("part-*")):
        if file.suffix == ".parquet":
            rows += pq.read_table(file).column("n").to_pylist()
        else:
            rows += [json.loads(line)["n"] for line in file.read_text().splitlines()]
    return rows


def hidden(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob(".*"))


class Runs:
    """One partition of a job, its losses, and what must be visible of it."""

    def __init__(self, sink: dg.Sink, folder: Path) -> None:
        self.sink, self.folder = sink, folder
        self.generation = 0
        self.writer = self.open()
        self.next = 0  # row
        self.written: list[int] = []  # by this generation and, before its snapshot, the ones before it
        self.cuts: list[tuple[Any, list[int]]] = []  # that are not committed, with all rows up to each
        self.committed: tuple[Any, list[int]] | None = None
        self.asleep: list[Writer] = []

    def open(self) -> Writer:
        writer = self.sink.open(SCHEMA, 1)
        writer.hold_back(self.generation)
        return writer

    def begin_again(self) -> None:
        self.generation += 1
        self.cuts = []
        self.writer = self.open()
        self.written = []
        if self.committed is not None:
            cut, rows = self.committed
            self.writer.resume(cut)
            self.written = list(rows)

    def step(self, name: str) -> None:
        if name == "write":
            count = self.next % 5
            self.writer.write(rows_of(self.next, count))
            self.writer.flush()
            self.written += range(self.next, self.next + count)
            self.next += count or 1
        elif name == "cut":
            self.cuts.append((self.writer.cut(), list(self.written)))
        elif name == "sync" and self.cuts:
            self.writer.sync(self.cuts[-1][0])
        elif name in ("commit", "elsewhere") and self.cuts:
            self.committed = self.cuts[self.next % len(self.cuts)]
            del self.cuts[: self.cuts.index(self.committed) + 1]
            (self.writer if name == "commit" else self.open()).commit(self.committed[0])
        elif name == "again" and self.committed is not None:
            self.writer.commit(self.committed[0])
        elif name == "lost":
            self.begin_again()
        elif name == "let go":
            self.writer.let_go()
            self.begin_again()
        elif name == "asleep":
            self.asleep.append(self.writer)
            self.begin_again()
        elif name == "awake":
            for writer in self.asleep:
                writer.write(rows_of(-5, 4))
                writer.cut()

    def check(self) -> None:
        assert visible(self.folder) == ([] if self.committed is None else self.committed[1])


@pytest.mark.parametrize("kind", SINKS)
@settings(max_examples=60)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=25))
def test_committed_rows_are_there_once_and_in_order(kind: str, steps: list[str]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name) / "out"
        runs = Runs(SINKS[kind](folder), folder)
        folder.mkdir()
        for step in steps:
            runs.step(step)
            runs.check()
        runs.writer.close()
        runs.check()
        cut = runs.writer.cut()
        runs.check()
        runs.writer.commit(cut)
        assert visible(folder) == runs.written
        assert hidden(folder) == [], "what writers left that were given up goes with the last commit"


@pytest.fixture(params=SINKS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_numbers_go_on_and_leftovers_of_a_lost_generation_go(kind: str, tmp_path: Path) -> None:
    runs = Runs(SINKS[kind](tmp_path), tmp_path)
    runs.next = 1
    for step in ("write", "cut", "commit", "write", "cut"):
        runs.step(step)
    assert len(hidden(tmp_path)) == 1
    runs.step("lost")
    assert hidden(tmp_path) == []
    for step in ("write", "cut", "commit"):
        runs.step(step)
    names = [file.stem for file in sorted(tmp_path.iterdir())]
    assert names == [f"part-1-{number:05}" for number in range(len(names))]
    assert len(names) >= 2


def test_a_generation_without_a_snapshot_to_go_on_from_removes_leftovers_too(kind: str, tmp_path: Path) -> None:
    runs = Runs(SINKS[kind](tmp_path), tmp_path)
    runs.next = 1
    for step in ("write", "cut", "lost", "write"):
        runs.step(step)
    runs.step("cut")
    assert all(".g1-" in name for name in hidden(tmp_path))


def test_a_newer_generation_keeps_what_it_hides_from_an_old_one(kind: str, tmp_path: Path) -> None:
    old = Runs(SINKS[kind](tmp_path), tmp_path)
    new = SINKS[kind](tmp_path).open(SCHEMA, 1)
    new.hold_back(2)
    new.write(rows_of(0, 2))
    cut = new.cut()
    old.next = 1
    for step in ("write", "cut"):  # its first file
        old.step(step)
    old.writer.abandon()
    new.commit(cut)
    assert visible(tmp_path) == [0, 1]


def test_a_cut_without_new_rows_makes_no_file(kind: str, tmp_path: Path) -> None:
    writer = SINKS[kind](tmp_path).open(SCHEMA, 0)
    writer.hold_back(0)
    assert writer.cut() == writer.cut()
    assert list(tmp_path.iterdir()) == []
    writer.write(rows_of(0, 1))
    assert writer.cut() == writer.cut()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_that_its_reader_has_taken_away_is_not_missed(kind: str, tmp_path: Path) -> None:
    sink = SINKS[kind](tmp_path)
    writer = sink.open(SCHEMA, 0)
    writer.hold_back(0)
    writer.write(rows_of(0, 1))
    cut = writer.cut()
    writer.commit(cut)
    for file in tmp_path.iterdir():
        file.unlink()
    again = sink.open(SCHEMA, 0)
    again.hold_back(1)
    again.resume(cut)
    again.write(rows_of(1, 1))
    again.commit(again.cut())
    assert visible(tmp_path) == [1]
    assert [file.stem for file in tmp_path.iterdir()] == ["part-0-00001"], "names tell the order, whatever is missing"


def test_no_two_writers_of_a_partition_share_a_file(kind: str, tmp_path: Path) -> None:
    """Not even of one generation: a savepoint begins a new job with generation 0."""
    sink = SINKS[kind](tmp_path)
    for _ in range(2):
        writer = sink.open(SCHEMA, 0)
        writer.hold_back(0)
        writer.write(rows_of(0, 1))
        writer.cut()
    assert len(hidden(tmp_path)) == 2


def test_an_empty_result_leaves_one_file_once_it_is_committed(kind: str, tmp_path: Path) -> None:
    sink = SINKS[kind](tmp_path)
    writers = [sink.open(SCHEMA, partition) for partition in range(2)]
    for writer in writers:
        writer.hold_back(0)
        writer.close()
    cuts = [writer.cut() for writer in writers]
    assert not list(tmp_path.glob("part*"))
    for writer, cut in zip(writers, cuts, strict=True):
        writer.commit(cut)
    assert [file.stem for file in tmp_path.iterdir()] == ["part-0-00000"]


def test_cuts_of_a_job_that_shows_its_rows_go_on_too(kind: str, tmp_path: Path) -> None:
    """A savepoint of a job without snapshots."""
    sink = SINKS[kind](tmp_path)
    writer = sink.open(SCHEMA, 0)
    writer.write(rows_of(0, 2))
    writer.flush()
    cut = writer.cut()
    assert visible(tmp_path) == [0, 1]
    writer.let_go()
    again = sink.open(SCHEMA, 0)
    again.resume(cut)
    again.write(rows_of(2, 2))
    again.close()
    assert visible(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", SINKS)
def test_rows_that_did_not_come_to_the_disk_are_not_taken_for_safe_later(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells of lost pages once: whoever asks again is told that all is well."""
    writer = SINKS[kind](tmp_path).open(SCHEMA, 0)
    writer.hold_back(0)
    writer.write(rows_of(0, 2))
    cut = writer.cut()

    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(OperatorFailure, match="input/output error"):
            writer.sync(cut)
    with pytest.raises(OperatorFailure, match="input/output error"):
        writer.cut()
