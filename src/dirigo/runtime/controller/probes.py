"""Finding out at once that a worker's process is gone, and not only when it has been silent for too long.

When some connection to the controller has broken, workers that are silent are asked whether anybody still listens where they
did. If the connection is refused, the process is gone. If it is not, or nothing comes back, the worker may be slow or out of
reach for a moment, and its heartbeats decide.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from dirigo.runtime.controller.membership import Slot

SILENT_S: Final = 0.4  # workers tell something every quarter of a second
SUSPICIOUS_S: Final = 3.0  # after a connection has broken
_ANSWERS_WITHIN_S: Final = 1.0


class Probes:
    """Used by the controller's thread alone; it never waits."""

    def __init__(self) -> None:
        self._until_s = 0.0
        self._broken = 0
        self._under_way: dict[int, tuple[socket.socket, int, float]] = {}  # worker -> (its probe, incarnation, until when)

    def note(self, broken: int, now: float) -> None:
        """So many connections have broken so far."""
        if broken != self._broken:
            self._broken, self._until_s = broken, now + SUSPICIOUS_S

    def gone(self, slots: Iterable[Slot], now: float) -> list[Slot]:
        """Workers whose process is gone, as far as is known by now."""
        if now >= self._until_s and not self._under_way:
            return []
        found = []
        for slot in slots:
            if not slot.is_there or now - slot.heard_s < SILENT_S:
                self._drop(slot.worker)
            elif self._is_refused(slot, now):
                self._drop(slot.worker)
                found.append(slot)
        return found

    def close(self) -> None:
        for worker in list(self._under_way):
            self._drop(worker)

    def _is_refused(self, slot: Slot, now: float) -> bool:
        probe = self._under_way.get(slot.worker)
        if probe is not None and probe[1] == slot.incarnation:
            connection, _, until_s = probe
            return self._outcome(slot.worker, connection, until_s, now) == errno.ECONNREFUSED
        self._drop(slot.worker)
        assert slot.hello is not None
        where = urlsplit(slot.hello.control)
        if where.hostname is None or where.port is None or now >= self._until_s:
            return False
        connection = socket.socket(socket.AF_INET6 if ":" in where.hostname else socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            code = connection.connect_ex((where.hostname, where.port))
        except OSError:  # a host whose name is not known any more, for one
            connection.close()
            return False
        self._under_way[slot.worker] = (connection, slot.incarnation, now + _ANSWERS_WITHIN_S)
        return code == errno.ECONNREFUSED

    def _outcome(self, worker: int, connection: socket.socket, until_s: float, now: float) -> int:
        """The error of a probe; 0 as long as there is none, or if there will be none."""
        _, writable, _ = select.select([], [connection], [], 0)
        if not writable and now < until_s:
            return 0
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if writable else 0
        if code != errno.ECONNREFUSED:
            self._drop(worker)
        return code

    def _drop(self, worker: int) -> None:
        probe = self._under_way.pop(worker, None)
        if probe is not None:
            with suppress(OSError):
                probe[0].close()
