"""What a thread sleeps on until another one has something for it, or until its time is up."""

from __future__ import annotations

from threading import Lock


class WakeUp:
    """A call that is kept until somebody has slept on it; several calls are one.

    ``call`` is for one thread at a time, ``sleep`` for one thread at all. A queue of the standard library would do as well,
    but for this: ``SimpleQueue.get`` of CPython 3.11 goes on without any bound if its time is up before it sleeps for the
    second time, as on a busy machine.
    """

    __slots__ = ("_silence",)

    def __init__(self) -> None:
        self._silence = Lock()  # held while there is no call
        self._silence.acquire()

    def call(self) -> None:
        """Wake up whoever sleeps, or the next one who wants to."""
        if self._silence.locked():  # or there is a call already; who takes it just now has not looked for work yet
            self._silence.release()

    def sleep(self, seconds: float) -> None:
        """Until somebody calls, for at most so long."""
        self._silence.acquire(timeout=seconds)
