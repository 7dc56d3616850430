"""A link over a channel that loses, copies and reorders packets: everything arrives once, in order, and nothing is kept."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.runtime.transport.link import (
    ACK_BYTES,
    ACK_PACKETS,
    MUCH_BYTES,
    RESEND_AFTER_S,
    LinkReceiver,
    LinkSender,
    SentPacket,
)

TEND_S = 0.02


class Disturbed:
    """One direction of a wire: what is put in may get lost, come twice, overtake others, or go with a broken connection."""

    def __init__(self, rng: Random, loss: float, copies: float, reorders: bool) -> None:
        self._rng = rng
        self._loss = loss
        self._copies = copies
        self._reorders = reorders
        self.under_way: list[tuple[int, bool]] = []
        self.carried = 0

    def put(self, number: int, flag: bool = False) -> None:
        self.carried += 1
        if self._rng.random() < self._loss:
            return
        self.under_way += [(number, flag)] * (2 if self._rng.random() < self._copies else 1)

    def take(self) -> tuple[int, bool] | None:
        if not self.under_way:
            return None
        return self.under_way.pop(self._rng.randrange(len(self.under_way)) if self._reorders else 0)

    def break_connection(self) -> None:
        self.under_way.clear()


class Pair:
    """Both ends of a link, driven as ``Peers`` drives them: a packet forth, acknowledgments back."""

    def __init__(self, rng: Random, loss: float = 0.0, copies: float = 0.0, reorders: bool = False) -> None:
        self.now = 100.0
        self.forth = Disturbed(rng, loss, copies, reorders)
        self.back = Disturbed(rng, loss, copies, reorders)
        self.sending = LinkSender()
        self.receiving = LinkReceiver()
        self.arrived: list[int] = []
        self.settled: list[int] = []

    def send(self) -> None:
        self.sending.add(SentPacket(self.sending.last + 1, (b"x",), (("job", 1),)), self.now)
        self.offer()

    def offer(self) -> None:
        for parcel in self.sending.unsent():
            self.forth.put(parcel.number)
            self.sending.next_unsent = parcel.number + 1

    def deliver(self) -> None:
        packet = self.forth.take()
        if packet is not None:
            if self.receiving.accept(packet[0], 1):
                self.arrived.append(packet[0])
            if self.receiving.owes_now():
                self._acknowledge()
        ack = self.back.take()
        if ack is not None:
            self.settled += [parcel.number for parcel in self.sending.acknowledge(ack[0], self.now)]
            if ack[1]:
                self.sending.resend()
                self.offer()

    def _acknowledge(self) -> None:
        self.back.put(self.receiving.last, self.receiving.is_missing)
        self.receiving.told()

    def tend(self) -> None:
        self.now += TEND_S
        if self.sending.is_stuck(self.now):
            self.sending.resend()
        self.offer()
        if self.receiving.owes_soon():
            self._acknowledge()

    def settle(self, rounds: int) -> None:
        for _ in range(rounds):
            while self.forth.under_way or self.back.under_way:
                self.deliver()
            self.tend()
            if not self.sending.kept and not self.forth.under_way:
                return


@given(
    seed=st.integers(0, 2**32),
    packets=st.integers(0, 80),
    loss=st.sampled_from([0.0, 0.1, 0.5]),
    copies=st.sampled_from([0.0, 0.3]),
    reorders=st.booleans(),
    reconnects=st.booleans(),
)
def test_everything_arrives_once_in_order_and_nothing_is_kept(
    seed: int, packets: int, loss: float, copies: float, reorders: bool, reconnects: bool
) -> None:
    rng = Random(seed)
    pair = Pair(rng, loss, copies, reorders)
    for _ in range(packets):
        pair.send()
        for _ in range(rng.randrange(4)):
            pair.deliver()
        if rng.random() < 0.2:
            pair.tend()
        if reconnects and rng.random() < 0.1:
            pair.forth.break_connection()
            pair.back.break_connection()
        assert pair.arrived == list(range(1, len(pair.arrived) + 1))
    pair.settle(rounds=int(40 * packets * RESEND_AFTER_S / TEND_S) + 10)
    assert pair.arrived == list(range(1, packets + 1))
    assert pair.settled == pair.arrived  # each is let go of once
    assert not pair.sending.kept
    assert not pair.sending.unsent()
    assert pair.sending.silent_s(pair.now + 1000) == 0.0


def test_a_broken_connection_in_the_middle_of_a_burst_does_not_multiply_the_traffic() -> None:
    pair = Pair(Random(1))
    for _ in range(50):
        pair.send()
    del pair.forth.under_way[10:20]  # what was inside the socket when it broke
    pair.settle(rounds=1000)
    assert pair.arrived == list(range(1, 51))
    assert pair.forth.carried <= 50 + 2 * 40  # what follows the gap is sent once more, not once for each packet behind it


def test_without_any_disturbance_nothing_is_sent_twice() -> None:
    pair = Pair(Random(1))
    for _ in range(1000):
        pair.send()
        pair.deliver()
        pair.deliver()
    pair.settle(rounds=10)
    assert pair.forth.carried == 1000
    assert pair.back.carried <= 1000 // ACK_PACKETS + 1


def test_a_receiver_that_is_silent_gets_everything_again_once_per_period() -> None:
    sending = LinkSender()
    sending.add(SentPacket(1, (b"x",), ()), 5.0)
    assert not sending.is_stuck(5.0 + RESEND_AFTER_S / 2)
    assert sending.is_stuck(5.0 + RESEND_AFTER_S)
    assert not sending.is_stuck(5.0 + RESEND_AFTER_S * 1.5)
    assert sending.is_stuck(5.0 + RESEND_AFTER_S * 2)
    assert sending.silent_s(5.0 + 60) == 60  # sending again is no sign of life
    sending.acknowledge(1, 66.0)
    assert sending.silent_s(70.0) == 0.0


def test_silence_counts_from_the_first_packet_that_waits() -> None:
    sending = LinkSender()
    sending.add(SentPacket(1, (b"x",), ()), 5.0)
    sending.acknowledge(1, 6.0)
    sending.add(SentPacket(2, (b"x",), ()), 1000.0)  # after a long time in which there was nothing to send
    assert sending.silent_s(1001.0) == 1.0
    assert not sending.is_stuck(1001.0)


def test_what_the_socket_did_not_take_is_offered_again_from_there() -> None:
    sending = LinkSender()
    for number in (1, 2, 3, 4):
        sending.add(SentPacket(number, (b"x",), ()), 0.0)
    sending.next_unsent = 3
    assert [parcel.number for parcel in sending.unsent()] == [3, 4]
    sending.acknowledge(1, 0.0)
    assert [parcel.number for parcel in sending.unsent()] == [3, 4]
    sending.resend()
    assert [parcel.number for parcel in sending.unsent()] == [2, 3, 4]
    sending.acknowledge(3, 0.0)  # of copies that were sent before
    assert [parcel.number for parcel in sending.unsent()] == [4]


@pytest.mark.parametrize("size", [1, ACK_BYTES])
def test_an_acknowledgment_is_owed_after_some_packets_or_many_bytes(size: int) -> None:
    receiving = LinkReceiver()
    count = 1 if size == ACK_BYTES else ACK_PACKETS
    for number in range(1, count + 1):
        assert not receiving.owes_now()
        assert receiving.accept(number, size)
    assert receiving.owes_now()
    receiving.told()
    assert not receiving.owes_now()
    assert not receiving.owes_soon()


def test_a_few_bytes_can_wait_for_their_acknowledgment_but_not_many_nor_a_gap() -> None:
    receiving = LinkReceiver()
    assert receiving.accept(1, MUCH_BYTES - 1)
    assert receiving.owes_soon()
    assert not receiving.owes_much()
    assert receiving.accept(2, 1)
    assert receiving.owes_much()
    receiving.told()
    assert not receiving.owes_much()
    assert not receiving.accept(4, 1)
    assert receiving.owes_much()


def test_a_copy_and_a_gap_are_not_taken_but_answered() -> None:
    receiving = LinkReceiver()
    assert receiving.accept(1, 1)
    receiving.told()
    assert not receiving.accept(1, 1)
    assert receiving.owes_soon()  # the sender does not know that it came
    assert not receiving.owes_now()
    assert not receiving.accept(3, 1)
    assert receiving.owes_now()
    assert receiving.last == 1
