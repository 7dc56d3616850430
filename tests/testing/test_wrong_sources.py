"""Sources that break one promise each, and the sentence with which the check tells of it."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.testing import check_source

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.int64())])
ROWS = [{"n": n, "at": n * 10} for n in range(20)]


class Good(dg.Source):
    """Keeps all promises; the others change one thing."""

    out_of_order = "0ms"
    bounded = True

    def __init__(self) -> None:
        super().__init__(SCHEMA, name="mine", is_bounded=self.bounded, time="at", out_of_orderness=self.out_of_order)

    def splits(self, wanted: int) -> Sequence[dg.Split]:
        return [self.split(ROWS[number::wanted]) for number in range(wanted)]

    def split(self, rows: list[dict[str, Any]]) -> dg.Split:
        return GoodSplit(self, rows)


class GoodSplit(dg.Split):
    def __init__(self, source: dg.Source, rows: list[dict[str, Any]]) -> None:
        self.source, self.rows, self.place = source, rows, 0

    def read(self, rows_max: int) -> dg.SourceBatch | None:
        rows = self.rows[self.place : self.place + rows_max]
        self.place += len(rows)
        self.ended = self.place >= len(self.rows)
        return self.source.batch_of(rows) if rows else None

    def close(self) -> None:
        """Nothing is open."""


def of(split: type[GoodSplit], **attributes: Any) -> Callable[[], dg.Source]:
    """A source that is good but for its splits."""

    class Wrong(Good):
        def split(self, rows: list[dict[str, Any]]) -> dg.Split:
            return split(self, rows)

    for name, value in attributes.items():
        setattr(Wrong, name, value)
    return Wrong


def test_a_good_source_passes() -> None:
    check_source(Good, ROWS, bad_rows=0)
    check_source(Good)


class OtherTypes(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        found = super().read(rows_max)
        return None if found is None else dg.SourceBatch(found.rows.cast(pa.schema([("n", pa.int32()), ("at", pa.int64())])))


class OtherNames(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        found = super().read(rows_max)
        return None if found is None else dg.SourceBatch(found.rows.select(["at", "n"]))


class NoBatch(GoodSplit):
    def read(self, rows_max: int) -> Any:
        return self.rows


class TableOfRows(GoodSplit):
    def read(self, rows_max: int) -> Any:
        return dg.SourceBatch(pa.Table.from_pylist(self.rows, SCHEMA))


class TooMany(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        return super().read(rows_max + 1)


class Raising(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        raise KeyError("no such thing")


class Losing(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        self.place += self.place == 5
        return super().read(rows_max)


class Repeating(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        found = super().read(rows_max)
        if rows_max == 1 and self.place == 3 and not hasattr(self, "again"):
            self.again, self.place = True, 2
        return found


class NeverEnding(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        found = super().read(rows_max)
        self.ended = False
        return found


class EmptyForEver(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        return self.source.batch_of([])


class Endless(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        return self.source.batch_of([ROWS[0]] * rows_max)


class AfterTheEnd(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        if self.ended:
            return self.source.batch_of([ROWS[0]])
        return super().read(rows_max)


class TakingBack(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        had_ended = self.ended
        found = super().read(rows_max)
        self.ended = self.ended and not had_ended
        return found


class Leaking(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        if self.place == 0:
            _KEPT.append(tempfile.TemporaryFile())  # noqa: SIM115
        return super().read(rows_max)


class LeakingThreads(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        threading.Thread(target=_MAY_END.wait, name="reader", daemon=True).start()
        return super().read(rows_max)


class ClosedOnce(GoodSplit):
    is_closed = False

    def close(self) -> None:
        if self.is_closed:
            raise ValueError("it is closed")
        self.is_closed = True


class NotClosedEarly(GoodSplit):
    def close(self) -> None:
        if not self.ended:
            raise ValueError("there is more")


class DueButNothing(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        self.next_due_s = 1.0
        return None


class NoTime(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        self.next_due_s = float("nan")
        return None


class Backwards(GoodSplit):
    def __init__(self, source: dg.Source, rows: list[dict[str, Any]]) -> None:
        super().__init__(source, rows[:3] + rows[3:][::-1])


class Told(GoodSplit):
    """It promises more by reached_ms than its rows keep."""

    def read(self, rows_max: int) -> dg.SourceBatch | None:
        found = super().read(rows_max)
        return None if found is None else dg.SourceBatch(found.rows, reached_ms=1_000)


class OtherBadRows(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        found = super().read(rows_max)
        return None if found is None else dg.SourceBatch(found.rows, ["a line"] if found.rows.num_rows < rows_max else [])  # type: ignore[list-item]


class Blocking(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        _NEVER.wait(0.3)
        return super().read(rows_max)


class WithPositions(GoodSplit):
    """Keeps all promises on positions. Every sixth row is a bad one."""

    def read(self, rows_max: int) -> dg.SourceBatch | None:
        if self.ended:
            return None
        rows = self.rows[self.place : self.place + rows_max]
        self.place += len(rows)
        self.ended = self.place >= len(self.rows)
        first_number = self.place - len(rows) + 1
        return self.source.batch_of([{"n": "x"} if row["n"] % 6 == 5 else row for row in rows], first_number)

    def position(self) -> Any:
        return [self.place]

    def seek(self, position: Any) -> None:
        (self.place,) = position


GOOD_ROWS = [row for row in ROWS if row["n"] % 6 != 5]


class TooLate(WithPositions):
    def position(self) -> Any:
        return [self.place + 1]


class TooEarly(WithPositions):
    def position(self) -> Any:
        return [max(self.place - 1, 0)]


class WithoutBadRows(WithPositions):
    """Its position counts good rows only."""

    def position(self) -> Any:
        return [self.place - sum(row["n"] % 6 == 5 for row in self.rows[: self.place])]


class BadRowsAgain(WithPositions):
    """It gives the bad rows from the beginning once more."""

    again: Sequence[dg.BadRow] = ()

    def read(self, rows_max: int) -> dg.SourceBatch | None:
        if not self.again:
            return super().read(rows_max)
        bad, self.again = self.again[:rows_max], self.again[rows_max:]
        return dg.SourceBatch(self.source.batch_of([]).rows, bad)

    def seek(self, position: Any) -> None:
        super().seek(position)
        self.again = [dg.BadRow("x", "bad") for row in self.rows[: self.place] if row["n"] % 6 == 5]


class Advancing(WithPositions):
    def position(self) -> Any:
        self.place += 1
        return [self.place - 1]


class NotPlain(WithPositions):
    def position(self) -> Any:
        return {self.place}


class TooLarge(WithPositions):
    def position(self) -> Any:
        return [self.place << 80]

    def seek(self, position: Any) -> None:
        self.place = position[0] >> 80


class Nowhere(WithPositions):
    def position(self) -> Any:
        return None


class Deaf(WithPositions):
    def seek(self, position: Any) -> None:
        """It stays where it is."""


class TuplesOnly(WithPositions):
    def position(self) -> Any:
        return (self.place,)

    def seek(self, position: Any) -> None:
        if isinstance(position, tuple):
            (self.place,) = position


class Unseekable(WithPositions):
    def seek(self, position: Any) -> None:
        raise KeyError("no such place")


class ReadingAhead(WithPositions):
    """What it has read and not given is lost."""

    def __init__(self, source: dg.Source, rows: list[dict[str, Any]]) -> None:
        super().__init__(source, rows)
        self.taken = 0

    def read(self, rows_max: int) -> dg.SourceBatch | None:
        self.taken = max(self.taken, min(-(-(self.place + rows_max) // 8) * 8, len(self.rows)))
        return super().read(rows_max)

    def position(self) -> Any:
        return [self.taken]


class NotBehindItself(WithPositions):
    """Its position is right only after a read."""

    def position(self) -> Any:
        return [self.place - self.begun]

    begun = 0

    def seek(self, position: Any) -> None:
        super().seek(position)
        self.begun = self.place


class Tiring(WithPositions):
    """It does not notice its end after a seek there."""

    def read(self, rows_max: int) -> dg.SourceBatch | None:
        if self.place >= len(self.rows):
            return None
        return super().read(rows_max)


class TimeGoneBack(WithPositions):
    """After a seek, its rows come in another order."""

    def __init__(self, source: dg.Source, rows: list[dict[str, Any]]) -> None:
        super().__init__(source, [row for row in rows if row["n"] % 6 != 5])

    def seek(self, position: Any) -> None:
        (place,) = position
        self.rows = self.rows[place:][::-1]


_KEPT: list[Any] = []
_MAY_END = threading.Event()
_NEVER = threading.Event()


class Locked(Good):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Eager(Good):
    def splits(self, wanted: int) -> Sequence[dg.Split]:
        _KEPT.append(tempfile.TemporaryFile())  # noqa: SIM115
        return super().splits(wanted)


class TooManySplits(Good):
    def splits(self, wanted: int) -> Sequence[dg.Split]:
        return super().splits(wanted + 1)


class NoSplits(Good):
    def splits(self, wanted: int) -> Sequence[dg.Split]:
        return []


class SameSplit(Good):
    def splits(self, wanted: int) -> Sequence[dg.Split]:
        return [self.split(ROWS)] * wanted


class EachHasAll(Good):
    def splits(self, wanted: int) -> Sequence[dg.Split]:
        return [self.split(ROWS) for _ in range(wanted)]


class OtherCount(Good):
    made = 0

    def splits(self, wanted: int) -> Sequence[dg.Split]:
        OtherCount.made += 1
        return super().splits(max(1, wanted - OtherCount.made % 2))


class Changing(Good):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Changing.made += 1
        self.schema = SCHEMA.append(pa.field(f"c{Changing.made}", pa.int64()))


class Forgetful(Good):
    """What it has read is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = list(ROWS)

    def splits(self, wanted: int) -> Sequence[dg.Split]:
        rows, self.rest = self.rest, []
        return [self.split(rows)]


