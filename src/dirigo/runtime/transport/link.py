"""One direction between two processes: packets are numbered, kept until they are acknowledged, and sent again after a gap.

The socket library reconnects by itself but loses what was under way. Here nothing is lost while both processes live: the
sender keeps each packet until the receiver has acknowledged it; the receiver takes packets strictly in order, drops what it
has had, and asks again for what is missing. Pure: whoever has the
sockets and the clock (``PeerLink``, ``ControlLink``) sends what this says is to be sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from dirigo.runtime.transport.payload import Frame

RESEND_AFTER_S = 2.0  # without any acknowledgment
OFFERED_AT_ONCE = 64
ACK_PACKETS, ACK_BYTES = 16, 1 << 18  # acknowledge at least this often
MUCH_BYTES = 1 << 14  # which a sender should not count as under way for long


class SentPacket(NamedTuple):
    """A packet, and whose bytes it carries."""

    number: int
    frames: Sequence[Frame]
    charges: Sequence[tuple[str, int]]  # (job, bytes)


class LinkSender:
    """The sender's end."""

    __slots__ = ("_progress_s", "_resent_s", "kept", "last", "next_unsent", "schemas_sent")

    def __init__(self) -> None:
        self.last = 0  # number of the newest packet
        self.kept: deque[SentPacket] = deque()  # not acknowledged yet, in order
        self.next_unsent = 1  # number of the first that was not handed to the socket yet
        self.schemas_sent: set[int] = set()
        self._progress_s = 0.0  # when something was last acknowledged, or the first packet kept
        self._resent_s = 0.0

    def add(self, packet: SentPacket, now: float) -> None:
        if not self.kept:
            self._progress_s = self._resent_s = now
        self.last = packet.number
        self.kept.append(packet)

    def unsent(self) -> Sequence[SentPacket]:
        """What has still to be handed to the socket."""
        waiting = self.last + 1 - self.next_unsent
        if waiting <= 1:
            return (self.kept[-1],) if waiting else ()
        return list(islice(self.kept, len(self.kept) - waiting, len(self.kept) - waiting + OFFERED_AT_ONCE))

    def acknowledge(self, number: int, now: float) -> list[SentPacket]:
        """The receiver has all packets up to this number; returns those that need not be kept any more."""
        done: list[SentPacket] = []
        while self.kept and self.kept[0].number <= number:
            done.append(self.kept.popleft())
        if done:
            self._progress_s = self._resent_s = now
            self.next_unsent = max(self.next_unsent, number + 1)
        return done

    def resend(self) -> None:
        """Send everything that is kept once more."""
        if self.kept:
            self.next_unsent = self.kept[0].number

    def is_stuck(self, now: float) -> bool:
        """Whether nothing has been acknowledged for so long that something may have been lost; true once per period."""
        if self.kept and now - self._resent_s >= RESEND_AFTER_S:
            self._resent_s = now
            return True
        return False

    def silent_s(self, now: float) -> float:
        """For how long the receiver has not acknowledged what it was sent."""
        return now - self._progress_s if self.kept else 0.0


class LinkReceiver:
    """The receiver's end."""

    __slots__ = ("_asked", "_bytes", "_packets", "is_missing", "last")

    def __init__(self) -> None:
        self.last = 0  # all packets up to this number have come
        self._asked = -1  # after which packet a gap was noticed last
        self.is_missing = False  # a gap was noticed and has not been told yet
        self._packets = self._bytes = 0  # since the last acknowledgment

    def accept(self, number: int, size: int) -> bool:
        """Whether a packet is the next one: otherwise it came before, or will come again."""
        if number == self.last + 1:
            self.last = number
            self._packets += 1
            self._bytes += size
            return True
        if number > self.last and self._asked != self.last:  # all that is behind a gap would ask for all of it again
            self._asked = self.last
            self.is_missing = True
        self._packets += 1  # a copy means that an acknowledgment was lost
        return False

    def expect(self, number: int) -> None:
        """The sender says that it has sent everything up to this number, and that it can only have got lost."""
        if number > self.last:
            self.is_missing = True

    def owes_soon(self) -> bool:
        """Whether the sender waits for an acknowledgment."""
        return self.is_missing or self._packets > 0

    def owes_much(self) -> bool:
        return self.is_missing or self._bytes >= MUCH_BYTES

    def owes_now(self) -> bool:
        return self.is_missing or self._packets >= ACK_PACKETS or self._bytes >= ACK_BYTES

    def told(self) -> None:
        self._packets = self._bytes = 0
        self.is_missing = False
