"""Sinks that commit with snapshots and break one promise each, and the sentence with which the check tells of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.testing import check_sink


class GoodCommitter(dg.Writer):
    """Keeps all promises: a file of lines per snapshot, hidden behind a dot. The others change one thing."""

    def __init__(self, folder: Path, partition: int) -> None:
        self.folder, self.partition = folder, partition
        self.lines, self.number, self.is_over = "", 0, False
        self.generation: int | None = None
        self.pending: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.lines += "".join(json.dumps(row) + "\n" for row in batch.to_pylist())

    def flush(self) -> None:
        """Visible at the end, or with a commit."""

    def close(self) -> None:
        if self.generation is None and not self.is_over:
            self.show(self.hide())
        self.is_over = True

    def hide(self) -> str:
        hidden = f".{self.partition}-{self.number}.{self.generation}"
        (self.folder / hidden).write_text(self.lines)
        self.lines, self.number = "", self.number + 1
        return hidden

    def show(self, hidden: str) -> None:
        if (self.folder / hidden).exists():
            (self.folder / hidden).rename(self.folder / f"{hidden[1:].split('.')[0]}.jsonl")

    def abandon(self) -> None:
        for hidden in self.pending:
            (self.folder / hidden).unlink(missing_ok=True)

    def hold_back(self, generation: int) -> None:
        self.generation = generation

    def cut(self) -> Any:
        if self.lines:
            self.pending.append(self.hide())
        return {"hidden": list(self.pending), "number": self.number}

    def commit(self, cut: Any) -> None:
        for hidden in cut["hidden"]:
            self.show(hidden)
            if hidden in self.pending:
                self.pending.remove(hidden)

    def resume(self, cut: Any) -> None:
        self.commit(cut)
        self.number = cut["number"]

    def let_go(self) -> None:
        """Nothing is open."""


class Committing(dg.Sink):
    delivery: ClassVar[Any] = "exactly once"
    writer: type[GoodCommitter] = GoodCommitter

    def __init__(self, folder: Path) -> None:
        super().__init__("mine")
        self.folder = folder / "out"

    @property
    def place(self) -> Path:
        return self.folder

    def prepare(self, schema: pa.Schema) -> None:
        if self.folder.exists() and list(self.folder.iterdir()):
            raise dg.FlowError(f"{self.name}: there are results in '{self.folder}'; choose another folder.")
        self.folder.mkdir(exist_ok=True)

    def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
        return self.writer(self.folder, partition)


def read_back(sink: dg.Sink) -> Iterator[dict[str, Any]]:
    for file in cast(Committing, sink).folder.glob("[!.]*"):
        yield from map(json.loads, file.read_text().splitlines())


class ShownAtTheCut(GoodCommitter):
    def cut(self) -> Any:
        cut = super().cut()
        self.commit(cut)
        return cut


class ShownAtOnce(GoodCommitter):
    """Never holds anything back."""

    def flush(self) -> None:
        if self.lines:
            self.show(self.hide())


class ShownAtTheEnd(GoodCommitter):
    """Does not wait for the last commit."""

    def close(self) -> None:
        if self.lines:
            self.show(self.hide())
        super().close()


class OnlyTheLast(GoodCommitter):
    """A cut names what came since the cut before, which may never be committed."""

    def cut(self) -> Any:
        self.pending = []
        return super().cut()


class CommittedOnce(GoodCommitter):
    def show(self, hidden: str) -> None:
        (self.folder / hidden).rename(self.folder / f"{hidden[1:].split('.')[0]}.jsonl")


class CommitsWhatItHas(GoodCommitter):
    """And not what the cut says, so another process can commit nothing."""

    def commit(self, cut: Any) -> None:
        for hidden in self.pending:
            self.show(hidden)
        self.pending = []


class CommitsTooMuch(GoodCommitter):
    """Also what came after the cut."""

    def commit(self, cut: Any) -> None:
        super().commit(self.cut())
        super().commit(cut)


class AddsAgain(GoodCommitter):
    """Adds the rows of a cut to a file of its partition, each time."""

    def show(self, hidden: str) -> None:
        if (self.folder / hidden).exists():
            with (self.folder / f"{self.partition}.jsonl").open("a") as file:
                file.write((self.folder / hidden).read_text())

    def abandon(self) -> None:
        self.pending = []


class FromTheBeginning(GoodCommitter):
    """Its numbers start again, so it replaces what is visible."""

    def resume(self, cut: Any) -> None:
        self.commit(cut)


class NotCommittedYet(GoodCommitter):
    """Takes the cut for committed."""

    def resume(self, cut: Any) -> None:
        self.number = cut["number"]


class AfterTheCut(GoodCommitter):
    """Shows what the lost writer had prepared after the cut."""

    def resume(self, cut: Any) -> None:
        for file in self.folder.glob(f".{self.partition}-*"):
            self.show(file.name)
        super().resume(cut)


class OneGeneration(GoodCommitter):
    """A writer that was given up writes to the same files as the new one."""

    def hold_back(self, generation: int) -> None:
        self.generation = 0


class LetsGoOfAll(GoodCommitter):
    def let_go(self) -> None:
        self.abandon()


class ShownWhenAbandoned(GoodCommitter):
    def abandon(self) -> None:
        for hidden in self.pending:
            self.show(hidden)


class NoPlainData(GoodCommitter):
    def cut(self) -> Any:
        return super().cut() | {"folder": self.folder}


class Tuples(GoodCommitter):
    """They come back as lists."""

    def cut(self) -> Any:
        return super().cut() | {"place": (self.partition, self.number)}


class Unsynced(GoodCommitter):
    def sync(self, cut: Any) -> None:
        raise OSError("the disk is full")


class FailingCommit(GoodCommitter):
    def commit(self, cut: Any) -> None:
        raise KeyError("cut")


class NoCut(GoodCommitter):
    def cut(self) -> None:
        return None


_ROW_ONCE = "does not have each row once"
WRONG: dict[type[GoodCommitter], str] = {
    ShownAtTheCut: f"{_ROW_ONCE} before the first snapshot is committed: 0 missing",
    ShownAtOnce: f"{_ROW_ONCE} before the first snapshot: 0 missing",
    ShownAtTheEnd: f"{_ROW_ONCE} before the last snapshot is committed: 0 missing",
    OnlyTheLast: f"{_ROW_ONCE} when only the last of several snapshots is committed: 8 missing",
    CommittedOnce: "cannot commit a snapshot: FileNotFoundError",
    CommitsWhatItHas: f"{_ROW_ONCE} once it went on from a snapshot, with more written before: 4 missing",
    CommitsTooMuch: f"{_ROW_ONCE} once a snapshot is committed: 0 missing .* 2 too many",
    AddsAgain: f"{_ROW_ONCE} once a snapshot is committed twice: 0 missing",
    FromTheBeginning: f"{_ROW_ONCE} after a snapshot of the writer that went on: 2 missing",
    NotCommittedYet: f"{_ROW_ONCE} once it went on from a snapshot, with more written before: 4 missing",
    AfterTheCut: f"{_ROW_ONCE} once it went on from a snapshot, with more written before: 0 missing",
    OneGeneration: f"{_ROW_ONCE} when a writer that was given up goes on",
    LetsGoOfAll: rf"{_ROW_ONCE} after let_go\(\) and a new beginning: 2 missing",
    ShownWhenAbandoned: f"{_ROW_ONCE} of a job with snapshots that was cancelled: 0 missing",
    NoPlainData: "has a cut that is no plain data",
    Tuples: r"has a cut that is no plain data: it was .*\(0, 1\)",
    Unsynced: "cannot bring a cut to the disk: OSError: the disk is full",
    FailingCommit: "cannot commit a snapshot: KeyError: 'cut'",
    NoCut: r"promises 'exactly once', and its writers have no cut\(\) to commit",
}


def of(writer: type[GoodCommitter]) -> type[Committing]:
    return type("Wrong", (Committing,), {"writer": writer})


def test_a_sink_that_commits_passes() -> None:
    check_sink(Committing, read_back, takes_any_columns=False)
    check_sink(Committing, takes_any_columns=False)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_broken_promise_is_told_in_one_sentence(wrong: type[GoodCommitter]) -> None:
    with pytest.raises(AssertionError, match=f"^[^\n]*{WRONG[wrong]}[^\n]*$"):
        check_sink(of(wrong), read_back, takes_any_columns=False)


def test_a_sink_that_commits_says_so() -> None:
    class Modest(Committing):
        delivery = "at least once"

    with pytest.raises(AssertionError, match="promises 'at least once'; set delivery to 'exactly once'"):
        check_sink(Modest, read_back, takes_any_columns=False)


def test_all_that_a_cut_names_is_brought_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name))
    for sink in (dg.to_parquet(tmp_path / "out"), dg.to_json_lines(tmp_path / "out")):
        synced.clear()
        schema = pa.schema([("n", pa.int64())])
        writer = sink.open(schema, 3)
        writer.hold_back(0)
        writer.write(pa.record_batch({"n": [1, 2]}, schema))
        cut = writer.cut()
        assert synced == [], "a barrier waits for no disk"
        writer.sync(cut)
        (hidden,) = [file.name for file in (tmp_path / "out").glob(".part*")]
        assert synced == [hidden, "out"]
        writer.commit(cut)
        assert synced == [hidden, "out"]
        cut = writer.cut()
        writer.sync(cut)  # the rename
        assert synced == [hidden, "out", "out"]
        writer.commit(cut)
        cut = writer.cut()
        writer.sync(cut)
        writer.commit(cut)
        assert synced == [hidden, "out", "out"], "nothing has changed since"
        again = sink.open(schema, 3)
        again.hold_back(1)
        again.resume(cut)
        assert len(synced) == 3
        writer.write(pa.record_batch({"n": [3]}, schema))
        cut = writer.cut()
        again.resume(cut)
        again.sync(again.cut())  # the rename of one that was lost before it came to that
        assert synced == [hidden, "out", "out", "out"]
