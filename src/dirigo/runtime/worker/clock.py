"""What time it is for a worker: the time of day, without its jumps.

Messages carry times of day, because objectives are kept across hosts. But a worker also waits by the same clock, for
sources and timers, and the system's time of day may be set back or forth at any moment. So the clock of a worker runs with
the monotonic one, and follows the time of day slowly: a little faster or slower until both agree. It never stands still, and
it never goes back. Only when the time of day is far ahead, as after the machine has slept, it is adopted at once.
"""

from __future__ import annotations

import logging
import time

_log = logging.getLogger(__name__)

SLEW = 0.05  # how much faster or slower it runs while it follows: a minute takes twenty
AGREES_S = 0.002  # less than this need not be followed
TOLD_S = 1.0  # more than this is worth a line in the worker's log
AHEAD_MOST_S = 600.0  # a time of day that is ahead by more than this is adopted at once


class WorkerClock:
    """Call it for the time of day in seconds. Whoever has the time calls ``follow`` now and then, always the same thread."""

    __slots__ = ("_has_told", "_line")

    def __init__(self) -> None:
        self._line = (time.time(), time.monotonic(), 1.0)  # (time of day, monotonic time then, its speed since)
        self._has_told = False

    def __call__(self) -> float:
        day_s, since_s, speed = self._line
        return day_s + (time.monotonic() - since_s) * speed

    def follow(self) -> None:
        """Look at the time of day, and go faster or slower if it is another one."""
        day_s, since_s, speed = self._line
        monotonic_s, system_s = time.monotonic(), time.time()
        now_s = day_s + (monotonic_s - since_s) * speed
        ahead_s = system_s - now_s
        self._tell(ahead_s)
        if ahead_s > AHEAD_MOST_S:
            self._line = (system_s, monotonic_s, 1.0)
        elif abs(ahead_s) > AGREES_S:
            wanted = 1.0 + SLEW if ahead_s > 0 else 1.0 - SLEW
            if wanted != speed:
                self._line = (now_s, monotonic_s, wanted)
        elif speed != 1.0:
            self._line = (now_s, monotonic_s, 1.0)

    def _tell(self, ahead_s: float) -> None:
        is_far = abs(ahead_s) > TOLD_S
        if is_far and not self._has_told:
            _log.warning(
                "the clock of this machine was set by %+.1f s; messages are scheduled as if it had not been, "
                "and their times follow within %.0f minutes",
                ahead_s,
                0.0 if ahead_s > AHEAD_MOST_S else abs(ahead_s) / SLEW / 60,
            )
        self._has_told = is_far
