"""Whether a source keeps what every source promises: the check that one of your own can be run through."""

from __future__ import annotations

import time as system_clock
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any, Final

import pyarrow as pa

from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.sinks.memory import to_memory
from dirigo.flow.sources.source import BadRow, Source, SourceBatch, Split
from dirigo.testing.findings import Held, fail, multiset, require_same, rows_in, sent, tried
from dirigo.testing.position_checks import check_positions
from dirigo.testing.promised_times import PromisedTimes
from dirigo.testing.simulation import run

_ROWS_AT_ONCE: Final = (1, 7, 4096)
_STEP_S: Final = 0.01  # by which the clock of the check goes on when nothing comes
_PAUSE_S: Final = 0.001  # in earnest, for sources that wait for somebody outside
_QUIET_READS: Final = 100
_ROWS_MOST: Final = 1_000_000


@dataclass
class _Expected:
    """What was asked for, or else what the first reading gave."""

    rows: Counter[str] | None = None
    bad: int | None = None
    splits: dict[int, int] = field(default_factory=dict)  # how many there are, by how many were wanted


def check_source(
    make_source: Callable[[], Source],
    expected_rows: Iterable[Mapping[str, Any]] | None = None,
    *,
    bad_rows: int | None = None,
    splits: Sequence[int] = (1, 2, 3, 4),
    reads_again: bool = True,
    travels: bool = True,
    patience_s: float = 10.0,
) -> None:
    """Raise AssertionError with one sentence if a source breaks a promise that flows and workers rely on.

    ``make_source`` makes the source anew; it is called many times. It is read with so many ``splits`` and in batches of
    several sizes: each row comes once, of the types that the source declares, and no older than it promises. Of a source
    without an end, ``expected_rows`` are awaited, and what else comes is looked at only. ``bad_rows`` is how many rows do
    not fit its columns. A source that says that it is replayable is also read on from positions: at the beginning, in the
    middle, and at the end; for any other, a line of the log says that this was not looked at. ``reads_again=False`` is for
    a source whose every object can be read but once; ``travels=False`` for one that is never sent to a worker. One that
    neither gives rows nor ends for ``patience_s`` has failed.
    """
    source = make_source()
    if not isinstance(source, Source):
        fail("what make_source returns", f"is no Source but {source!r}")
    who = f"source '{source.name}'"
    expected = _Expected(None if expected_rows is None else multiset(expected_rows), bad_rows)
    if not source.is_bounded and expected.rows is None:
        fail(who, "has no end, so say which rows are awaited with expected_rows=")
    _check_description(who, make_source, source)
    held = Held()
    if travels:
        _check_same(who, source, sent(who, source), "after it was pickled")
    for wanted in splits:
        for rows_max in _ROWS_AT_ONCE:
            fresh = make_source() if rows_max == 1 or not reads_again else source
            origin = sent(who, fresh) if travels else fresh
            _Reading(who, origin, wanted, rows_max, patience_s, expected).to_the_end(held)
    for _ in range(2) if reads_again else ():  # one and the same, as by a flow that runs twice
        _Reading(who, source, 1, 4096, patience_s, expected).to_the_end(held)
    for wanted in {min(splits), max(splits)}:
        _check_early_close(who, make_source(), wanted, held)
    check_positions(who, make_source, sorted({min(splits), max(splits)}), held, patience_s, travels=travels)
    if source.is_bounded:
        _check_flow(who, make_source, max(splits), expected)
        held.require_no_more(who, "after a flow that read it to its end")


def _check_description(who: str, make_source: Callable[[], Source], source: Source) -> None:
    if not isinstance(source.schema, pa.Schema):
        fail(who, f"has {source.schema!r} as its schema, which is no pyarrow.Schema; call super().__init__")
    if not isinstance(source.is_bounded, bool):
        fail(who, f"has {source.is_bounded!r} as is_bounded, which says neither that it ends nor that it does not")
    if not isinstance(source.is_replayable, bool):
        fail(
            who,
            f"has {source.is_replayable!r} as is_replayable, which says neither that it has positions nor that it has none",
        )
    _check_same(who, source, make_source(), "when it is made again")


