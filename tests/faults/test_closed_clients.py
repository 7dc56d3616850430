"""A client can be closed at any moment, whatever its threads do: nothing waits for ever."""

from __future__ import annotations

import threading
import time

import pytest
import zmq

from dirigo.runtime.client.client import Client
from dirigo.runtime.control import Access
from dirigo.runtime.errors import ControlError
from dirigo.runtime.transport.keys import CLIENT, KeyRing, Keys

NOWHERE = "tcp://127.0.0.1:1"


def closed_while(client: Client, *, after_s: float = 0.0) -> None:
    """Close a client in a thread that may get stuck."""
    time.sleep(after_s)
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive(), "closing the client takes for ever"


class Asking:
    """A thread that asks, and keeps the error that it gets, with all that it refers to."""

    def __init__(self, client: Client) -> None:
        self.error: ControlError | None = None
        self._client = client
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        try:
            self._client.status()
        except ControlError as error:
            self.error = error


def client_to_nowhere() -> Client:
    return Client(Access("nowhere", NOWHERE, NOWHERE, KeyRing().keys_of(CLIENT)))


def test_while_a_thread_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting, is_closing = threading.Event(), threading.Event()
    secure = Keys.secure_client

    def slow(keys: Keys, socket: zmq.Socket[bytes]) -> None:
        connecting.set()
        is_closing.wait(20)
        secure(keys, socket)

    monkeypatch.setattr(Keys, "secure_client", slow)
    client = client_to_nowhere()
    asking = Asking(client)
    assert connecting.wait(20)
    threading.Timer(0.5, is_closing.set).start()
    closed_while(client)
    asking.thread.join(20)
    assert str(asking.error) == "the connection to the cluster is closed."


def test_while_threads_wait_for_answers() -> None:
    client = client_to_nowhere()
    asking = [Asking(client) for _ in range(5)]
    closed_while(client, after_s=0.3)
    for each in asking:
        each.thread.join(20)
        assert str(each.error) == "the connection to the cluster is closed."


def test_asking_a_closed_client_is_an_error() -> None:
    client = client_to_nowhere()
    client.close()
    client.close()
    with pytest.raises(ControlError, match="is closed"):
        client.status()
