"""What a worker and the controller tell each other: numbered, kept until it is acknowledged, and sent again after a gap.

The link is the one that workers have among themselves, but nothing is sent again by the clock, because an order can be as
large as the code of a job. It is not needed either: each side says something every second, a beat or a pulse, that may get
lost itself and tells the number of the newest packet before it. Whoever lacks that packet knows so, and asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from dirigo.runtime.transport.link import LinkReceiver, LinkSender, SentPacket

PACKETS_UNDER_WAY_MOST = 1_000
BYTES_UNDER_WAY_MOST = 8 << 20  # or one packet, if that is larger

_encoder = msgspec.msgpack.Encoder()


class ControlHead(msgspec.Struct, frozen=True, array_like=True):
    """What a packet begins with; a record follows, or nothing."""

    incarnation: int  # of the worker's process; 0 for one that was not let in
    number: int  # 0 for one that may get lost
    newest: int  # number of the newest packet that was sent until now
    ack: int  # the last packet that the sender has got from the receiver
    is_missing: bool  # the sender has noticed a gap, and wants everything after its acknowledgment again


class Taken(NamedTuple):
    """What has become of a packet."""

    is_new: bool = False  # its record is to be used
    problem: str = ""  # why it was refused


_heads = msgspec.msgpack.Decoder(ControlHead)
_AGAIN = Taken()
_NEW = Taken(is_new=True)


def decode_head(frame: bytes) -> ControlHead:
    """Raises ``msgspec.DecodeError`` or ``ValueError``."""
    return _heads.decode(frame)


class ControlLink:
    """One end. ``send`` hands two frames to the socket, and says whether it took them."""

    def __init__(self, send: Callable[[bytes, bytes], bool], clock: Callable[[], float], incarnation: int = 0) -> None:
        """Without an incarnation, the end of a worker that has not been let in: it takes the first that it is told."""
        self.incarnation = incarnation
        self._send = send
        self._clock = clock
        self._sending = LinkSender()
        self._receiving = LinkReceiver()
        self.kept_bytes = 0

    # --- sending -------------------------------------------------------------------------------------------------------

    def post(self, body: bytes) -> None:
        """Send something that must arrive."""
        self._sending.add(SentPacket(self._sending.last + 1, (body,), ()), self._clock())
        self.kept_bytes += len(body)
        self.offer()

    def offer(self) -> None:
        """Hand to the socket what it takes."""
        sending = self._sending
        for packet in sending.unsent():
            body: bytes = packet.frames[0]  # type: ignore[assignment]
            if not self._send(self._head(packet.number, packet.number), body):
                return
            sending.next_unsent = packet.number + 1
            self._receiving.told()

    def say(self, body: bytes = b"") -> bool:
        """Send something that may get lost, or only the acknowledgment that rides on it; whether the socket took it."""
        is_taken = self._send(self._head(0, self._sending.next_unsent - 1), body)
        if is_taken:
            self._receiving.told()
        return is_taken

    def _head(self, number: int, newest: int) -> bytes:
        receiving = self._receiving
        return _encoder.encode(ControlHead(self.incarnation, number, newest, receiving.last, receiving.is_missing))

    def send_again(self) -> None:
        """Send all that is not acknowledged once more, as over a new connection."""
        self._sending.resend()
        self.offer()

    @property
    def has_room(self) -> bool:
        """Whether more should be posted now."""
        return len(self._sending.kept) < PACKETS_UNDER_WAY_MOST and self.kept_bytes < BYTES_UNDER_WAY_MOST

    @property
    def is_settled(self) -> bool:
        """Whether the other side has everything."""
        return not self._sending.kept

    def silent_s(self) -> float:
        """For how long the other side has not acknowledged what it was sent."""
        return self._sending.silent_s(self._clock())

    # --- receiving -----------------------------------------------------------------------------------------------------

    def take(self, head: ControlHead, size: int) -> Taken:
        """A packet has come, with a record of this size."""
        if not self.incarnation:
            self.incarnation = head.incarnation
        if head.incarnation != self.incarnation:
            return Taken(problem="a packet for another process")
        if head.ack > self._sending.last:
            return Taken(problem="an acknowledgment of what was never sent")
        for packet in self._sending.acknowledge(head.ack, self._clock()):
            self.kept_bytes -= len(packet.frames[0])
        if head.is_missing:
            self._sending.resend()
        if not self.is_settled:
            self.offer()
        if head.number == 0:
            self._receiving.expect(head.newest)
            return _NEW if size else _AGAIN
        return _NEW if self._receiving.accept(head.number, size) else _AGAIN

    @property
    def owes_now(self) -> bool:
        """Whether the other side should hear soon what has come, or what has not."""
        return self._receiving.owes_now()

    @property
    def owes_soon(self) -> bool:
        return self._receiving.owes_soon()
