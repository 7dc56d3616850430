"""Whether a split can be read on from its positions: each row once, whatever was given before and comes after."""

from __future__ import annotations

import logging
import time as system_clock
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from math import inf
from typing import Any, Final

import msgspec

from dirigo.flow.event_time.watermark import BEGINNING
from dirigo.flow.sources.source import Source, Split
from dirigo.testing.findings import Held, fail, require_same, row_text, rows_in, sent, tried
from dirigo.testing.promised_times import PromisedTimes

_ROWS_AT_ONCE: Final = 7
_REST_AT_ONCE: Final = (4096, 5)
_ENDLESS_ROWS: Final = 200  # of a source without an end, as many are looked at
_QUIET_READS: Final = 100
_STEP_S: Final = 0.01
_PAUSE_S: Final = 0.001
_PLAIN: Final = (int, float, str, bytes, bool, type(None))

_log = logging.getLogger(__name__)


def check_positions(
    who: str, make_source: Callable[[], Source], splits: Sequence[int], held: Held, patience_s: float, *, travels: bool
) -> None:
    """Read each split up to several places, and on from there: once the same split, once another one."""
    source = make_source()
    if not source.is_replayable:
        _log.info("%s says that it is not replayable, so its positions were not checked", who)
        return
    for wanted in splits:
        for number in range(len(source.splits(wanted))):

            def fresh(wanted: int = wanted, number: int = number) -> _Run:
                origin = sent(who, make_source()) if travels else make_source()
                return _Run(who, origin, origin.splits(wanted)[number], f"split {number} of {wanted}", patience_s)

            _check_split(who, fresh, everywhere=wanted == splits[0] and number == 0)
    held.require_no_more(who, "after its splits were read on from positions")


def _check_split(who: str, fresh: Callable[[], _Run], *, everywhere: bool) -> None:
    """At all places that are special, or only in the middle."""
    whole = fresh()
    whole.read_on(inf, _REST_AT_ONCE[0])
    whole.split.close()
    middle = min(whole.count // 2 + 1, whole.count)
    cuts = (
        {0, min(1, whole.count), whole.count // 3, middle, max(whole.count - 1, 0), whole.count} if everywhere else {middle}
    )
    for number, cut in enumerate(sorted(cuts)):
        first = fresh()
        first.read_on(cut, max(_ROWS_AT_ONCE, whole.count // 13), takes_positions=True)
        position = first.position()
        again = fresh()
        again.seek(position)
        if number % 2:  # the next snapshot may come before the next read
            position = again.position()
            again.split.close()
            again = fresh()
            again.seek(position)
        again.now_s = first.now_s
        again.times = copy(first.times)
        given = first.rows.copy(), first.bad.copy()
        when = f"read on from a position behind {first.count} rows, in {first.what}"
        at_once = _REST_AT_ONCE[number % 2]
        first.read_on(inf, at_once)
        again.read_on(inf, at_once)
        if whole.is_bounded:
            require_same(who, whole.rows, first.rows, f"when it is asked for positions, in {first.what}")
            require_same(who, first.rows - given[0], again.rows, when)
            require_same(who, first.bad - given[1], again.bad, f"among the bad rows, {when}")
            if again.reached_ms != first.reached_ms and again.reached_ms != BEGINNING:
                fail(who, f"tells of another reached_ms when {when}: {again.reached_ms} instead of {first.reached_ms}")
        else:
            _require_beginning(who, first.order[first.count_at_position :], again.order, when)
        first.split.close()
        again.split.close()


def _require_beginning(who: str, expected: Sequence[str], found: Sequence[str], when: str) -> None:
    """Of a source without an end, as far as both were read."""
    both = min(len(expected), len(found))
    require_same(who, Counter(expected[:both]), Counter(found[:both]), when)


class _Run:
    """One split as it is read, on a clock that goes on as fast as nothing comes."""

    def __init__(self, who: str, source: Source, split: Split, what: str, patience_s: float) -> None:
        self.who, self.split, self.what, self.patience_s = who, split, what, patience_s
        self.is_bounded = source.is_bounded
        self.now_s = 1_000.0
        self.rows, self.bad = Counter[str](), Counter[str]()
        self.order: list[str] = []  # of the good rows
        self.count = 0  # good and bad
        self.count_at_position = 0  # good ones
        self.reached_ms = BEGINNING
        self.times = PromisedTimes(source)
        split.clock = lambda: self.now_s

    def read_on(self, count: float, rows_max: int, *, takes_positions: bool = False) -> None:
        """Until so many rows have come in all, or the end."""
        if not self.is_bounded:
            count = min(count, self.count + _ENDLESS_ROWS)
        quiet_reads, quiet_since_s = 0, system_clock.monotonic()
        while self.count < count and not self.split.ended:
            if takes_positions:
                self.position()
            if self._read(min(rows_max, int(min(count - self.count, rows_max)))):
                quiet_reads, quiet_since_s = 0, system_clock.monotonic()
                continue
            quiet_reads += 1
            if quiet_reads > _QUIET_READS and not self.is_bounded:
                return
            if quiet_reads > _QUIET_READS and system_clock.monotonic() - quiet_since_s > self.patience_s:
                fail(self.who, f"neither gives rows nor ends, in {self.what}, for {self.patience_s:g} s")
            self._wait()

    def _read(self, rows_max: int) -> bool:
        """Whether anything came."""
        found = tried(self.who, f"be read on ({self.what})", lambda: self.split.read(rows_max))
        if found is None:
            return False
        self.times.note(self.who, 0, found)
        rows = [row_text(row) for row in rows_in([found.rows])]
        self.order += rows
        self.rows.update(rows)
        self.bad.update(f"{bad.row}: {bad.error}" for bad in found.bad)
        self.count += found.rows.num_rows + len(found.bad)
        self.reached_ms = max(self.reached_ms, BEGINNING if found.reached_ms is None else found.reached_ms)
        return bool(found.rows.num_rows or found.bad)

    def _wait(self) -> None:
        next_s = self.split.next_due_s
        if next_s is not None and self.now_s < next_s < inf:
            self.now_s = next_s
        else:
            self.now_s += _STEP_S
            system_clock.sleep(_PAUSE_S)

    def position(self) -> Any:
        """As it comes back from a disk."""
        found = tried(self.who, f"say at which position {self.what} is", self.split.position)
        if found is None:
            fail(self.who, f"says that it is replayable, but {self.what} has no position")
        if not _is_plain(found):
            fail(self.who, f"has a position that is not plain data, in {self.what}: {found!r}")
        self.count_at_position = len(self.order)
        return msgspec.msgpack.decode(
            tried(self.who, "have its position written down", lambda: msgspec.msgpack.encode(found)), strict=False
        )

    def seek(self, position: Any) -> None:
        tried(self.who, f"go to the position {position!r} in {self.what}", lambda: self.split.seek(position))


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(each) for key, each in value.items())
    return type(value) in _PLAIN