def _check_same(who: str, source: Source, other: Source, when: str) -> None:
    for what in ("schema", "name", "time", "is_bounded", "is_replayable", "out_of_orderness_ms", "idle_after_ms"):
        values = (getattr(each, what) for each in (source, other))
        had, has = (_columns(each) if isinstance(each, pa.Schema) else each for each in values)
        if had != has:
            fail(who, f"has another {what} {when}: {has!r} instead of {had!r}")


class _Reading:
    """One reading of a source, by all its splits in turns, on a clock that goes on as fast as nothing comes."""

    def __init__(self, who: str, source: Source, wanted: int, rows_max: int, patience_s: float, expected: _Expected) -> None:
        self.who, self.source, self.expected = who, source, expected
        self.rows_max, self.patience_s = rows_max, patience_s
        self.when = f"with splits={wanted} and {rows_max} rows at a time"
        self.now_s = 1_000.0
        self.rows: list[pa.RecordBatch] = []
        self.count = self.bad = self.quiet_reads = 0
        self.quiet_since_s = system_clock.monotonic()
        before = Held()
        made = tried(who, f"be cut into splits ({wanted} wanted)", lambda: source.splits(wanted))
        before.require_no_more(who, "before any of its splits was read; open files and connections at the first read")
        self.splits = _checked_splits(who, made, wanted, expected)
        self.times = [PromisedTimes(source) for _ in self.splits]
        for split in self.splits:
            split.clock = lambda: self.now_s

    def to_the_end(self, held: Held) -> None:
        active = list(range(len(self.splits)))
        active = [number for number in active if not self.splits[number].ended]
        while active and not self._has_seen_enough():
            came = [self._read(number) for number in active]
            active = [number for number in active if not self.splits[number].ended]
            if any(came):
                self.quiet_reads, self.quiet_since_s = 0, system_clock.monotonic()
            elif active:
                self._wait(active)
            if self.count > _ROWS_MOST:
                fail(self.who, f"says that it ends, and has not after {_ROWS_MOST} rows; say is_bounded=False")
        for number, split in enumerate(self.splits):
            self._check_end(number, split)
        self._check_rows()
        held.require_no_more(self.who, f"after its splits were closed, {self.when}")

    def _has_seen_enough(self) -> bool:
        if self.source.is_bounded or self.expected.rows is None:
            return False
        return self.count >= self.expected.rows.total() and not self.expected.rows - multiset(rows_in(self.rows))

    def _read(self, number: int) -> bool:
        """Read one split once; whether anything came."""
        split = self.splits[number]
        due_s = split.next_due_s
        began_s = system_clock.monotonic()
        found = tried(self.who, f"be read (split {number}, {self.when})", lambda: split.read(self.rows_max))
        if system_clock.monotonic() - began_s > self.patience_s:
            fail(self.who, f"holds up whoever reads split {number} for more than {self.patience_s:g} s; return None instead")
        if found is None:
            next_s = split.next_due_s
            if due_s is not None and due_s == next_s and due_s <= self.now_s and not split.ended:
                fail(self.who, f"has nothing when its next rows are due by next_due_s, in split {number}")
            return split.ended
        if not isinstance(found, SourceBatch):
            fail(self.who, f"reads a {type(found).__name__}; return a SourceBatch, or None when nothing has come")
        self._check_batch(number, found)
        return bool(found.rows.num_rows or found.bad)

    def _check_batch(self, number: int, found: SourceBatch) -> None:
        rows = found.rows
        if not isinstance(rows, pa.RecordBatch):
            fail(self.who, f"has a {type(rows).__name__} as the rows of a batch, which is no pyarrow.RecordBatch")
        if not rows.schema.equals(self.source.schema):
            fail(self.who, f"declares the columns ({_columns(self.source.schema)}) and reads ({_columns(rows.schema)})")
        tried(self.who, "make a valid batch", lambda: rows.validate(full=True))
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if column.null_count and not rows.schema.field(name).nullable:
                fail(self.who, f"reads nulls in the column '{name}', which it declares not to be nullable")
        if any(not isinstance(bad, BadRow) for bad in found.bad):
            fail(self.who, "tells of bad rows by something else than BadRow")
        if rows.num_rows + len(found.bad) > self.rows_max:
            fail(self.who, f"reads {rows.num_rows + len(found.bad)} rows where at most {self.rows_max} were asked for")
        self.times[number].note(self.who, number, found)
        self.rows.append(rows)
        self.count += rows.num_rows + len(found.bad)
        self.bad += len(found.bad)

    def _wait(self, active: Sequence[int]) -> None:
        """Nothing has come from anywhere: go on to when the next rows are due, or a little."""
        self.quiet_reads += 1
        quiet_s = system_clock.monotonic() - self.quiet_since_s
        if self.quiet_reads > _QUIET_READS and quiet_s > self.patience_s:
            splits = ", ".join(map(str, active))
            fail(self.who, f"neither gives rows nor ends: split {splits}, {self.when}, for {self.patience_s:g} s")
        due = [due_s for number in active if (due_s := self.splits[number].next_due_s) is not None]
        if any(isnan(due_s) for due_s in due):
            fail(self.who, "says that its next rows are due at a time that is no number")
        later = [due_s for due_s in due if due_s > self.now_s]
        if len(due) == len(active) and later and min(later) < float("inf"):
            self.now_s = min(later)
        else:
            self.now_s += _STEP_S
            system_clock.sleep(_PAUSE_S)

    def _check_end(self, number: int, split: Split) -> None:
        if split.ended:
            after = tried(
                self.who, f"be asked once more after its end, in split {number}", lambda: split.read(self.rows_max)
            )
            if after is not None and (after.rows.num_rows or after.bad):
                fail(self.who, f"gives rows after split {number} has said that it has ended")
            if not split.ended:
                fail(self.who, f"takes back that split {number} has ended")
        _close(self.who, split)

    def _check_rows(self) -> None:
        found = multiset(rows_in(self.rows))
        if not self.source.is_bounded:
            assert self.expected.rows is not None
            awaited = self.expected.rows
            require_same(
                self.who, awaited, Counter({row: min(found[row], count) for row, count in awaited.items()}), self.when
            )
            twice = [row for row, count in awaited.items() if found[row] > count]
            if twice:
                fail(self.who, f"gives the row {twice[0]} more often than it should, {self.when}")
            return
        if self.expected.rows is None:
            self.expected.rows = found
        if self.expected.bad is None:
            self.expected.bad = self.bad
        require_same(self.who, self.expected.rows, found, self.when)
        if self.bad != self.expected.bad:
            fail(self.who, f"has {self.bad} bad rows instead of {self.expected.bad}, {self.when}")


