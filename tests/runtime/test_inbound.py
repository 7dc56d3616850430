"""How a worker takes packets in: all that have come at once, and each judged for itself."""

from __future__ import annotations

from threading import Lock
from types import SimpleNamespace
from typing import Any

import zmq

from dirigo.kernel.interface.message import Note
from dirigo.runtime.transport.authenticator import Refusals
from dirigo.runtime.transport.payload import Schemas
from dirigo.runtime.transport.peers import CONTROL
from dirigo.runtime.transport.wire import FORMAT, PacketHead, encode_head
from dirigo.runtime.worker.inbound import InboundSockets
from runtime.packets import FROM, TO

STRANGER, COPIED = 7, 8


class Socket:
    """Has some packets, and then no more."""

    def __init__(self, *packets: list[bytes]) -> None:
        self._packets = list(packets)

    def recv_multipart(self, flags: int) -> list[bytes]:
        assert flags == zmq.NOBLOCK
        if not self._packets:
            raise zmq.Again
        return self._packets.pop(0)


class Place:
    """What a worker's core does with packets, and in which portions."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.schemas = Schemas()
        self.refusals = Refusals("a worker")
        self.clock = lambda: 5.0
        self.loads: list[int] = []
        self.delivered: list[list[Any]] = []
        self.worker = SimpleNamespace(now=0.0, note_load=lambda sender, _load: self.loads.append(sender))
        self.peers = SimpleNamespace(accept=self._accept)

    def _accept(self, lane: int, head: PacketHead, size: int) -> str | None:
        assert lane == CONTROL
        assert self.lock.locked()
        assert size > 0
        return {STRANGER: "a packet of a worker that is not a member", COPIED: ""}.get(head.sender)

    def deliver(self, messages: list[Any]) -> None:
        assert self.lock.locked()
        self.delivered.append(list(messages))


def packet(sender: int, word: str, to: str = TO) -> list[bytes]:
    note = Note(FROM, 0, to, sender, word)
    return [encode_head(PacketHead(FORMAT, sender, 1, 0, 1, 1, (0, 0), False, (0.0, 0.0), (), (note,)))]


def taken_in(*packets: list[bytes]) -> Place:
    place = Place()
    InboundSockets(place, (Socket(*packets), Socket())).take_in(CONTROL)  # type: ignore[arg-type]
    return place


def words(place: Place) -> list[list[str]]:
    return [[message.note for message in messages] for messages in place.delivered]


def test_packets_that_have_come_are_handed_over_together_and_in_order() -> None:
    place = taken_in(packet(1, "a"), packet(2, "b"), packet(1, "c"))
    assert words(place) == [["a", "b", "c"]]  # so that what they cause leaves together
    assert place.loads == [1, 2, 1]


def test_one_that_is_refused_keeps_no_other_out() -> None:
    place = taken_in(packet(1, "a"), [b"nonsense"], packet(STRANGER, "lie"), packet(COPIED, "again"), packet(2, "b"))
    assert words(place) == [["a", "b"]]
    assert place.loads == [1, COPIED, 2]  # a copy is of a peer all the same
    assert place.refusals.counts == {"a malformed packet": 1, "a packet of a worker that is not a member": 1}


def test_where_nothing_has_come_nothing_is_handed_over() -> None:
    assert taken_in().delivered == []
    assert taken_in([b"nonsense"]).delivered == []
    assert taken_in(packet(COPIED, "again")).delivered == []


def test_a_flood_leaves_room_for_what_else_a_fetcher_has_to_do() -> None:
    place = Place()
    lanes = InboundSockets(place, (Socket(*(packet(1, str(number)) for number in range(100))), Socket()))  # type: ignore[arg-type]
    lanes.take_in(CONTROL)
    assert 0 < len(words(place)[0]) < 100
    for _ in range(10):
        lanes.take_in(CONTROL)
    assert [word for lot in words(place) for word in lot] == [str(number) for number in range(100)]
