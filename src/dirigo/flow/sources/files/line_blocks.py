"""Cutting a file into blocks of whole lines, with a bound on the length of a line."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from dirigo.flow.errors import FlowError

BLOCK_BYTES: Final = 1 << 17
LINE_LIMIT_BYTES: Final = 16 << 20
_FIRST_BLOCKS_MOST: Final = 32
_KEPT_OF_LONG_LINE_BYTES: Final = 1 << 20
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class LineBlock:
    """Some whole lines of a file, each with its line break."""

    text: bytes
    first_line: int
    is_too_long: bool = False
    """It is the beginning of one line that is longer than the limit; the rest was skipped."""
    offset: int = 0
    """Where it begins in the file, decompressed, and how long it is there."""
    length: int = 0


class LineBlocks:
    """The blocks of one file. What is compressed is decompressed, judging by the name (.gz, .bz2, .zst, ...)."""

    def __init__(self, path: Path, line_limit: int = LINE_LIMIT_BYTES) -> None:
        self._stream = pa.input_stream(str(path))
        self._line_limit = line_limit
        self._carried = b""  # the beginning of a line whose end is not read yet
        self._line = 1
        self._read_bytes = 0
        self._end = 0  # of the last block, in the file
        self._is_at_end = False
        self._is_fresh = True

    def next(self) -> LineBlock | None:
        """The next block, or None at the end of the file. The last line gets a line break if it has none."""
        end = self._carried.rfind(b"\n") + 1
        if end:  # after a line that was too long
            text, self._carried = self._carried[:end], self._carried[end:]
            return self._block(text)
        parts = [self._carried]
        size = len(self._carried)
        self._carried = b""
        while not self._is_at_end:
            read = self._read()
            end = read.rfind(b"\n") + 1
            if end:
                parts.append(read[:end])
                self._carried = read[end:]
                return self._block(b"".join(parts))
            parts.append(read)
            size += len(read)
            if size > self._line_limit:
                return self._skip_long_line(b"".join(parts))
        last = b"".join(parts)
        return self._block(last + b"\n") if last else None

    def go_to(self, offset: int, until: float) -> bool:
        """Go to this place, before anything is read; whether it is reached by a time, or else go on later.

        What is compressed has to be decompressed up to there.
        """
        if self._stream.seekable():
            self._stream.seek(offset)
            self._read_bytes = offset
        while self._read_bytes < offset:
            skipped = len(self._stream.read(min(BLOCK_BYTES, offset - self._read_bytes)))
            if not skipped:
                return True  # the file is shorter now, which is noticed when the block is not there
            self._read_bytes += skipped
            if clock.monotonic() >= until:
                break
        return self._read_bytes == offset

    def again(self, block: LineBlock) -> LineBlock | None:
        """A block that was read before, at this place, and all as it was then behind it; None if it is gone."""
        kept = min(block.length, _KEPT_OF_LONG_LINE_BYTES + len(_BYTE_ORDER_MARK)) if block.is_too_long else block.length
        text: bytes = self._stream.read(kept)
        last, length = text, len(text)
        while last and length < block.length:  # of a line that is too long
            last = self._stream.read(min(BLOCK_BYTES, block.length - length))
            length += len(last)
        self._end = block.offset + length
        self._is_fresh = False
        to_next_read = -self._end % BLOCK_BYTES  # every read begins where it would have begun
        self._carried = self._stream.read(to_next_read) if to_next_read else b""
        self._read_bytes = self._end + len(self._carried)
        if length < block.length:
            return None
        if not last.endswith(b"\n") and (self._carried or self._read()):  # it was the last line
            return None
        if block.offset == 0:
            text = text.removeprefix(_BYTE_ORDER_MARK)
        if block.is_too_long:
            text = text[:_KEPT_OF_LONG_LINE_BYTES]
        elif not text.endswith(b"\n"):
            text += b"\n"
        self._line = block.first_line + (1 if block.is_too_long else text.count(b"\n"))
        return replace(block, text=text)

    def close(self) -> None:
        self._stream.close()

    def _read(self) -> bytes:
        read: bytes = self._stream.read(BLOCK_BYTES)
        self._read_bytes += len(read)
        self._is_at_end = not read
        if self._is_fresh:
            self._is_fresh = False
            return read.removeprefix(_BYTE_ORDER_MARK)
        return read

    def _block(self, text: bytes) -> LineBlock:
        block = self._placed(text, is_too_long=False)
        self._line += text.count(b"\n")
        return block

    def _placed(self, text: bytes, *, is_too_long: bool) -> LineBlock:
        begin, self._end = self._end, self._read_bytes - len(self._carried)
        return LineBlock(text, self._line, is_too_long, begin, self._end - begin)

    def _skip_long_line(self, beginning: bytes) -> LineBlock:
        while not self._is_at_end:
            read = self._read()
            line_break = read.find(b"\n")
            if line_break >= 0:
                # What follows holds perhaps many lines; they wait like the beginning of a line does.
                self._carried = read[line_break + 1 :]
                break
        block = self._placed(beginning[:_KEPT_OF_LONG_LINE_BYTES], is_too_long=True)
        self._line += 1
        return block


def first_block(path: Path, what: str) -> LineBlock | None:
    """The first lines of a file, to see what it is; None if it is empty."""
    return next(iter(_first_blocks(path, 1, what)), None)


def first_lines(path: Path, count: int, what: str) -> bytes:
    """About so many whole lines from the beginning of a file, fewer where they are very long."""
    blocks = _first_blocks(path, count, what)
    text = b"".join(block.text for block in blocks if not block.is_too_long)
    lines = text.split(b"\n", count)
    return text if len(lines) <= count else b"\n".join(lines[:count]) + b"\n"


def _first_blocks(path: Path, lines: int, what: str) -> list[LineBlock]:
    found: list[LineBlock] = []
    try:
        blocks = LineBlocks(path)
        try:
            while sum(block.text.count(b"\n") for block in found) < lines and len(found) < _FIRST_BLOCKS_MOST:
                block = blocks.next()
                if block is None:
                    break
                found.append(block)
            return found
        finally:
            blocks.close()
    except (pa.ArrowException, OSError) as error:
        raise FlowError(f"{what}: '{path}' cannot be read ({error}); check the file.") from error
