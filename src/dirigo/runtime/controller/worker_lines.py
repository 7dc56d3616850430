"""The controller's end of the links to its workers: orders go out, reports come in, and a cut loses none of them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec
import zmq

from dirigo.runtime.transport.control_link import ControlHead, ControlLink, Taken, decode_head

GONE_AFTER_S = 12.0  # without a connection; a process that has died is usually started again sooner, and tells more
STUCK_AFTER_S = 15.0  # without an acknowledgment of what it was sent
FAREWELL_S = 10.0  # for a worker that was told to go to hear of it
ORDERED_BYTES_MOST = 1 << 30  # to one worker, without an acknowledgment
_encoder = msgspec.msgpack.Encoder()
_STRANGER = Taken(problem="a report of a worker that is not a member")


@dataclass
class _Line:
    """The link to one process."""

    link: ControlLink
    gone_s: float | None = None  # since when there is no connection to it, if that was noticed
    parts_at_s: float | None = None  # when it is given up, if the process was told to go


class Lines:
    """All of them, by the identity of the process. Part of the controller, on its thread."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._lines: dict[bytes, _Line] = {}

    def open(self, identity: bytes, incarnation: int) -> None:
        """A process has joined."""

        def send(head: bytes, body: bytes) -> bool:
            is_sent = self._send(identity, head, body)
            if not is_sent and line.gone_s is None:
                line.gone_s = time.monotonic()
            return is_sent

        line = self._lines[identity] = _Line(ControlLink(send, time.monotonic, incarnation))

    def close(self, identity: bytes) -> None:
        """A process is lost: nothing more is said to it, or heard of it."""
        self._lines.pop(identity, None)

    def part(self, identity: bytes) -> None:
        """A process was told to go: see that it hears so."""
        if identity in self._lines:
            self._lines[identity].parts_at_s = time.monotonic() + FAREWELL_S

    # --- sending -------------------------------------------------------------------------------------------------------

    def order(self, identity: bytes, body: bytes) -> None:
        """Something that must arrive."""
        line = self._lines.get(identity)
        if line is not None:
            line.link.post(body)

    def pulse(self, identity: bytes, body: bytes) -> None:
        """Something that may get lost."""
        line = self._lines.get(identity)
        if line is not None:
            line.link.say(body)

    def turn_away(self, identity: bytes, body: bytes) -> None:
        """Tell a process that is not let in."""
        self._send(identity, _encoder.encode(ControlHead(0, 0, 0, 0, False)), body)

    def _send(self, identity: bytes, head: bytes, body: bytes) -> bool:
        try:
            self._socket.send_multipart([identity, head, body], zmq.NOBLOCK)
        except zmq.ZMQError:  # it is gone, or will connect again
            return False
        return True

    # --- receiving -----------------------------------------------------------------------------------------------------

    def take(self, identity: bytes, head: bytes, body: bytes) -> Taken:
        """Take in a packet; raises if it is malformed."""
        decoded = decode_head(head)
        line = self._lines.get(identity)
        if line is None:
            return _STRANGER
        line.gone_s = None
        return line.link.take(decoded, len(body))

    def tend(self) -> None:
        """Now and then: offer again what could not be sent, and acknowledge what is owed."""
        now = time.monotonic()
        for identity, line in list(self._lines.items()):
            link = line.link
            link.offer()
            if link.owes_soon or line.parts_at_s is not None:  # nobody sends a pulse to one that is to go
                link.say()
            if line.parts_at_s is not None and (link.is_settled or now >= line.parts_at_s):
                del self._lines[identity]

    def is_stuck(self, identity: bytes) -> bool:
        """Whether orders do not reach a process: no connection, no acknowledgment for too long, or too much under way."""
        line = self._lines.get(identity)
        if line is None:
            return False
        if line.gone_s is not None and time.monotonic() - line.gone_s > GONE_AFTER_S:
            return True
        return line.link.silent_s() > STUCK_AFTER_S or line.link.kept_bytes > ORDERED_BYTES_MOST

    @property
    def is_settled(self) -> bool:
        """Whether everybody has everything."""
        return all(line.link.is_settled for line in self._lines.values())
