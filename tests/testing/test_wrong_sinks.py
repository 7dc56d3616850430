"""Sinks that break one promise each, and the sentence with which the check tells of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.testing import check_sink


class Good(dg.Sink):
    """Keeps all promises: a file of lines per partition, visible when it is complete. The others change one thing."""

    def __init__(self, folder: Path) -> None:
        super().__init__("mine")
        self.folder = folder / "out"

    @property
    def place(self) -> Path | str | None:
        return self.folder

    def prepare(self, schema: pa.Schema) -> None:
        for field in schema:
            if field.type not in (pa.int64(), pa.string()):
                raise dg.FlowError(f"{self.name}: the column '{field.name}' is neither a number nor text; cast or drop it.")
        if self.folder.exists() and list(self.folder.iterdir()):
            raise dg.FlowError(f"{self.name}: there are results in '{self.folder}'; choose another folder.")
        self.folder.mkdir(exist_ok=True)

    def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
        return GoodWriter(self.folder / f"{partition}.jsonl")


class GoodWriter(dg.Writer):
    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.is_over = path, "", False

    def write(self, batch: pa.RecordBatch) -> None:
        self.lines += "".join(json.dumps(row) + "\n" for row in batch.to_pylist())

    def flush(self) -> None:
        """Visible at the end."""

    def close(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.path.write_text(self.lines)

    def abandon(self) -> None:
        self.is_over = True


def read_back(sink: dg.Sink) -> Iterator[dict[str, Any]]:
    assert isinstance(sink, Good)
    for file in sink.folder.iterdir():
        yield from map(json.loads, file.read_text().splitlines())


def of(writer: type[GoodWriter]) -> Callable[[Path], dg.Sink]:
    """A sink that is good but for its writers."""

    class Wrong(Good):
        def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
            return writer(self.folder / f"{partition}.jsonl")

    return Wrong


def test_a_good_sink_passes() -> None:
    check_sink(Good, read_back)
    check_sink(Good)


class Losing(GoodWriter):
    def close(self) -> None:
        self.lines = self.lines.partition("\n")[2]
        super().close()


class Doubling(GoodWriter):
    def close(self) -> None:
        self.lines += self.lines[: self.lines.find("\n") + 1]
        super().close()


class ClosedOnce(GoodWriter):
    def close(self) -> None:
        if self.is_over:
            raise ValueError("it is closed")
        super().close()


class ClosingAddsMore(GoodWriter):
    def close(self) -> None:
        with self.path.open("a") as file:
            file.write(self.lines)


class HalfVisible(GoodWriter):
    """A line that is cut off is visible after a cancellation."""

    def abandon(self) -> None:
        if not self.is_over:
            self.path.write_text(self.lines[:10])


class HoldingFiles(GoodWriter):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.file = path.with_suffix(".other").open("w")
        _KEPT.append(self.file)

    def close(self) -> None:
        self.file.close()
        self.path.with_suffix(".other").unlink(missing_ok=True)
        super().close()


class NoAbandon(GoodWriter):
    def abandon(self) -> None:
        raise ValueError("never")


class Negative(GoodWriter):
    def held_bytes(self) -> int:
        return -1


class Refusing(GoodWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        raise KeyError("row")


class Forgetting(GoodWriter):
    """It keeps only what was written last."""

    def write(self, batch: pa.RecordBatch) -> None:
        self.lines = ""
        super().write(batch)


class OneFile(Good):
    """All partitions write to one file."""

    def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
        return GoodWriter(self.folder / "all.jsonl")


class Early(Good):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder.mkdir(exist_ok=True)


class Locked(Good):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lock = threading.Lock()


class NoPlace(Good):
    @property
    def place(self) -> None:
        return None


class OnePlace(Good):
    @property
    def place(self) -> str:
        return "results"


class OtherPlace(Good):
    made = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        OtherPlace.made += 1
        self.number = OtherPlace.made

    @property
    def place(self) -> str:
        return f"results {self.number}"


class Unprepared(Good):
    """Needs what `prepare` noted, and a worker has never heard of it."""

    noted = ""

    def prepare(self, schema: pa.Schema) -> None:
        super().prepare(schema)
        self.noted = "0123456789"

    def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
        return GoodWriter(self.folder / f"{self.noted[partition]}.jsonl")


class NoWriter(Good):
    def open(self, schema: pa.Schema, partition: int) -> Any:
        return None


class UnreadableEmpty(Good):
    """Without rows there is no folder."""

    def prepare(self, schema: pa.Schema) -> None:
        super().prepare(schema)
        self.folder.rmdir()

    def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
        return MakingFolders(self.folder / f"{partition}.jsonl")


class MakingFolders(GoodWriter):
    def close(self) -> None:
        if self.lines:
            self.path.parent.mkdir(exist_ok=True)
            super().close()


class Overwriting(Good):
    def prepare(self, schema: pa.Schema) -> None:
        if self.folder.exists():
            for file in self.folder.iterdir():
                file.unlink()
        super().prepare(schema)


class RefusingTooLate(Overwriting):
    """Earlier results are gone, and then it says no."""

    def prepare(self, schema: pa.Schema) -> None:
        had_any = self.folder.exists() and bool(list(self.folder.iterdir()))
        super().prepare(schema)
        if had_any:
            raise dg.FlowError("there were results; choose another folder.")


class Careless(Good):
    """Takes columns that it cannot write."""

    def prepare(self, schema: pa.Schema) -> None:
        self.folder.mkdir(exist_ok=True)
        if list(self.folder.iterdir()):
            raise dg.FlowError("there are results; choose another folder.")


class Rough(Good):
    """Refuses columns, but with no sentence."""

    def prepare(self, schema: pa.Schema) -> None:
        if schema.types[0] == pa.bool_():
            raise KeyError("bool")
        super().prepare(schema)


class Swallowing(Good):
    """Takes any column, and leaves out rows that it cannot write."""

    def prepare(self, schema: pa.Schema) -> None:
        if self.folder.exists() and list(self.folder.iterdir()):
            raise dg.FlowError("there are results; choose another folder.")
        self.folder.mkdir(exist_ok=True)

    def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
        return SwallowingWriter(self.folder / f"{partition}.jsonl")


class SwallowingWriter(GoodWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        if batch.schema.names != ["value"]:
            super().write(batch)


class Nulling(Swallowing):
    """Takes any column, and writes null for values that it cannot write."""

    def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
        return NullingWriter(self.folder / f"{partition}.jsonl")


class NullingWriter(GoodWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        if batch.schema.names == ["value"]:
            batch = pa.record_batch({"value": pa.nulls(batch.num_rows, pa.string())})
        super().write(batch)


def as_text(sink: dg.Sink) -> pa.Table:
    rows = [{name: str(value) for name, value in row.items()} for row in read_back(sink)]
    return pa.Table.from_pylist(rows, pa.schema([("n", pa.string()), ("text", pa.string())]))


_KEPT: list[Any] = []
WRONG: dict[str, tuple[Callable[[Path], Any], str, dict[str, Any]]] = {
    "no sink": (lambda _: GoodWriter(Path()), "is no Sink but", {}),
    "touches its place at once": (Early, "touches its place before it is prepared", {}),
    "cannot be pickled": (Locked, "cannot be pickled .*it travels to the workers", {}),
    "no place": (NoPlace, "refuses earlier results but names no place, so two jobs could run there at once", {}),
    "one place for all": (OnePlace, "calls two places 'results', so that one job would have to wait", {}),
    "never the same place": (OtherPlace, "calls its place 'results .*', and when it is made again 'results", {}),
    "needs what prepare noted": (Unprepared, "cannot be opened: IndexError", {}),
    "no writer": (NoWriter, "is opened with None, which is no Writer", {}),
    "one file for all partitions": (OneFile, "does not have each row once at the end: .* missing", {}),
    "raises": (of(Refusing), "cannot be written to: KeyError: 'row'", {}),
    "loses rows": (of(Losing), "does not have each row once at the end: 3 missing", {}),
    "doubles rows": (of(Doubling), "does not have each row once at the end: 0 missing .* 3 too many", {}),
    "keeps only the last batch": (of(Forgetting), "does not have each row once at the end: 18 missing", {}),
    "not at once": (Good, "does not have each row once after each batch: 2 missing", {"shows_at_once": True}),
    "closed once": (of(ClosedOnce), r"cannot have close\(\) called twice: ValueError: it is closed", {}),
    "closing adds more": (of(ClosingAddsMore), "does not have each row once at the end: 0 missing", {}),
    "held bytes": (of(Negative), "says that it holds -1 bytes", {}),
    "cannot be abandoned": (of(NoAbandon), r"cannot be abandoned after close\(\): ValueError: never", {}),
    "half of a result": (of(HalfVisible), "cannot have its results read after its job was cancelled: JSONDecodeError", {}),
    "leaves files open": (of(HoldingFiles), "open after its writers were told to abandon their work", {}),
    "no empty result": (UnreadableEmpty, "cannot have its results read of a job without rows: FileNotFoundError", {}),
    "takes earlier results": (Overwriting, "takes a place with earlier results and is said to be one that refuses them", {}),
    "refuses earlier results": (
        Good,
        "and is said to be one that replaces them",
        {"again": "replaces"},
    ),
    "replaces instead of adding": (
        Overwriting,
        "each row once of a second job, which adds",
        {"again": "adds"},
    ),
    "refuses too late": (RefusingTooLate, "does not have each row once after a second job was refused: 24 missing", {}),
    "other types": (Good, "has the column 'n' as string, at the end, and was given int64", {"read_back": as_text}),
    "cannot write what it takes": (Careless, r"a column of .* is taken by prepare\(\) and cannot be written", {}),
    "refuses without a sentence": (Rough, r"a column of bool makes prepare\(\) raise KeyError instead of a DirigoError", {}),
    "drops what it cannot write": (Swallowing, r"a column of .* is taken by prepare\(\), but of 2 rows 0 come back", {}),
    "forgets what it cannot write": (
        Nulling,
        r"a column of .* is taken by prepare\(\), but its values come back as null",
        {},
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_broken_promise_is_told_in_one_sentence(wrong: str) -> None:
    make_sink, sentence, options = WRONG[wrong]
    try:
        with pytest.raises(AssertionError, match=f"^[^\n]*{sentence}[^\n]*$"):
            check_sink(make_sink, **{"read_back": read_back, **options})
    finally:
        while _KEPT:
            _KEPT.pop().close()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(dg.DirigoError, match="again= is one of refuses, replaces, adds, not 'perhaps'"):
        check_sink(Good, again="perhaps")  # type: ignore[arg-type]
    with pytest.raises(dg.DirigoError, match="needs at least 12 rows, not 1"):
        check_sink(Good, rows=[{"n": 1, "text": "x"}])