def _checked_splits(who: str, made: Sequence[Split], wanted: int, expected: _Expected) -> list[Split]:
    splits = list(made)
    if not 1 <= len(splits) <= wanted:
        fail(who, f"has {len(splits)} splits where 1 to {wanted} were wanted")
    if any(not isinstance(split, Split) for split in splits):
        fail(who, "has splits that are no Split")
    if len({id(split) for split in splits}) < len(splits):
        fail(who, "has one and the same split twice")
    if expected.splits.setdefault(wanted, len(splits)) != len(splits):
        fail(who, f"has {len(splits)} splits now and had {expected.splits[wanted]} before, so a worker may miss one")
    return splits


def _check_early_close(who: str, source: Source, wanted: int, held: Held) -> None:
    """A job may end at any moment: before the first read, and in the middle."""
    splits = source.splits(wanted)
    for number, split in enumerate(splits):
        if number % 2 == 0 and not split.ended:
            tried(who, "be read", lambda split=split: split.read(1))  # type: ignore[misc]
    for split in splits:
        _close(who, split)
    held.require_no_more(who, "after its splits were closed in the middle")


def _close(who: str, split: Split) -> None:
    tried(who, "be closed", split.close)
    tried(who, "be closed twice", split.close)


def _check_flow(who: str, make_source: Callable[[], Source], wanted: int, expected: _Expected) -> None:
    flow = Dataflow("conformance", on_error="side_output")
    rows = flow.source(make_source(), splits=wanted)
    rows.sink(to_memory(name="rows"))
    flow.errors.sink(to_memory(name="errors"))
    assert expected.rows is not None
    table = tried(who, "be read by a flow", lambda: run(flow)).table("rows")
    require_same(who, expected.rows, multiset(rows_in(table.to_batches())), "in a flow")


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name} {each.type}{'' if each.nullable else ' not null'}" for each in schema)