class NotNullable(Good):
    def __init__(self) -> None:
        super().__init__()
        self.schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("at", pa.int64())])

    def split(self, rows: list[dict[str, Any]]) -> dg.Split:
        return WithNulls(self, rows)


class WithNulls(GoodSplit):
    def read(self, rows_max: int) -> dg.SourceBatch | None:
        self.ended = True
        columns = [pa.array([None], pa.int64()), pa.array([1], pa.int64())]
        return dg.SourceBatch(pa.RecordBatch.from_arrays(columns, schema=self.source.schema))


class Unsaid(Good):
    def __init__(self) -> None:
        super().__init__()
        self.is_bounded = None  # type: ignore[assignment]


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no source": (lambda: GoodSplit(Good(), []), "is no Source but"),
    "no schema": (lambda: _without_schema(), "which is no pyarrow.Schema; call super"),
    "does not say whether it ends": (Unsaid, "says neither that it ends nor that it does not"),
    "another schema each time": (Changing, "has another schema when it is made again"),
    "cannot be pickled": (Locked, "cannot be pickled .*it travels to the workers"),
    "opens files too early": (Eager, "open before any of its splits was read; open files and connections at the first read"),
    "too many splits": (TooManySplits, "has 2 splits where 1 to 1 were wanted"),
    "no splits": (NoSplits, "has 0 splits where 1 to 1 were wanted"),
    "one split twice": (SameSplit, "has one and the same split twice"),
    "every split has all rows": (EachHasAll, "does not have each row once with splits=2.*0 missing.*20 too many"),
    "now more splits, now fewer": (OtherCount, "has . splits now and had . before, so a worker may miss one"),
    "cannot be read again": (Forgetful, "does not have each row once .*20 missing"),
    "nulls": (NotNullable, "reads nulls in the column 'n', which it declares not to be nullable"),
    "other types": (of(OtherTypes), r"declares the columns \(n int64, at int64\) and reads \(n int32, at int64\)"),
    "another order of columns": (
        of(OtherNames),
        r"declares the columns \(n int64, at int64\) and reads \(at int64, n int64\)",
    ),
    "no batch": (of(NoBatch), "reads a list; return a SourceBatch, or None"),
    "a table": (of(TableOfRows), "has a Table as the rows of a batch"),
    "too many rows": (of(TooMany), "reads 2 rows where at most 1 were asked for"),
    "raises": (of(Raising), "cannot be read .*KeyError: 'no such thing'"),
    "loses a row": (of(Losing), "does not have each row once with splits=1 and 1 rows at a time: 1 missing .*'n', 5"),
    "repeats a row": (of(Repeating), "does not have each row once .*0 missing .*1 too many .*'n', 2"),
    "never ends": (of(NeverEnding), "neither gives rows nor ends: split 0"),
    "empty batches for ever": (of(EmptyForEver), "neither gives rows nor ends: split 0"),
    "endless": (of(Endless), "says that it ends, and has not after"),
    "rows after the end": (of(AfterTheEnd), "gives rows after split 0 has said that it has ended"),
    "an end that is taken back": (of(TakingBack), "takes back that split 0 has ended"),
    "leaves files open": (of(Leaking), "open after its splits were closed"),
    "leaves threads running": (of(LeakingThreads), "has the threads reader.* running after its splits were closed"),
    "can be closed only once": (of(ClosedOnce), "cannot be closed twice: ValueError: it is closed"),
    "cannot be closed in the middle": (of(NotClosedEarly), "cannot be closed: ValueError: there is more"),
    "nothing when it is due": (of(DueButNothing), "has nothing when its next rows are due by next_due_s, in split 0"),
    "due at no time": (of(NoTime), "due at a time that is no number"),
    "back in time": (of(Backwards), "reads a row in split 0 that is .* ms older than its out_of_orderness of 0 ms allows"),
    "time ahead of its rows": (of(Told), "reads a row in split 0 that is .* older than its out_of_orderness"),
    "bad rows of another kind": (of(OtherBadRows), "tells of bad rows by something else than BadRow"),
    "holds up whoever reads": (of(Blocking), "holds up whoever reads split 0 for more than 0.2 s; return None instead"),
}


