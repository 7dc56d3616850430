"""What the controller has done beside its own thread, because it waits for a disk: one thing after the other."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from dirigo.runtime.threads import OnEscape, ServiceThread

Work = Callable[[], Callable[[], None]]  # returns what is then to be done on the controller's thread


class SideWork:
    """A thread that works off a queue. ``hand_back`` has something done on the controller's thread."""

    def __init__(self, name: str, hand_back: Callable[[Callable[[], None]], None], on_escape: OnEscape) -> None:
        self._hand_back = hand_back
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = ServiceThread(self._run, name=name, on_escape=on_escape)

    def start(self) -> None:
        self._thread.start()

    def put(self, work: Work) -> None:
        self._queue.put(work)

    def stop(self) -> None:
        """Once all that was asked for is done."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            self._hand_back(work())
