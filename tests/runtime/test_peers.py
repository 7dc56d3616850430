"""When a worker acknowledges what others have sent, if nothing goes the other way that could carry it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from dirigo.runtime.control import Member
from dirigo.runtime.transport.keys import WORKER, KeyRing
from dirigo.runtime.transport.link import MUCH_BYTES
from dirigo.runtime.transport.payload import Schemas
from dirigo.runtime.transport.peers import ACKNOWLEDGE_S, CONTROL, Peers
from dirigo.runtime.transport.wire import FORMAT, PacketHead

OTHER = 1
TEND_S = 0.02


class Place:
    """A worker with one peer, and a clock of its own."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.peers = Peers(context, KeyRing().keys_of(WORKER), 0, Schemas(), lambda: self.now)
        self.peers.incarnation = 1
        self.peers.set_members([Member(OTHER, 1, "inproc://control", "inproc://data")])
        self.acknowledged: list[float] = []
        acknowledge = self.peers._acknowledge

        def noted(peer: object) -> None:
            self.acknowledged.append(self.now)
            acknowledge(peer)  # type: ignore[arg-type]

        monkeypatch.setattr(self.peers, "_acknowledge", noted)
        self.peers.tend()

    def take(self, number: int, size: int) -> None:
        head = PacketHead(FORMAT, OTHER, 1, 0, 1, number, (0, 0), False, (0.0, 0.0), (), ())
        assert self.peers.accept(CONTROL, head, size) is None

    def tend_for(self, seconds: float) -> None:
        for _ in range(round(seconds / TEND_S)):
            self.now += TEND_S
            self.peers.tend()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with zmq.Context() as context:
        made = Place(context, monkeypatch)
        yield made
        made.peers.close()


def test_a_few_bytes_are_acknowledged_once_after_a_while(place: Place) -> None:
    for number in range(1, 6):
        place.take(number, 100)
        place.tend_for(TEND_S)
    assert not place.acknowledged
    place.tend_for(2 * ACKNOWLEDGE_S)
    assert len(place.acknowledged) == 1


def test_many_bytes_are_acknowledged_at_the_next_occasion(place: Place) -> None:
    place.take(1, MUCH_BYTES)
    assert not place.acknowledged
    place.tend_for(TEND_S)
    assert len(place.acknowledged) == 1


def test_who_sends_nothing_is_told_nothing(place: Place) -> None:
    place.tend_for(5 * ACKNOWLEDGE_S)
    assert not place.acknowledged
