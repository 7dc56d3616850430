"""Reading files of lines, each line a row: whole blocks at once, and line by line only where a block does not fit.

What the two formats, CSV and JSON Lines, have in common: the splits, the search for the bad lines of a block, and the time
that a read may take.
"""

from __future__ import annotations

import re
import time as clock
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import ClassVar, Final

import pyarrow as pa

from dirigo.flow.api.duration import Duration
from dirigo.flow.errors import FlowError
from dirigo.flow.sources.files.line_blocks import LINE_LIMIT_BYTES, LineBlock, LineBlocks
from dirigo.flow.sources.files.paths import dealt_out
from dirigo.flow.sources.source import BadRow, Source, SourceBatch, Split, joined, require_wanted

_ROW_NUMBER: Final = re.compile(r" in row \d+|Row #\d+: ")

NumberedLines = list[tuple[int, bytes]]


class UnfitLinesError(Exception):
    """Lines do not fit the columns; the message says why, without a line number."""


class UnreadableTypeError(UnfitLinesError):
    """No line will ever fit: the parser does not know the type of a column."""


class LineFormat(ABC):
    """How lines become rows. It is told of which file the next lines are, and may keep its first line."""

    default_name: ClassVar[str]  # of a source of such lines

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    @abstractmethod
    def begin(self, file: Path, block: bytes) -> int:
        """A new file starts with these lines: how many bytes are a head and no rows; FlowError if it does not fit."""

    @abstractmethod
    def parse(self, text: bytes) -> pa.RecordBatch:
        """One row for each line that is not blank; UnfitLinesError if any of them does not fit."""

    def refuse_unreadable_types(self, line_of_nulls: bytes, what: str) -> None:
        """Try the columns on a line without values: a type that the parser does not know shows at once."""
        try:
            self.parse(line_of_nulls)
        except UnreadableTypeError as error:
            raise FlowError(
                f"{what}: a column has a type that such a file cannot hold ({error}); change the schema."
            ) from None
        except UnfitLinesError:
            pass  # a column may well refuse nulls

    @abstractmethod
    def problem_of(self, line: bytes) -> str | None:
        """A quick look at one line: what is certainly wrong with it. None is no promise that it can be parsed."""


class TextSource(Source):
    """Rows out of files of lines. It is split by files."""

    def __init__(
        self,
        files: Sequence[Path],
        line_format: LineFormat,
        *,
        time: str | None,
        out_of_orderness: Duration,
        idle_after: Duration | None,
        name: str,
    ) -> None:
        super().__init__(
            line_format.schema,
            name=name,
            is_bounded=True,
            time=time,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
        )
        self.default_name = line_format.default_name
        self.files = list(files)
        self._format = line_format

    @property
    def places(self) -> Sequence[Path]:
        return self.files

    def splits(self, wanted: int) -> Sequence[Split]:
        require_wanted(wanted, self.name)
        # Each split has a format of its own, which knows the file that it is at.
        return [TextSplit(files, copy(self._format), self.name) for files in dealt_out(self.files, wanted)]


class TextSplit(Split):
    """Reads some of the files, one after the other."""

    def __init__(self, files: Sequence[Path], line_format: LineFormat, what: str) -> None:
        self._waiting = list(reversed(files))
        self._format = line_format
        self._what = what
        self._path = Path()
        self._blocks: LineBlocks | None = None
        self._parsed: pa.RecordBatch | None = None  # rows that are not given out yet
        self._suspects: list[NumberedLines] = []  # lines that did not fit together; the next ones to try are the last
        self._bad: list[BadRow] = []

    def read(self, rows_max: int) -> SourceBatch | None:
        """Rows of one good block, or what a few milliseconds of searching through a block with bad lines give."""
        until = clock.monotonic() + self.read_for_s
        good: list[pa.RecordBatch] = []
        room = rows_max
        while room > len(self._bad):
            if self._parsed is not None:
                taken = min(self._parsed.num_rows, room - len(self._bad))
                good.append(self._parsed.slice(0, taken))
                self._parsed = self._parsed.slice(taken) if self._parsed.num_rows > taken else None
                room -= taken
                if not self._suspects:
                    break  # small copies are worth less than an early return
            elif self._suspects:
                self._try_suspects()
            elif not self._parse_next_block():
                self.ended = True
                break
            if self._parsed is None and clock.monotonic() >= until:
                break  # but what is parsed is given out first, however long it took
        bad, self._bad = self._bad[:room], self._bad[room:]
        if self.ended and not good and not bad:
            return None
        return SourceBatch(joined(good, self._format.schema), bad)

    def close(self) -> None:
        self.ended = True
        self._waiting, self._suspects, self._bad, self._parsed = [], [], [], None
        self._close_file()

    def _parse_next_block(self) -> bool:
        """Whether there was one."""
        block = self._next_block()
        if block is None:
            return False
        if block.is_too_long:
            self._note_bad(block.first_line, block.text, f"it is longer than {LINE_LIMIT_BYTES} bytes")
        elif not block.text.isspace():
            try:
                self._parsed = self._format.parse(block.text)
            except UnfitLinesError:
                self._look_through(block)
        return True

    def _next_block(self) -> LineBlock | None:
        try:
            while True:
                block = None if self._blocks is None else self._blocks.next()
                if block is not None:
                    return block
                self._close_file()
                if not self._waiting:
                    return None
                self._path = self._waiting.pop()
                self._blocks = LineBlocks(self._path)
                block = self._blocks.next()
                if block is not None:
                    head = self._format.begin(self._path, block.text)
                    return LineBlock(block.text[head:], block.first_line + 1) if head else block
        except (pa.ArrowException, OSError) as error:
            raise FlowError(f"{self._what}: '{self._path}' cannot be read ({error}); check the file.") from error

    def _look_through(self, block: LineBlock) -> None:
        """Sort out the lines that are obviously bad: that takes far less than parsing each line on its own."""
        suspects: NumberedLines = []
        for number, line in enumerate(block.text.removesuffix(b"\n").split(b"\n"), block.first_line):
            if not line or line.isspace():
                continue
            problem = self._format.problem_of(line)
            if problem is None:
                suspects.append((number, line))
            else:
                self._note_bad(number, line, problem)
        if suspects:
            self._suspects.append(suspects)

    def _try_suspects(self) -> None:
        """Parse the next lines that are under suspicion; if they do not fit, suspect each half of them."""
        lines = self._suspects.pop()
        try:
            self._parsed = self._format.parse(b"\n".join([line for _, line in lines]) + b"\n")
        except UnfitLinesError as error:
            if len(lines) == 1:
                self._note_bad(*lines[0], str(error))
            else:
                half = len(lines) // 2
                self._suspects += [lines[half:], lines[:half]]

    def _note_bad(self, number: int, line: bytes, problem: str) -> None:
        text = line.removesuffix(b"\r").decode(errors="backslashreplace")
        self._bad.append(BadRow(text, f"{self._what}, {self._path.name}, line {number}: {problem}."))

    def _close_file(self) -> None:
        if self._blocks is not None:
            self._blocks.close()
            self._blocks = None


def require_no_nulls(batch: pa.RecordBatch) -> None:
    """Refuse rows without a value in a column that must have one."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise UnfitLinesError(f"the column '{field.name}' has no value")


def first_sentence(error: Exception) -> str:
    """What pyarrow says, on one line and without its own row numbers, which count from the wrong place."""
    return _ROW_NUMBER.sub("", str(error).split("\n")[0]).rstrip(". ")
