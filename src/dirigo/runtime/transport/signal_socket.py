"""A signal that one thread rings and another one, which polls sockets, hears."""

from __future__ import annotations

import os
from contextlib import suppress


class SignalSocket:
    """Rings once, however often it is rung, until it is silenced."""

    def __init__(self) -> None:
        self.descriptor, self._in = os.pipe()  # the poller polls the first
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._in, False)
        self._is_ringing = False

    def ring(self) -> None:
        if not self._is_ringing:
            self._is_ringing = True
            with suppress(BlockingIOError):
                os.write(self._in, b"!")

    def silence(self) -> None:
        """Call this before looking at what the signal was rung for, so that nothing is overlooked."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 4096)
        self._is_ringing = False

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self._in)