POSITIONS: dict[str, tuple[type[GoodSplit], str]] = {
    "too late": (TooLate, "does not have each row once read on from a position behind 0 rows, in split 0 of 1: 1 missing"),
    "too early": (TooEarly, "does not have each row once .*read on from a position behind . rows.*1 too many"),
    "forgets bad rows": (WithoutBadRows, "does not have each row once .*read on from a position behind .* too many"),
    "gives bad rows again": (BadRowsAgain, "does not have each row once among the bad rows, read on from a position"),
    "goes on when asked": (Advancing, "does not have each row once when it is asked for positions, in split 0 of 1"),
    "no plain data": (NotPlain, r"has a position that is not plain data, in split 0 of 1: \{0\}"),
    "a number too large": (TooLarge, "cannot have its position written down"),
    "no position": (Nowhere, "says that it is replayable, but split 0 of 1 has no position"),
    "does not go there": (Deaf, "does not have each row once read on from a position behind 1 rows.*1 too many"),
    "wants its tuple back": (TuplesOnly, "does not have each row once read on from a position behind 1 rows.*1 too many"),
    "cannot go there": (Unseekable, r"cannot go to the position \[0\] in split 0 of 1: KeyError: 'no such place'"),
    "loses what it has read ahead": (ReadingAhead, "does not have each row once read on from a position .* missing"),
    "no position right after a seek": (NotBehindItself, "does not have each row once read on from a position .* too many"),
    "does not end after a seek": (Tiring, "neither gives rows nor ends, in split 0 of 1"),
    "late rows after a seek": (TimeGoneBack, "reads a row in split 0 that is .* older than its out_of_orderness"),
}


