"""Threads that a service depends on: none of them ends unnoticed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)

OnEscape = Callable[[str], None]


class ServiceThread(threading.Thread):
    """A daemon thread. If an exception escapes from it, that is logged, and ``on_escape`` is called with one sentence.

    Whoever depends on the thread passes an ``on_escape`` that marks it as failed, or ends it. It is called on the thread
    that ends, so it must be safe there and must not wait for the thread.
    """

    def __init__(self, target: Callable[..., object], *, name: str, on_escape: OnEscape, args: tuple[Any, ...] = ()) -> None:
        super().__init__(name=name, daemon=True)
        self._work = target
        self._work_args = args
        self._on_escape = on_escape

    def run(self) -> None:
        try:
            self._work(*self._work_args)
        except BaseException as error:  # whatever it is, the thread ends by it
            _log.critical("the thread '%s' ended by an error", self.name, exc_info=True)
            told = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
            self._on_escape(f"the thread '{self.name}' of the service ended by an error: {told}")
