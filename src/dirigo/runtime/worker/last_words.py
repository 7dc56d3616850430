"""What a worker process was doing when it ended without a word: the process that takes its place reads it and tells.

The actor whose message is about to run is noted in a few bytes of shared memory, in the folder of the process. Both outlive
the process. It works where the new process starts on the same host, as it does unless the host is gone.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path

_BYTES = 512
_DOING = "doing"
_FROZEN = "frozen"


class LastWords:
    """The notes of the process in one slot."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _DOING
        self._frozen = folder / _FROZEN
        self.doing = ""
        self.before: str | None = None  # what the process in the same slot did that ended before this one
        self.before_frozen = False
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(descriptor, _BYTES)
            self._memory = mmap.mmap(descriptor, _BYTES)
        finally:
            os.close(descriptor)
        self.frozen_file = os.fdopen(os.open(self._frozen, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w")

    def note(self, address: str) -> None:
        """The actor that is about to run; empty when nothing runs."""
        self.doing = address
        text = address.encode()[: _BYTES - 1] + b"\0"
        self._memory[: len(text)] = text

    def close(self) -> None:
        """The process ends properly, and nobody need know what it did."""
        self._memory.close()
        self.frozen_file.close()
        self._path.unlink(missing_ok=True)
        self._frozen.unlink(missing_ok=True)

    def read_left(self, folder: Path) -> None:
        """Read what a process that ended without a word has left in its folder."""
        with suppress(OSError):
            text = (folder / _DOING).read_bytes().split(b"\0", 1)[0]
            self.before = text.decode(errors="replace") or self.before
        with suppress(OSError):
            self.before_frozen |= (folder / _FROZEN).stat().st_size > 0