# Of those that are waited for in vain. All others are told at once, however slow the machine is.
PATIENCE_S = {"never ends": 1.0, "empty batches for ever": 1.0, "holds up whoever reads": 0.2}


def _without_schema() -> dg.Source:
    made = Good()
    made.schema = {"n": int}
    return made


@pytest.mark.parametrize("wrong", WRONG)
def test_a_broken_promise_is_told_in_one_sentence(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dirigo.testing.source_checks._ROWS_MOST", 5_000)
    make_source, sentence = WRONG[wrong]
    _MAY_END.clear()
    try:
        with pytest.raises(AssertionError, match=f"^[^\n]*{sentence}[^\n]*$"):
            check_source(make_source, ROWS, patience_s=PATIENCE_S.get(wrong, 30.0))
    finally:
        _MAY_END.set()
        while _KEPT:
            _KEPT.pop().close()


def test_a_good_source_with_positions_passes() -> None:
    check_source(of(WithPositions, is_replayable=True), GOOD_ROWS, bad_rows=3)


@pytest.mark.parametrize("wrong", POSITIONS)
def test_a_wrong_position_is_told_in_one_sentence(wrong: str) -> None:
    split, sentence = POSITIONS[wrong]
    with pytest.raises(AssertionError, match=f"^[^\n]*{sentence}[^\n]*$"):
        check_source(of(split, is_replayable=True), GOOD_ROWS, splits=(1,), patience_s=0.3)


def test_positions_are_not_checked_where_there_are_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="dirigo.testing"):
        check_source(of(Deaf), bad_rows=3)
    assert "source 'mine' says that it is not replayable, so its positions were not checked" in caplog.text
    with pytest.raises(AssertionError, match="says neither that it has positions nor that it has none"):
        check_source(of(WithPositions, is_replayable=1), GOOD_ROWS)


def test_rows_and_bad_rows_that_were_not_expected() -> None:
    with pytest.raises(AssertionError, match=r"does not have each row once .*1 missing .*0 too many"):
        check_source(Good, [*ROWS, {"n": 100, "at": 0}])
    with pytest.raises(AssertionError, match="has 0 bad rows instead of 1"):
        check_source(Good, ROWS, bad_rows=1)


def test_of_a_source_without_an_end_something_must_be_awaited() -> None:
    endless = of(NeverEnding, bounded=False)
    check_source(endless, ROWS)
    with pytest.raises(AssertionError, match="has no end, so say which rows are awaited"):
        check_source(endless)
    with pytest.raises(AssertionError, match="neither gives rows nor ends"):
        check_source(endless, [*ROWS, {"n": 100, "at": 0}], patience_s=1.0)
    with pytest.raises(AssertionError, match=r"gives the row .* more often than it should"):
        check_source(of(Repeating, bounded=False), ROWS, patience_s=1.0)


def test_a_source_that_says_how_far_out_of_order_it_is() -> None:
    check_source(of(Backwards, out_of_order="200ms"), ROWS)
