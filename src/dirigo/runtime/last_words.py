"""What a worker process was doing when it ended without a word: the process that takes its place reads it and tells.

The actor whose message is about to run is noted in a few bytes of shared memory, which outlive the process. It works where
the new process starts on the same host, as it does unless the host is gone.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

_BYTES = 512


class LastWords:
    """The notes of the process in one slot."""

    def __init__(self, run: str, worker: int) -> None:
        stem = Path(tempfile.gettempdir()) / f"dirigo-{os.getuid()}-{run}-{worker}"
        self._path = stem.with_suffix(".doing")
        self._frozen = stem.with_suffix(".frozen")
        self.before = self._read_notes()
        self.before_frozen = self._frozen.exists() and self._frozen.stat().st_size > 0
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(descriptor, _BYTES)
            self._memory = mmap.mmap(descriptor, _BYTES)
        finally:
            os.close(descriptor)
        self.frozen_file = os.fdopen(os.open(self._frozen, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w")

    def note(self, address: str) -> None:
        """The actor that is about to run; empty when nothing runs."""
        text = address.encode()[: _BYTES - 1] + b"\0"
        self._memory[: len(text)] = text

    def close(self) -> None:
        """The process ends properly, and nobody need know what it did."""
        self._memory.close()
        self.frozen_file.close()
        self._path.unlink(missing_ok=True)
        self._frozen.unlink(missing_ok=True)

    def _read_notes(self) -> str | None:
        try:
            text = self._path.read_bytes().split(b"\0", 1)[0]
        except OSError:
            return None
        return text.decode(errors="replace") or None
