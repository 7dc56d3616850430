"""A worker's end of the link to its controller: reports go out, orders come in, and a cut loses none of them."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator

import msgspec
import zmq

from dirigo.runtime import control
from dirigo.runtime.transport.authenticator import Refusals
from dirigo.runtime.transport.control_link import ControlLink, decode_head
from dirigo.runtime.transport.fragments import cut
from dirigo.runtime.transport.reconnect import connect_again

ALONE_AFTER_S = 15.0  # without the controller
RECONNECT_AFTER_S = 4.0  # it speaks every second: a connection over which nothing comes may be dead without knowing

_log = logging.getLogger(__name__)
_orders = msgspec.msgpack.Decoder(control.ToWorker)


class Line:
    """Used by the fetcher alone."""

    def __init__(self, socket: zmq.Socket[bytes], endpoint: str, refusals: Refusals) -> None:
        self.socket = socket
        self._endpoint = endpoint
        self._refusals = refusals
        self._link = ControlLink(self._send, time.monotonic)
        self._heard_s = self._connected_s = time.monotonic()
        socket.connect(endpoint)

    def greet(self, hello: control.Hello) -> None:
        """Ask to be let in. There is no link before."""
        try:
            self.socket.send_multipart(cut([control.encode(hello)]), zmq.NOBLOCK)
        except zmq.Again:
            return  # next time

    def beat(self, beat: control.Beat) -> None:
        self._link.say(control.encode(beat))

    def report(self, reports: deque[control.FromWorker]) -> None:
        """Send as much as may be under way at once; the rest waits where it is."""
        if not self._link.incarnation:
            return
        self._link.offer()
        while reports and self._link.has_room:
            self._link.post(control.encode(reports.popleft()))

    def look(self) -> None:
        """Now and then: see whether the controller is still there."""
        now = time.monotonic()
        if now - self._heard_s > ALONE_AFTER_S:
            raise ConnectionError("the controller has not been heard of; this worker ends")
        if self._link.silent_s() > ALONE_AFTER_S:
            raise ConnectionError("the controller does not hear this worker, which ends")
        if now - max(self._heard_s, self._connected_s) > RECONNECT_AFTER_S:
            self._connected_s = now
            _log.warning("the controller at %s is silent; this worker connects anew", self._endpoint)
            connect_again(self.socket, self._endpoint)
            self._link.send_again()

    def orders(self) -> Iterator[control.ToWorker]:
        """What has come."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._heard_s = time.monotonic()
            try:
                order = self._opened(frames)
            except (msgspec.DecodeError, ValueError) as error:
                self._refusals.note("a malformed order", str(error))
                continue
            if order is not None:
                yield order
        if self._link.owes_now:
            self._link.say()

    def acknowledge(self) -> None:
        """Before this worker goes: the controller should know that it need not ask again."""
        self._link.say()

    def _opened(self, frames: list[bytes]) -> control.ToWorker | None:
        head_frame, body = frames
        taken = self._link.take(decode_head(head_frame), len(body))
        if taken.problem:
            self._refusals.note(taken.problem)
        return _orders.decode(body) if taken.is_new else None

    def _send(self, head: bytes, body: bytes) -> bool:
        try:
            self.socket.send_multipart(cut([head, body]), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
