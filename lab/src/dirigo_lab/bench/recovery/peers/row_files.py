"""The rows that a peer gets, and the results that it gives, both as small files: what all peers can read and write.

A result is a line: number and due time of a row, how often its key was replaced, and the number and length that the bytes
kept for the key have. All of that is known beforehand, so a lost row, one that was counted twice and a state of another row
are seen.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from dirigo_lab.bench.recovery.keyed_rows import StateShape, step_between_keys

NUMBER_DIGITS = 20  # with which the bytes kept for a key begin
_WRITTEN_EACH_S = 0.1
_LOADED_BYTES_PER_FILE = 10_000_000
_KEPT_S = 20.0  # results that were read this long ago


class RowFiles:
    """Writes a row of each key, and later, while it is entered, rows as they fall due. As lines: number, key, due time."""

    def __init__(self, folder: Path, shape: StateShape) -> None:
        self.folder = folder
        self.shape = shape
        self.start_ms = 0
        self.end = 0  # the number after the last row that was written
        self._step = step_between_keys(shape.turns)
        self._files: deque[tuple[int, Path]] = deque()  # the end of each, in order
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write_due, name="rows-for-peers", daemon=True)
        folder.mkdir(parents=True)

    def load(self) -> None:
        at_once = max(1, _LOADED_BYTES_PER_FILE // self.shape.bytes_per_key)
        for first in range(0, self.shape.keys, at_once):
            self._write(range(first, min(first + at_once, self.shape.keys)))

    def __enter__(self) -> Self:
        self.start_ms = int(time.time() * 1000)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """No more rows."""
        self._is_over.set()
        self._thread.join(10.0)

    def key_of(self, number: int) -> int:
        return number if number < self.shape.keys else (number - self.shape.keys) * self._step % self.shape.turns

    def due_ms(self, number: int) -> int:
        if number < self.shape.keys:
            return 0
        return self.start_ms + (number - self.shape.keys) * 1000 // self.shape.rows_per_s

    def times(self, number: int) -> int:
        """How often the key of this row has been replaced with it."""
        return 1 if number < self.shape.keys else 2 + (number - self.shape.keys) // self.shape.turns

    def _write_due(self) -> None:
        while not self._is_over.wait(_WRITTEN_EACH_S):
            passed_ms = time.time() * 1000 - self.start_ms
            due = self.shape.keys + int(passed_ms * self.shape.rows_per_s / 1000) + 1
            if due > self.end:
                self._write(range(self.end, due))

    def _write(self, numbers: range) -> None:
        """As a whole: nobody lists a hidden file, and it gets its name when all is in it."""
        file = self.folder / f"rows-{numbers.start:010d}.csv"
        hidden = self.folder / f".{file.name}"
        hidden.write_text("".join(f"{number},{self.key_of(number)},{self.due_ms(number)}\n" for number in numbers))
        hidden.rename(file)
        self._files.append((numbers.stop, file))
        self.end = numbers.stop

    def forget(self, end: int) -> None:
        """Rows before this one are done for good: a peer that comes back after a kill does not ask for them."""
        while self._files and self._files[0][0] <= end:
            self._files.popleft()[1].unlink()


class ToldFiles:
    """Reads results as their files appear, and checks each. A file may be written again, but only with the same lines."""

    def __init__(self, folder: Path, rows: RowFiles, *, newest_only: bool) -> None:
        """``newest_only``: of rows of one key that were taken together there is one result, that of the newest."""
        self.folder = folder
        self._rows = rows
        self._newest_only = newest_only
        self._read: dict[str, tuple[int, str]] = {}  # what it was and said
        self._gone_at: list[tuple[float, Path]] = []
        self._came_ms: dict[int, float] = {}  # by number
        self.wrong: list[str] = []
        folder.mkdir(parents=True)

    @property
    def count(self) -> int:
        return len(self._came_ms)

    def look(self) -> None:
        """Read what is new."""
        with os.scandir(self.folder) as entries:
            found = [(entry.name, entry.inode()) for entry in entries if not entry.name.startswith((".", "_"))]
        for name, inode in sorted(found):
            said = self._read.get(name)
            if said is None or said[0] != inode:
                self._take_file(name, inode)
        while self._gone_at and self._gone_at[0][0] < time.monotonic() - _KEPT_S:
            self._gone_at.pop(0)[1].unlink(missing_ok=True)

    def first_due_after(self, moment_ms: float) -> float | None:
        """When the first result was there of a row that fell due after a moment."""
        self.look()
        rows = self._rows
        first = rows.shape.keys + max(0, int((moment_ms - rows.start_ms) * rows.shape.rows_per_s / 1000) - 1)
        late = range(first, rows.end)  # not all rows there ever were: it is asked for again and again
        found = (self._came_ms[number] for number in late if number in self._came_ms and rows.due_ms(number) > moment_ms)
        return min(found, default=None)

    def missing(self) -> int:
        """Rows that were written and have no result."""
        numbers: Iterable[int] = range(self._rows.end)
        if self._newest_only:
            numbers = {self._rows.key_of(number): number for number in numbers}.values()
        return sum(number not in self._came_ms for number in numbers)

    def _take_file(self, name: str, inode: int) -> None:
        text = (self.folder / name).read_text()
        came_ms = time.time() * 1000
        before = self._read.get(name)
        self._read[name] = (inode, text)
        if before is None:
            self._gone_at.append((time.monotonic(), self.folder / name))
            for line in text.splitlines():
                self._take(line, came_ms)
        elif sorted(before[1].splitlines()) != sorted(text.splitlines()):
            self.wrong.append(f"{name} was told again, and differently")

    def _take(self, line: str, came_ms: float) -> None:
        try:
            number, due_ms, times, kept_number, kept_bytes = map(int, line.split(","))
        except ValueError:
            self.wrong.append(f"a result that is none: {line[:80]}")
            return
        rows = self._rows
        if not 0 <= number < rows.end or due_ms != rows.due_ms(number):
            self.wrong.append(f"a result of row {number}, due at {due_ms}, which never was")
        elif times != rows.times(number):
            self.wrong.append(f"row {number} is number {rows.times(number)} of its key, and was counted as {times}")
        elif (kept_number, kept_bytes) != (number, rows.shape.bytes_per_key):
            self.wrong.append(f"after row {number} its key had {kept_bytes} bytes of row {kept_number}")
        elif number in self._came_ms:
            self.wrong.append(f"row {number} has a result twice")
        else:
            self._came_ms[number] = came_ms
