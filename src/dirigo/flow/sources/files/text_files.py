"""Reading files of lines, each line a row: whole blocks at once, and line by line only where a block does not fit.

What the two formats, CSV and JSON Lines, have in common: the splits, the search for the bad lines of a block, and the time
that a read may take.
"""

from __future__ import annotations

import re
import time as clock
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa

from dirigo.flow.api.duration import Duration
from dirigo.flow.errors import FlowError
from dirigo.flow.sources.files.file_queue import FileQueue, changed_file
from dirigo.flow.sources.files.line_blocks import LINE_LIMIT_BYTES, LineBlock, LineBlocks, first_block
from dirigo.flow.sources.files.paths import dealt_out
from dirigo.flow.sources.source import BadRow, Source, SourceBatch, Split, empty_batch, joined, require_wanted

_ROW_NUMBER: Final = re.compile(r" in row \d+|Row #\d+: ")

_SUMMED_BYTES: Final = 4096

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

    @property
    def is_replayable(self) -> bool:
        return True

    def splits(self, wanted: int) -> Sequence[Split]:
        require_wanted(wanted, self.name)
        # Each split has a format of its own, which knows the file that it is at.
        return [TextSplit(files, copy(self._format), self.name) for files in dealt_out(self.files, wanted)]


@dataclass
class Given:
    """How much of a block was given."""

    rows: int = 0
    bad: int = 0


class TextSplit(Split):
    """Reads some of the files, one after the other.

    The position is the file and the block at hand, and how many rows and bad rows of the block were given: it is parsed anew
    after a seek.
    """

    def __init__(self, files: Sequence[Path], line_format: LineFormat, what: str) -> None:
        self._files = FileQueue(files, what)
        self._format = line_format
        self._what = what
        self._path = Path()
        self._blocks: LineBlocks | None = None
        self._block: LineBlock | None = None  # the one at hand, as it is in the file
        self._given = Given()  # of the block at hand
        self._again = Given()  # what is still to come of it a second time, and is not given
        self._sought: list[Any] | None = None  # where in the first file to go on
        self._parsed: pa.RecordBatch | None = None  # rows that are not given out yet
        self._suspects: list[NumberedLines] = []  # lines that did not fit together; the next ones to try are the last
        self._bad: list[BadRow] = []

    def read(self, rows_max: int) -> SourceBatch | None:
        """Rows of one good block, or what a few milliseconds of searching through a block with bad lines give."""
        until = clock.monotonic() + self.read_for_s
        if self._sought is not None and not self._go_back(self._sought, until):
            return SourceBatch(empty_batch(self._format.schema))
        good: list[pa.RecordBatch] = []
        room = rows_max
        while room > len(self._bad):
            if self._parsed is not None:
                taken = min(self._parsed.num_rows, room - len(self._bad))
                good.append(self._parsed.slice(0, taken))
                self._parsed = self._parsed.slice(taken) if self._parsed.num_rows > taken else None
                self._given.rows += taken
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
        self._files.clear()
        self._suspects, self._bad, self._parsed = [], [], None
        self._close_file()

    def position(self) -> list[Any]:
        block = self._block
        if block is None:
            return self._files.position(self._sought)
        is_given = self._parsed is None and not self._suspects and not self._bad
        bad = self._given.bad - len(self._bad)  # those that wait are of this block, however small reads are
        given = [self._given.rows, bad, is_given]
        return self._files.position([block.offset, block.length, block.first_line, block.is_too_long, _sum(block), *given])

    def seek(self, position: Sequence[Any]) -> None:
        self._sought = self._files.seek(position)

    def _go_back(self, within: Sequence[Any], until: float) -> bool:
        """Read the block again that was at hand, and go behind what was given of it; whether the time was enough."""
        offset, length, first_line, is_too_long, total, rows, bad, is_given = within
        file = self._files.at_hand
        assert file is not None
        self._path = file
        try:
            if self._blocks is None:
                self._blocks = LineBlocks(file)
            if not self._blocks.go_to(offset, until):
                return False
            block = self._blocks.again(LineBlock(b"", first_line, is_too_long, offset, length))
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from error
        if block is None or _sum(block) != total:
            raise changed_file(file, self._what)
        self._sought, self._block = None, block
        if offset:
            first = first_block(file, self._what)
            if first is not None:
                self._format.begin(file, first.text)
        else:
            block = self._without_head(block)
        self._given = Given(rows, bad)
        if not is_given:
            self._again = Given(rows, bad)
            self._parse(block)
        return True

    def _parse_next_block(self) -> bool:
        """Whether there was one."""
        if self._again.rows or self._again.bad:
            raise changed_file(self._path, self._what)
        block = self._next_block()
        if block is None:
            return False
        self._parse(block)
        return True

    def _parse(self, block: LineBlock) -> None:
        if block.is_too_long:
            self._note_bad(block.first_line, block.text, f"it is longer than {LINE_LIMIT_BYTES} bytes")
        elif not block.text.isspace():
            try:
                self._take(self._format.parse(block.text))
            except UnfitLinesError:
                self._look_through(block)

    def _take(self, parsed: pa.RecordBatch) -> None:
        """Give these rows next, but for those that were given before."""
        again = min(self._again.rows, parsed.num_rows)
        self._again.rows -= again
        if not again:
            self._parsed = parsed
        elif again < parsed.num_rows:
            self._parsed = parsed.slice(again)

    def _next_block(self) -> LineBlock | None:
        try:
            while True:
                block = None if self._blocks is None else self._blocks.next()
                if block is not None:
                    self._block, self._given = block, Given()
                    return block
                if self._blocks is not None:
                    self._close_file()
                    self._files.go_on()
                    self._block = None
                file = self._files.at_hand
                if file is None:
                    return None
                self._path = file
                self._blocks = LineBlocks(file)
                block = self._blocks.next()
                if block is not None:
                    self._block, self._given = block, Given()
                    return self._without_head(block)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from error

    def _without_head(self, block: LineBlock) -> LineBlock:
        """The first block of a file without what is no row."""
        head = self._format.begin(self._path, block.text)
        return replace(block, text=block.text[head:], first_line=block.first_line + 1) if head else block

    def _unreadable(self, error: Exception) -> FlowError:
        return FlowError(f"{self._what}: '{self._path}' cannot be read ({error}); check the file.")

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
            self._take(self._format.parse(b"\n".join([line for _, line in lines]) + b"\n"))
        except UnfitLinesError as error:
            if len(lines) == 1:
                self._note_bad(*lines[0], str(error))
            else:
                half = len(lines) // 2
                self._suspects += [lines[half:], lines[:half]]

    def _note_bad(self, number: int, line: bytes, problem: str) -> None:
        if self._again.bad:
            self._again.bad -= 1
            return
        self._given.bad += 1
        text = line.removesuffix(b"\r").decode(errors="backslashreplace")
        self._bad.append(BadRow(text, f"{self._what}, {self._path.name}, line {number}: {problem}."))

    def _close_file(self) -> None:
        if self._blocks is not None:
            self._blocks.close()
            self._blocks = None


def _sum(block: LineBlock) -> int:
    """Tells blocks apart, in microseconds."""
    return zlib.crc32(block.text[-_SUMMED_BYTES:])


def require_no_nulls(batch: pa.RecordBatch) -> None:
    """Refuse rows without a value in a column that must have one."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise UnfitLinesError(f"the column '{field.name}' has no value")


def first_sentence(error: Exception) -> str:
    """What pyarrow says, on one line and without its own row numbers, which count from the wrong place."""
    return _ROW_NUMBER.sub("", str(error).split("\n")[0]).rstrip(". ")
