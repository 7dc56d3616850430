"""The other workers, as one worker sees them: two sockets to each, one for control and one for data.

All messages that are due to one peer at one moment travel in one packet per link. Sending never waits: what a socket does
not take at once stays in its link and is offered again. Used under the worker's lock only, by whichever thread holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import zmq

from dirigo.kernel import Data, Message, WorkerId, job_of
from dirigo.kernel.worker_loads import TOLD_AT_ONCE, ToldLoad
from dirigo.runtime.control import Member
from dirigo.runtime.transport.fragments import cut
from dirigo.runtime.transport.keys import Keys
from dirigo.runtime.transport.link import LinkReceiver, LinkSender, SentPacket
from dirigo.runtime.transport.payload import Frame, Schemas
from dirigo.runtime.transport.reconnect import connect_again
from dirigo.runtime.transport.wire import FORMAT, PacketHead, Pressure, encode_head, stripped

CONTROL, DATA = 0, 1
LARGE_BYTES = 1 << 16  # a control message of this size would hold up the others, and no order is asked of the wire
PACKETS_IN_SOCKET = 256
PACKET_BYTES_MOST = 1 << 20  # a burst is cut into packets of about this size
RECONNECT_AFTER_S = 6.0  # a connection over which no acknowledgment comes may be dead without knowing
LOST_AFTER_S = 30.0
REPORT_AGAIN_S = 5.0  # while it stays so: other jobs may have begun meanwhile
ACKNOWLEDGE_S = 0.2  # for a few bytes nobody waits: most acknowledgments ride on what goes the other way meanwhile


class PeerLink:
    """One socket to a peer, and the link on it."""

    __slots__ = ("_connected_s", "_endpoint", "receiving", "sending", "socket")

    def __init__(self, socket: zmq.Socket[bytes], endpoint: str) -> None:
        self.socket = socket
        self._endpoint = endpoint
        self._connected_s = 0.0
        socket.connect(endpoint)
        self.sending = LinkSender()
        self.receiving = LinkReceiver()

    def offer(self) -> None:
        """Hand to the socket what it takes."""
        sending = self.sending
        for packet in sending.unsent():
            try:
                if len(packet.frames) == 1:  # which most are, and what several take is checked one by one
                    self.socket.send(packet.frames[0], zmq.NOBLOCK)
                else:
                    self.socket.send_multipart(packet.frames, zmq.NOBLOCK, copy=True)
            except zmq.Again:
                return
            sending.next_unsent = packet.number + 1

    def tend(self, now: float) -> float:
        """Offer again, after a while everything, and then over a new connection; for how long the peer has been silent."""
        sending = self.sending
        silent_s = sending.silent_s(now)
        if silent_s > RECONNECT_AFTER_S and now - self._connected_s > RECONNECT_AFTER_S:
            self._connected_s = now
            connect_again(self.socket, self._endpoint)
            sending.resend()
        elif sending.is_stuck(now):
            sending.resend()
        self.offer()
        return silent_s


class Peer:
    """Another worker."""

    __slots__ = ("links", "load_told", "member", "reported_s")

    def __init__(self, member: Member, links: tuple[PeerLink, PeerLink]) -> None:
        self.member = member
        self.links = links
        self.reported_s = 0.0  # when it was last said to be out of reach
        self.load_told = ToldLoad()


class Peers:
    """All of them."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        keys: Keys,
        worker: WorkerId,
        schemas: Schemas,
        clock: Callable[[], float],
    ) -> None:
        self._context = context
        self._keys = keys
        self._worker = worker
        self._schemas = schemas
        self._clock = clock
        self.incarnation = 0  # the own one, once the controller has told it
        self.by_worker: dict[WorkerId, Peer] = {}
        self.unacknowledged: Counter[str] = Counter()  # bytes, by job
        self.load = (0.0, 0.0)  # what others are told of the own one, with every packet
        self._turn = 0
        self._acknowledged_s = 0.0  # when all that was owed was acknowledged last

    # --- membership ----------------------------------------------------------------------------------------------------

    def set_members(self, members: Iterable[Member]) -> None:
        """Connect to newcomers, and let go of whoever left or came back as another process."""
        wanted = {member.worker: member for member in members if member.worker != self._worker}
        for worker, peer in list(self.by_worker.items()):
            if wanted.get(worker) != peer.member:
                self._drop(worker)
        for worker, member in wanted.items():
            if worker not in self.by_worker:
                control, data = (PeerLink(self._socket(member.key), each) for each in (member.control, member.data))
                self.by_worker[worker] = Peer(member, (control, data))

    def _socket(self, key: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.PUSH)
        socket.sndhwm = PACKETS_IN_SOCKET
        socket.linger = 0
        socket.reconnect_ivl = 50
        socket.reconnect_ivl_max = 1000
        self._keys.secure_client(socket, key)
        return socket

    def _drop(self, worker: WorkerId) -> None:
        peer = self.by_worker.pop(worker)
        for link in peer.links:
            link.socket.close(0)
            for packet in link.sending.kept:
                self._settle(packet)

    def close(self) -> None:
        for worker in list(self.by_worker):
            self._drop(worker)

    # --- sending -------------------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message]) -> Sequence[Unsendable]:
        """Send messages, each to the worker that it names; returns those that cannot be sent. The others are under way."""
        if len(messages) == 1:
            return self._send_to(messages[0].worker, messages)
        by_worker: dict[WorkerId, list[Message]] = {}
        for message in messages:
            by_worker.setdefault(message.worker, []).append(message)
        unsendable: list[Unsendable] = []
        for worker, its in by_worker.items():
            unsendable += self._send_to(worker, its)
        return unsendable

    def send_pressure(self, pressure: Pressure, workers: Iterable[WorkerId]) -> None:
        for worker in workers:
            self._send_to(worker, (pressure,))

    def _send_to(self, worker: WorkerId, messages: Sequence[Message | Pressure]) -> Sequence[Unsendable]:
        peer = self.by_worker.get(worker)
        if peer is None:
            return ()  # it is gone, and the jobs that it served fail anyway
        unsendable: list[Unsendable] = []
        builders: dict[int, PacketBuilder] = {}  # by link; nearly always one
        for message in messages:
            if type(message) is Pressure:
                header, frames, size, schemas = message, (), 0, ()
            else:
                try:
                    header, frames, size, schemas = stripped(message, self._schemas)  # type: ignore[arg-type,assignment]
                except Exception as error:  # a payload of the user's that cannot be pickled
                    unsendable.append(Unsendable(message, error))  # type: ignore[arg-type]
                    continue
            link = DATA if type(message) is Data or size > LARGE_BYTES else CONTROL
            builder = builders.get(link)
            if builder is None:
                builder = builders[link] = PacketBuilder()
            builder.messages.append(message)
            builder.headers.append(header)
            if size:
                builder.frames += frames
                builder.size += size
                builder.schemas += schemas
                job = job_of(message.to)  # type: ignore[union-attr]
                builder.charges[job] = builder.charges.get(job, 0) + size
                if builder.size >= PACKET_BYTES_MOST:
                    unsendable += self._post(peer, link, builder)
                    del builders[link]
        for link, builder in builders.items():
            unsendable += self._post(peer, link, builder)
        return unsendable

    def _post(self, peer: Peer, link_number: int, builder: PacketBuilder) -> Sequence[Unsendable]:
        link = peer.links[link_number]
        sending = link.sending
        new: tuple[tuple[int, bytes], ...] = ()
        if builder.schemas and not sending.schemas_sent.issuperset(builder.schemas):
            unknown = [number for number in dict.fromkeys(builder.schemas) if number not in sending.schemas_sent]
            new = tuple((number, self._schemas.texts[number]) for number in unknown)
        number = sending.last + 1
        head = self._head(peer, number, new, tuple(builder.headers))
        try:
            encoded = encode_head(head)
        except Exception as error:  # something that a strategy notes
            peer.links[CONTROL].receiving.is_missing |= head.is_missing  # which has not been told now
            if len(builder.messages) == 1:
                return (Unsendable(builder.messages[0], error),)  # type: ignore[arg-type]
            return [each for message in builder.messages for each in self._send_to(peer.member.worker, (message,))]
        if new:
            sending.schemas_sent.update([known for known, _ in new])
        charges = tuple(builder.charges.items())
        for job, size in charges:
            self.unacknowledged[job] += size
        sending.add(SentPacket(number, cut([encoded, *builder.frames]), charges), self._clock())
        link.offer()
        return ()

    def _head(self, peer: Peer, number: int, schemas: tuple[tuple[int, bytes], ...], headers: tuple[Any, ...]) -> PacketHead:
        """The head of a packet; acknowledgments ride on whatever goes the other way."""
        control, data = (link.receiving for link in peer.links)
        member = peer.member
        is_missing = control.is_missing or data.is_missing
        acks = (control.last, data.last)
        control.told()
        data.told()
        own = (FORMAT, self._worker, self.incarnation)
        peer.load_told.note(self.load, self._clock())
        return PacketHead(*own, member.worker, member.incarnation, number, acks, is_missing, self.load, schemas, headers)

    # --- receiving -----------------------------------------------------------------------------------------------------

    def accept(self, link_number: int, head: PacketHead, size: int) -> str | None:
        """Note a packet that has come; returns why it is not to be used, if so."""
        peer = self.by_worker.get(head.sender)
        if peer is None or head.incarnation != peer.member.incarnation or head.to_incarnation != self.incarnation:
            return "a packet of a worker that is not a member"
        if head.to != self._worker:
            return "a packet for another worker"
        for link, acknowledged in zip(peer.links, head.acks, strict=True):
            if acknowledged > link.sending.last:
                return "an acknowledgment of what was never sent"
            if link.sending.kept:
                for packet in link.sending.acknowledge(acknowledged, self._clock()):
                    self._settle(packet)
            if head.is_missing:
                link.sending.resend()
                link.offer()
        if head.number == 0:
            return ""
        receiving = peer.links[link_number].receiving
        is_next = receiving.accept(head.number, size)
        if receiving.owes_now():
            self._acknowledge(peer)
        return None if is_next else ""

    def _settle(self, packet: SentPacket) -> None:
        for job, size in packet.charges:
            self.unacknowledged[job] -= size
            if self.unacknowledged[job] <= 0:
                del self.unacknowledged[job]

    def _acknowledge(self, peer: Peer) -> None:
        try:
            peer.links[CONTROL].socket.send(encode_head(self._head(peer, 0, (), ())), zmq.NOBLOCK)
        except zmq.Again:
            peer.links[CONTROL].receiving.is_missing = True  # tell later

    def tell_load(self) -> None:
        """Tell some of those, in turn, that believe something quite different; others hear of it with the next packet."""
        peers = list(self.by_worker.values())
        now = self._clock()
        for _ in range(min(len(peers), TOLD_AT_ONCE)):
            self._turn += 1
            peer = peers[self._turn % len(peers)]
            if peer.load_told.is_news(self.load, now):
                self._acknowledge(peer)

    def tend(self) -> list[Peer]:
        """Now and then: offer again, acknowledge what is owed, and return peers that have been silent for too long."""
        now = self._clock()
        is_time = now - self._acknowledged_s >= ACKNOWLEDGE_S
        if is_time:
            self._acknowledged_s = now
        silent = []
        for peer in self.by_worker.values():
            silent_s = max([link.tend(now) for link in peer.links])
            if silent_s > LOST_AFTER_S and now - peer.reported_s >= REPORT_AGAIN_S:
                peer.reported_s = now
                silent.append(peer)
            if any(link.receiving.owes_soon() if is_time else link.receiving.owes_much() for link in peer.links):
                self._acknowledge(peer)
        return silent


class Unsendable(NamedTuple):
    """A message that cannot be turned into bytes."""

    message: Message
    error: Exception


class PacketBuilder:
    """A packet in the making."""

    __slots__ = ("charges", "frames", "headers", "messages", "schemas", "size")

    def __init__(self) -> None:
        self.messages: list[Message | Pressure] = []
        self.headers: list[Any] = []
        self.frames: list[Frame] = []
        self.schemas: list[int] = []
        self.charges: dict[str, int] = {}  # bytes, by job
        self.size = 0
