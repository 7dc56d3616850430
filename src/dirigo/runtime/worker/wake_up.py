"""A wake-up call for one thread that sleeps, with a bound on how long."""

from __future__ import annotations

from threading import Lock


class WakeUp:
    """Calls coalesce; ``sleep`` consumes one.

    One thread at a time may call, and a single thread sleeps. ``SimpleQueue`` is no alternative: its ``get`` in CPython 3.11
    may wait without bound if the timeout expires before it sleeps for the second time, as on a busy machine.
    """

    __slots__ = ("_silence",)

    def __init__(self) -> None:
        self._silence = Lock()  # held while there is no call
        self._silence.acquire()

    def call(self) -> None:
        """Wake the sleeper, or have its next sleep return at once."""
        if self._silence.locked():  # otherwise a call is pending, and whoever consumes it has not looked for work yet
            self._silence.release()

    def sleep(self, seconds: float) -> None:
        """Return when called, or when the time is up."""
        self._silence.acquire(timeout=seconds)
