"""Who gets in: over real sockets, with the right keys, with wrong ones, with none, and with no idea of the protocol."""

from __future__ import annotations

import logging
import os
import socket as sockets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest
import zmq

from dirigo.runtime.transport.authenticator import Authenticator, Refusals
from dirigo.runtime.transport.keys import CLIENT, ROLES, KeyPair, KeyRing, Keys
from runtime.clusters import until

STRANGER, KEYLESS = "a stranger's key", "a connection without the cluster's keys"


class Door:
    """A process's listening socket behind a authenticator, polled by a thread as the fetcher and the controller do."""

    def __init__(self) -> None:
        self.ring = KeyRing()
        self.keys = self.ring.keys_of(CLIENT)
        self.refusals = Refusals("the door")
        self.received: list[bytes] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._authenticator = Authenticator(self._context, {"door": self.ring.admitted((CLIENT,))}, self.refusals)
        self._socket = self._context.socket(zmq.PULL)
        self._socket.linger = 0
        self.ring.server.secure_server(self._socket, "door")
        self._authenticator.watch(self._socket)
        self.port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self._is_done = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        poller = zmq.Poller()
        for each in (self._socket, self._authenticator.socket, *self._authenticator.monitors):
            poller.register(each, zmq.POLLIN)
        while not self._is_done:
            ready = dict(poller.poll(20))
            if self._authenticator.socket in ready:
                self._authenticator.answer()
            for monitor in self._authenticator.monitors:
                if monitor in ready:
                    self._authenticator.look(monitor)
            self._authenticator.tend()
            if self._socket in ready:
                self.received.append(self._socket.recv())

    def close(self) -> None:
        self._is_done = True
        self._thread.join()
        self._authenticator.close()
        self._socket.close(0)
        self._context.term()


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.close()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    while SOCKETS:
        SOCKETS.pop().close(0)
    made.term()


SOCKETS: list[zmq.Socket[bytes]] = []


def pusher(context: zmq.Context[zmq.Socket[bytes]], door: Door, keys: Keys | None) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PUSH)
    SOCKETS.append(socket)
    socket.linger = 0
    socket.reconnect_ivl = 50
    if keys is not None:
        keys.secure_client(socket)
    socket.connect(f"tcp://127.0.0.1:{door.port}")
    return socket


def with_client_of(keys: Keys, other: Keys) -> Keys:
    """Somebody who knows whom to talk to, but is somebody else."""
    return Keys(keys.role, keys.server_public, other.public, other.secret)


def test_who_has_the_keys_gets_in_and_may_go_again(door: Door, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    for number in range(20):
        socket = pusher(context, door, door.keys)
        socket.send(b"hello %d" % number)
        until(lambda number=number: len(door.received) > number, "the message")  # type: ignore[misc]
        socket.close(0)
    assert door.received == [b"hello %d" % number for number in range(20)]
    time.sleep(0.1)
    assert not door.refusals.counts


def test_who_comes_second_and_leaves_first_is_not_taken_for_a_stranger(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    refusals = Refusals("the door")
    authenticator = Authenticator(context, {}, refusals)
    listening = context.socket(zmq.PULL)
    SOCKETS.append(listening)
    monitor = authenticator.watch(listening)
    try:
        for event, connection in (
            (zmq.EVENT_ACCEPTED, 7),
            (zmq.EVENT_ACCEPTED, 8),
            (zmq.EVENT_HANDSHAKE_SUCCEEDED, 0),  # of 8
            (zmq.EVENT_DISCONNECTED, 8),
            (zmq.EVENT_HANDSHAKE_SUCCEEDED, 0),  # of 7
            (zmq.EVENT_DISCONNECTED, 7),
        ):
            authenticator._follow(monitor, event, connection)
        time.sleep(0.6)
        authenticator.tend()
        assert not refusals.counts
        authenticator._follow(monitor, zmq.EVENT_ACCEPTED, 9)
        authenticator._follow(monitor, zmq.EVENT_DISCONNECTED, 9)
        time.sleep(0.6)
        authenticator.tend()
        assert refusals.counts == {KEYLESS: 1}
    finally:
        listening.disable_monitor()
        authenticator.close()


def test_a_wrong_client_key_is_refused_counted_and_logged_once(
    door: Door, context: zmq.Context[zmq.Socket[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with suppress(zmq.Again):
                pusher(context, door, with_client_of(door.keys, KeyRing().keys_of(CLIENT))).send(b"let me in", zmq.NOBLOCK)
        until(lambda: door.refusals.counts[STRANGER] >= 3, "three refusals")
    assert door.received == []
    assert not door.refusals.counts[KEYLESS]
    assert sum(STRANGER in record.getMessage() for record in caplog.records) == 1
    assert "the door refused" in caplog.text


@pytest.mark.parametrize("who", ["keys of another run", "no keys at all"])
def test_who_has_no_keys_is_refused_counted_and_logged_once(
    who: str, door: Door, context: zmq.Context[zmq.Socket[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    socket = pusher(context, door, KeyRing().keys_of(CLIENT) if who == "keys of another run" else None)
    with caplog.at_level(logging.WARNING):
        until(lambda: door.refusals.counts[KEYLESS], "it is refused")
        other = pusher(context, door, KeyRing().keys_of(CLIENT))
        until(lambda: door.refusals.counts[KEYLESS] > 1, "and so are others")
    for each in (socket, other):
        with suppress(zmq.Again):  # into their own queue, if they have one between two attempts, and no further
            each.send(b"let me in", zmq.NOBLOCK)
    pusher(context, door, door.keys).send(b"hello")
    until(lambda: door.received, "others get through")
    assert door.received == [b"hello"]
    assert sum(KEYLESS in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(
    "text",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(4_000), b"\xff" + bytes(8) + b"\x7f" + os.urandom(200), b"\0" * 100],
    ids=["http", "random", "greeting", "zeros"],
)
def test_bytes_that_are_no_greeting_are_refused_and_harm_nobody(
    text: bytes, door: Door, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    for _ in range(20):
        with sockets.create_connection(("127.0.0.1", door.port)) as stranger:
            stranger.sendall(text)
            stranger.settimeout(0.05)
            try:
                while stranger.recv(1_000):
                    pass
            except OSError:
                pass
    until(lambda: door.refusals.counts[KEYLESS] >= 20, "they are counted")
    assert door.received == []
    pusher(context, door, door.keys).send(b"hello")
    until(lambda: door.received == [b"hello"], "others get through")


def test_connections_that_say_nothing_are_no_matter(door: Door, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    strangers = [sockets.create_connection(("127.0.0.1", door.port)) for _ in range(50)]
    pusher(context, door, door.keys).send(b"hello")
    until(lambda: door.received, "others get through")
    for stranger in strangers:
        stranger.close()
    time.sleep(0.05)
    assert door.received == [b"hello"]


def test_keys_are_not_shown() -> None:
    for keys in (KeyRing().keys_of(CLIENT), KeyPair.new()):
        assert keys.secret not in repr(keys)
        assert keys.secret not in f"{keys} {keys!r}"
    assert KeyPair.new() != KeyPair.new()


def test_all_keys_of_a_run_differ() -> None:
    ring = KeyRing()
    pairs = [(ring.server.public, ring.server.secret), *((keys.public, keys.secret) for keys in map(ring.keys_of, ROLES))]
    assert len({text for pair in pairs for text in pair}) == 2 * (1 + len(ROLES))
    assert all(ring.server.secret not in msgspec.json.encode(ring.keys_of(role)).decode() for role in ROLES)
