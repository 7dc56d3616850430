"""The two sockets at which a worker gets the packets of others, and how it takes them in."""

from __future__ import annotations

from collections.abc import Sequence

import zmq

from dirigo.kernel import Message
from dirigo.runtime.transport.fragments import joined
from dirigo.runtime.transport.wire import BadPacketError, Broken, PacketHead, Pressure, decode_head, decode_messages
from dirigo.runtime.worker.core import WorkerCore

_PACKETS_AT_ONCE = 32

Packet = tuple[PacketHead, list[bytes]]  # the head, and all frames


class InboundSockets:
    """Of one worker; used by the thread that fetches."""

    def __init__(self, core: WorkerCore, sockets: tuple[zmq.Socket[bytes], zmq.Socket[bytes]]) -> None:
        """``sockets``: the number of control messages, and that of data."""
        self._core = core
        self.sockets = sockets

    def take_in(self, number: int) -> None:
        """Take in what has come, up to some packets, without unpacking what they carry.

        They are handed over together: what they cause to be sent to one worker goes in one packet, and the lock is taken
        twice for all of them.
        """
        core = self._core
        packets = self._received(self.sockets[number])
        if not packets:
            return
        with core.lock:
            core.worker.now = core.clock()
            problems = [self._accept(number, head, frames) for head, frames in packets]
        arrived: list[Message | Pressure | Broken] = []
        for (head, frames), problem in zip(packets, problems, strict=True):
            if problem is None:
                arrived += self._opened(head, frames)
            elif problem:
                core.refusals.note(problem)
        if arrived:
            with core.lock:
                core.deliver(arrived)

    def _received(self, socket: zmq.Socket[bytes]) -> list[Packet]:
        packets: list[Packet] = []
        for _ in range(_PACKETS_AT_ONCE):
            try:
                frames = joined(socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
            try:
                packets.append((decode_head(frames), frames))
            except BadPacketError as error:
                self._core.refusals.note("a malformed packet", str(error))
        return packets

    def _accept(self, number: int, head: PacketHead, frames: list[bytes]) -> str | None:
        """Why a packet is not to be used, if so; empty if there is nothing in it, or it came before."""
        core = self._core
        problem = core.peers.accept(number, head, sum(map(len, frames)))
        if not problem:
            core.worker.note_load(head.sender, head.load)
        return problem

    def _opened(self, head: PacketHead, frames: list[bytes]) -> Sequence[Message | Pressure | Broken]:
        """The messages of a packet that counts as arrived: if they cannot be read, their jobs are lost."""
        try:
            return decode_messages(head, frames, self._core.schemas)
        except BadPacketError as error:
            self._core.refusals.note("a malformed packet", str(error))
            broken = {message.to for message in head.messages if not isinstance(message, Pressure)}
            return [Broken(to, str(error)) for to in broken]
