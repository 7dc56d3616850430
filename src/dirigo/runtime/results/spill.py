"""Bytes that are too many for memory, in a file without a name: it is gone with its process."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO

from dirigo.runtime.results.log.record import read_fully


class Spill:
    """What was put there is taken once. The file is made for the first piece, and removed with the last one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._end = 0
        self._left = 0

    def put(self, piece: bytes) -> range:
        """Returns where it lies."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - it stays open
            self._end = 0
        place = range(self._end, self._end + len(piece))
        left = memoryview(piece)
        while left:  # a disk that is almost full takes a part
            left = left[os.pwrite(self._file.fileno(), left, place.stop - len(left)) :]
        self._end = place.stop
        self._left += 1
        return place

    def take(self, place: range) -> bytes:
        assert self._file is not None, "it was taken before"
        piece = read_fully(self._file.fileno(), len(place), place.start)
        self._left -= 1
        if not self._left:
            self.close()
        return piece

    def close(self) -> None:
        """Forget what is left."""
        self._left = 0
        if self._file is not None:
            self._file.close()
            self._file = None
