"""The two sockets at which a worker gets the packets of others, and how it takes them in."""

from __future__ import annotations

import time

import zmq

from dirigo.runtime.site import Site
from dirigo.runtime.wire import BadPacketError, Broken, Head, Pressure, decode_head, decode_messages

_PACKETS_AT_ONCE = 32


class Lanes:
    """Of one worker; used by the thread that fetches."""

    def __init__(self, site: Site, sockets: tuple[zmq.Socket[bytes], zmq.Socket[bytes]]) -> None:
        """``sockets``: the lane of control messages, and that of data."""
        self._site = site
        self.sockets = sockets

    def take_in(self, lane: int) -> None:
        """Take packets in, without unpacking what they carry."""
        site, socket = self._site, self.sockets[lane]
        for _ in range(_PACKETS_AT_ONCE):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                head = decode_head(frames)
                with site.lock:
                    problem = site.peers.accept(lane, head, sum(map(len, frames)))
                    if not problem:
                        site.worker.now = time.time()
                        site.worker.note_load(head.sender, head.load)
                if problem is None:
                    self._deliver(head, frames)
                elif problem:
                    site.refusals.note(problem)
            except BadPacketError as error:
                site.refusals.note("a malformed packet", str(error))

    def _deliver(self, head: Head, frames: list[bytes]) -> None:
        """Hand over the messages of a packet that counts as arrived: if they cannot be read, their jobs are lost."""
        site = self._site
        try:
            messages = decode_messages(head, frames, site.schemas)
        except BadPacketError as error:
            broken = {message.to for message in head.messages if not isinstance(message, Pressure)}
            messages = [Broken(to, str(error)) for to in broken]
            site.refusals.note("a malformed packet", str(error))
        with site.lock:
            site.deliver(messages)
