"""The thread that brings results to the disk: a slow disk holds up nobody who reads or writes.

Results are on disk when a job is said to have finished, when it has failed or was cancelled, and while it runs after
``SYNC_EVERY_S`` or ``SYNC_BYTES``, whichever comes first. Those of a job with snapshots are also before the controller
learns of a snapshot's cut; and readers see them once it is committed and that is on disk too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from dirigo.runtime.results.log import LogError, manifest
from dirigo.runtime.results.log.errors import reason_of
from dirigo.runtime.results.shelf import Cut, Shelf

SYNC_EVERY_S = 1.0
SYNC_BYTES = 8 << 20  # of one log
OnCut = Callable[[str, int, dict[str, int]], None]  # (job, snapshot, offsets by sink)
_log = logging.getLogger(__name__)


class LogSyncing:
    """Told which jobs want it at once, it looks at all others from time to time."""

    def __init__(
        self,
        shelves: Mapping[str, Shelf],
        lock: threading.Lock,
        on_ended: Callable[[str], None],
        on_failed: Callable[[Shelf, str], None],
        on_shown: Callable[[], None],
        on_cut: OnCut | None = None,
    ) -> None:
        """`lock` is around the shelves. The callbacks are called on this thread: all logs of a job are complete and on
        disk; they cannot be brought there, for this reason; readers see more; they are on disk up to the cut of a snapshot.
        """
        self._shelves = shelves
        self._lock = lock
        self._on_ended = on_ended
        self._on_failed = on_failed
        self._on_cut = on_cut
        self._on_shown = on_shown
        self._urgent: set[str] = set()  # jobs
        self._wake = threading.Condition()
        self._is_stopping = False

    def ask(self, job: str) -> None:
        """Look at a job as soon as possible."""
        with self._wake:
            self._urgent.add(job)
            self._wake.notify()

    def stop(self) -> None:
        with self._wake:
            self._is_stopping = True
            self._wake.notify()

    def run(self) -> None:
        """Until it is stopped; then everything is brought to the disk once more."""
        looked_s = time.monotonic()
        while True:
            with self._wake:
                left_s = looked_s + SYNC_EVERY_S - time.monotonic()
                if not self._urgent and not self._is_stopping and left_s > 0:
                    self._wake.wait(left_s)
                urgent, self._urgent = self._urgent, set()
                is_stopping = self._is_stopping
            if is_stopping or time.monotonic() - looked_s >= SYNC_EVERY_S:
                looked_s = time.monotonic()
                with self._lock:
                    urgent |= {job for job, shelf in self._shelves.items() if shelf.has_unsynced()}
            for job in sorted(urgent):
                self._look_after(job)
            if is_stopping:
                return

    def _look_after(self, job: str) -> None:
        with self._lock:
            shelf = self._shelves.get(job)
            if shelf is None or shelf.is_settled:
                return
            is_closed = shelf.is_closed
            complete = [log for sink in shelf.complete() if not (log := shelf.logs[sink]).ended]
            if shelf.holds_back:  # its end is one that may be taken back, until a snapshot with it is committed
                complete = []
            run, have_all_ended = shelf.run, shelf.have_all_ended
            cuts = [(number, cut) for number, cut in shelf.cuts.items() if not cut.is_synced]
            committing = shelf.committing
        try:
            for log in list(shelf.logs.values()):
                with self._lock:
                    unsynced = log.take_unsynced()
                if unsynced is not None:
                    unsynced.sync()
            if committing is not None:
                self._show(shelf, committing)
            if is_closed and not shelf.goes_on:
                self._drop_hidden(shelf)
                shelf.note()  # first: logs that have ended, without a note of a failure, are those of a job that finished
            for log in (
                list(shelf.logs.values()) if is_closed and not shelf.goes_on else complete
            ):  # nothing is appended to it any more
                log.end()
        except LogError as error:
            self._note_failure(shelf, error)
            return
        with self._lock:
            has_ended = bool(complete) and all(log.ended for log in shelf.logs.values())
            cuts = cuts if shelf.run == run and not is_closed else []  # or it was rolled back meanwhile
            for _, cut in cuts:
                cut.is_synced = True
            if shelf.holds_back and have_all_ended and shelf.run == run:
                has_ended, shelf.is_told = not shelf.is_told, True
            if is_closed:
                shelf.is_settled = True
                shelf.let_go()
        if self._on_cut is not None:
            for number, cut in cuts:
                self._on_cut(job, number, cut.offsets)
        if has_ended and not is_closed:
            self._on_ended(job)

    def _show(self, shelf: Shelf, cut: Cut) -> None:
        """Let readers see what a snapshot covers, once that is noted on disk; a sink that ended with it has ended."""
        for sink, log in shelf.logs.items():
            to = cut.offsets[sink]
            if to > log.visible:
                try:
                    manifest.mark_visible(log.folder, to)
                except OSError as error:
                    why = f"it cannot be noted in '{log.folder}' how far they may be read ({reason_of(error)})"
                    raise LogError(f"{why}; make room there.") from error
                with self._lock:
                    log.show(to)
        for sink in cut.ended:
            shelf.logs[sink].end()
        with self._lock:
            if shelf.committing is cut:
                shelf.committing = None
        self._on_shown()

    def _drop_hidden(self, shelf: Shelf) -> None:
        """A job is over. What no snapshot covers never becomes visible."""
        with self._lock:
            for log in shelf.logs.values():
                if not log.ended:
                    log.truncate(log.visible)

    def _note_failure(self, shelf: Shelf, error: LogError) -> None:
        with self._lock:
            if self._shelves.get(shelf.job) is not shelf:  # it was removed meanwhile
                return
            if shelf.is_closed:  # there is nobody to tell any more
                _log.warning("the results of job %s may be lost if the machine crashes: %s", shelf.job, error)
                shelf.is_settled = True
                shelf.let_go()
                return
        self._on_failed(shelf, f"the results cannot be kept: {error}")
