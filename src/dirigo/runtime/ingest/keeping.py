"""A thread of a worker for what is done with kept rows: it waits for a disk, which neither messages nor functions should."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock
from typing import Final

from dirigo.runtime.threads import ServiceThread

_log = logging.getLogger(__name__)
_STOP_S: Final = 1.0


class RowKeeping:
    """Works off a queue, in order. The thread begins with the first thing that is asked for."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: ServiceThread | None = None
        self._lock = Lock()

    def put(self, work: Callable[[], None]) -> None:
        """Called by any thread."""
        self._queue.put(work)
        with self._lock:
            if self._thread is None:
                self._thread = ServiceThread(self._run, name="kept rows", on_escape=_log.critical)
                self._thread.start()

    def stop(self) -> None:
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception as error:  # a disk may fail in any way; what was not forgotten is with the next snapshot
                _log.warning("kept rows: %s", error)
