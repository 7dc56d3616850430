"""Who may connect: answers the question that the socket library asks about each newcomer, and counts who was turned away.

The library asks over a socket inside the process (its ZAP protocol). Whoever owns the process's poll loop polls ``socket``
and calls ``answer``. What is answered is the role of the newcomer, which comes with each of its messages: see ``role_of``.

Connections that do not even shake hands are seen by a monitor of the listening socket, and counted by ``tend``, which is
called now and then. A bounded number of them is kept: the oldest make room for others.
"""

from __future__ import annotations

import logging
import os
import socket as sockets
import struct
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from dirigo.runtime.transport.keys import HANDSHAKE_S

_log = logging.getLogger(__name__)
_SETTLED = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)  # the authenticator itself counts those whose key is wrong
_WATCHED = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | sum(_SETTLED)
_EVENTS_AT_ONCE = 64
_SETTLES_WITHIN_S = 0.5  # after it has left, at the latest, the news come that a connection had shaken hands
HALF_OPEN_MOST: Final = 256  # connections per listening socket that have not told who they are
# What a server says before it knows who has connected: the greeting of ZMTP, and the WELCOME of CURVE in its frame.
# What it says next are 60 bytes and more; some systems count one more byte for the connection itself.
_SAID_TO_STRANGERS_BYTES: Final = 64 + 170 + 16
_TCP_INFO_BYTES: Final = 192
_BYTES_ACKED: Final = struct.Struct("@Q")  # in Linux's tcp_info
_BYTES_ACKED_AT: Final = 120

Doors = Mapping[str, Mapping[str, str]]  # by the name of a door: who is let in, by public key, and in which role


class Refusals:
    """Counts what was refused, by reason; the first of each kind is logged."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.counts: Counter[str] = Counter()

    def note(self, reason: str, detail: str = "") -> None:
        self.counts[reason] += 1
        if self.counts[reason] == 1:
            _log.warning("%s refused: %s%s; more of this kind are only counted", self.who, reason, detail and f" ({detail})")


def role_of(frame: zmq.Frame) -> str:
    """The role of who has sent a frame; the authenticator has given it, not the sender. Empty if none was given."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""


class Authenticator:
    """The doors of one process."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], doors: Doors, refusals: Refusals) -> None:
        self._doors = {
            door.encode(): {z85.decode(key.encode()): role.encode() for key, role in admitted.items()}
            for door, admitted in doors.items()
        }
        self._refusals = refusals
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")
        self.monitors: list[zmq.Socket[bytes]] = []
        self._newcomers: dict[zmq.Socket[bytes], dict[int, None]] = {}  # connections that have not shaken hands, by monitor
        self._left: dict[zmq.Socket[bytes], deque[float]] = {}  # when those left that seem not to have, by monitor
        self._young: dict[zmq.Socket[bytes], dict[int, float]] = {}  # connections, and when they came, by monitor
        self.broken = 0  # connections that have ended so far

    def watch(self, socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
        """Notice handshakes that fail at a listening socket; poll what is returned and call ``look``."""
        monitor = socket.get_monitor_socket(_WATCHED)
        self.monitors.append(monitor)
        self._newcomers[monitor] = {}
        self._left[monitor] = deque()
        self._young[monitor] = {}
        return monitor

    def answer(self) -> None:
        """Let in whoever has a key of that door, in the role that it stands for."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            version, request = frames[0], frames[1]
            role = None
            if len(frames) >= 7 and frames[5] == b"CURVE":
                role = self._doors.get(frames[2], {}).get(frames[6])
            if role is None:
                self._refusals.note("a stranger's key")
            verdict = (b"400", b"unknown key", b"") if role is None else (b"200", b"OK", role)
            self.socket.send_multipart([version, request, *verdict, b""])

    def look(self, monitor: zmq.Socket[bytes]) -> None:
        """Follow who comes, shakes hands and leaves."""
        for _ in range(_EVENTS_AT_ONCE):
            if not monitor.poll(0):
                return
            event = recv_monitor_message(monitor)
            kind, connection = int(event["event"]), int(event["value"])
            self._follow(monitor, kind, connection)
            if kind == zmq.EVENT_ACCEPTED:
                self._keep_few(monitor, connection, int(event["endpoint"].rpartition(b":")[2]))

    def _follow(self, monitor: zmq.Socket[bytes], event: int, connection: int) -> None:
        """Note a connection that ends before it has shaken hands: of some the library tells no more than this.

        It is not told who has shaken hands. If two come at once, and the second one is done and gone first, the news that
        were taken for its own are the first one's, and the other way round.
        """
        newcomers, left = self._newcomers[monitor], self._left[monitor]
        if event == zmq.EVENT_ACCEPTED:
            newcomers[connection] = None
        elif event in _SETTLED:
            if newcomers:
                del newcomers[next(iter(newcomers))]
            elif left:
                left.popleft()
        elif connection in newcomers:
            del newcomers[connection]
            left.append(time.monotonic())
        if event == zmq.EVENT_DISCONNECTED:
            self.broken += 1
            self._young[monitor].pop(connection, None)

    def _keep_few(self, monitor: zmq.Socket[bytes], connection: int, port: int) -> None:
        """Make room for a newcomer, if too many have not told who they are: cut off the one that has been at it longest.

        Who has shaken hands is done within milliseconds, so it is hardly ever one with keys.
        """
        young = self._young[monitor]
        young.pop(connection, None)  # another one had this number before
        young[connection] = now = time.monotonic()
        while len(young) > HALF_OPEN_MOST:
            oldest, came_s = next(iter(young.items()))
            del young[oldest]
            if now - came_s < HANDSHAKE_S and _cut_if_half_open(oldest, port):
                self._refusals.note("one of too many connections that do not tell who they are")
                return

    def tend(self) -> None:
        """Count those who left without having shaken hands."""
        before = time.monotonic() - _SETTLES_WITHIN_S
        for left in self._left.values():
            while left and left[0] <= before:
                left.popleft()
                self._refusals.note("a connection without the cluster's keys")

    def close(self) -> None:
        for monitor in self.monitors:
            monitor.close(0)
        self.socket.close(0)


def _cut_if_half_open(connection: int, port: int) -> bool:
    """Cut off a connection to a port of ours, if its other side has not told who it is.

    The library does not tell which connections have. But until then it says the same few bytes to everybody, and the
    system knows how many of them have arrived. (Where it does not, connections are bounded by their time alone.)
    """
    if not hasattr(sockets, "TCP_INFO"):
        return False
    try:
        with sockets.socket(fileno=os.dup(connection)) as accepted:  # which the library may have closed meanwhile
            if accepted.getsockname()[1] != port:
                return False
            told = accepted.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, _TCP_INFO_BYTES)
            if len(told) < _BYTES_ACKED_AT + _BYTES_ACKED.size:
                return False
            if _BYTES_ACKED.unpack_from(told, _BYTES_ACKED_AT)[0] > _SAID_TO_STRANGERS_BYTES:
                return False
            accepted.shutdown(sockets.SHUT_RDWR)  # the library sees it, and closes
            return True
    except OSError:
        return False
