"""Standard output and error of a worker, which the functions of all jobs share: none can close them for the others."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _StaysOpen(io.TextIOWrapper):
    """A text stream that is flushed where others are closed."""

    def close(self) -> None:
        self.flush()


@contextmanager
def shared_streams() -> Iterator[None]:
    """For as long as a worker runs: streams that stay open, and a log of its own that no function can reach."""
    before = sys.stdout, sys.stderr
    log = logging.StreamHandler(_duplicate(2))
    logger = logging.getLogger("dirigo")
    logger.addHandler(log)
    sys.stdout, sys.stderr = _duplicate(1), _duplicate(2)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        logger.removeHandler(log)


def _duplicate(descriptor: int) -> io.TextIOWrapper:
    binary = os.fdopen(os.dup(descriptor), "wb")
    return _StaysOpen(binary, encoding="utf-8", errors="backslashreplace", line_buffering=True)
