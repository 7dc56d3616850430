"""The channel between a worker and the controller, over a wire that loses what it likes: all arrives once, and in order."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import msgspec
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from dirigo.runtime import control
from dirigo.runtime.controller import worker_lines as lines
from dirigo.runtime.controller.worker_lines import Lines
from dirigo.runtime.transport.authenticator import Refusals
from dirigo.runtime.transport.control_link import PACKETS_UNDER_WAY_MOST, ControlHead, ControlLink, decode_head
from dirigo.runtime.transport.keys import KeyPair
from dirigo.runtime.worker.controller_line import Line
from runtime.clusters import PATIENCE_S, until
from runtime.pretenders import PretendedCluster

INCARNATION = 7
EVENTS = ("", "cut", "down", "void", "up", "beat")


class Wire:
    """One direction. A cut loses what is under way; while it is down, the socket takes nothing, or what it takes is lost."""

    def __init__(self) -> None:
        self.under_way: list[tuple[bytes, bytes]] = []
        self.is_down = False
        self.is_void = False
        self.carried = 0

    def send(self, head: bytes, body: bytes) -> bool:
        if self.is_down:
            return False
        self.carried += bool(body)
        if not self.is_void:
            self.under_way.append((head, body))
        return True


class Pair:
    """Both ends of a channel; each says something now and then, as beats and pulses do."""

    def __init__(self) -> None:
        self.now = 100.0
        self.wires = (Wire(), Wire())
        clock = lambda: self.now  # noqa: E731
        self.ends = (ControlLink(self.wires[0].send, clock, INCARNATION), ControlLink(self.wires[1].send, clock))
        self.heard: tuple[list[bytes], list[bytes]] = ([], [])

    def deliver(self, wire: int, most: int = 1_000_000) -> None:
        for _ in range(min(most, len(self.wires[wire].under_way))):
            head, body = self.wires[wire].under_way.pop(0)
            taken = self.ends[1 - wire].take(decode_head(head), len(body))
            assert not taken.problem
            if taken.is_new and body != b"beat":
                self.heard[wire].append(body)

    def beat(self) -> None:
        self.now += 0.25
        for end in self.ends:
            if end.incarnation:
                end.offer()
                end.say(b"beat")

    def settle(self) -> None:
        for _ in range(50):
            self.beat()
            for _ in range(4):
                self.deliver(0)
                self.deliver(1)


@given(
    seed=st.integers(0, 2**32),
    posts=st.lists(
        st.tuples(st.sampled_from([0, 1]), st.sampled_from(["", "cut", "down", "void", "up", "beat"])), max_size=60
    ),
)
def test_whatever_is_cut_all_arrives_once_and_in_order(seed: int, posts: list[tuple[int, str]]) -> None:
    rng = Random(seed)
    pair = Pair()
    pair.beat()
    pair.deliver(0)  # now both know the incarnation
    sent: tuple[list[bytes], list[bytes]] = ([], [])
    for number, (end, event) in enumerate(posts):
        body = f"record {number}".encode()
        pair.ends[end].post(body)
        sent[end].append(body)
        pair.deliver(rng.randrange(2), rng.randrange(4))
        wire = pair.wires[rng.randrange(2)]
        if event == "cut":
            for each in pair.wires:
                each.under_way.clear()
        elif event == "down":
            wire.is_down = True
        elif event == "void":
            wire.is_void = True
        elif event == "up":
            wire.is_down = wire.is_void = False
        elif event == "beat":
            pair.beat()
        for direction in (0, 1):
            assert pair.heard[direction] == sent[direction][: len(pair.heard[direction])]
    for each in pair.wires:
        each.is_down = each.is_void = False
    pair.settle()
    assert pair.heard == sent
    for channel in pair.ends:
        assert channel.is_settled
        assert channel.kept_bytes == 0
        assert channel.silent_s() == 0.0


def test_a_record_that_is_long_on_its_way_is_not_sent_again() -> None:
    pair = Pair()
    pair.ends[0].post(b"the code of a job" * 1_000)
    for _ in range(100):  # all that time, nothing gets there: it is a slow network, and a large order
        pair.beat()
    pair.wires[1].under_way.clear()
    before = [body for _, body in pair.wires[0].under_way if body != b"beat"]
    assert len(before) == 1
    pair.settle()
    assert pair.heard[0] == before
    assert pair.ends[0].is_settled


def test_what_is_not_acknowledged_is_counted_and_timed() -> None:
    pair = Pair()
    channel = pair.ends[0]
    for _ in range(PACKETS_UNDER_WAY_MOST):
        assert channel.has_room
        channel.post(b"x" * 10)
    assert not channel.has_room
    assert channel.kept_bytes == 10 * PACKETS_UNDER_WAY_MOST
    pair.now += 33.0
    assert channel.silent_s() == pytest.approx(33.0)


def test_packets_of_another_process_and_lies_change_nothing() -> None:
    channel = ControlLink(lambda *_: True, lambda: 0.0, INCARNATION)
    channel.post(b"order")
    for head in (
        ControlHead(INCARNATION - 1, 1, 1, 1, True),
        ControlHead(0, 1, 1, 1, True),
        ControlHead(INCARNATION, 1, 1, 2, True),
    ):
        taken = channel.take(head, 10)
        assert taken.problem
        assert not taken.is_new
    assert not channel.is_settled
    assert channel.take(ControlHead(INCARNATION, 1, 1, 1, False), 10).is_new
    assert channel.is_settled


# --- over sockets ----------------------------------------------------------------------------------------------------------


def test_a_worker_whose_welcome_was_lost_is_welcomed_again(tmp_path: Path) -> None:
    with PretendedCluster(tmp_path, 1) as cluster, zmq.Context() as context:
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        cluster.controller.bootstrap(0).keys.secure_client(socket)
        socket.connect(cluster.controller.access.controller)
        nowhere = "tcp://127.0.0.1:1"
        hello = control.Hello(cluster.controller.run_id, 0, "nowhere", 0, nowhere, nowhere, nowhere, KeyPair.new().public)
        socket.send(msgspec.msgpack.encode(hello))
        until(lambda: socket.poll(0), "it is heard")
        while socket.poll(500):  # until the next pulse, nothing of it is noticed
            socket.recv_multipart()
        channel = ControlLink(lambda *frames: socket.send_multipart(frames) is None, time.monotonic)
        orders: list[control.ToWorker] = []
        until_s = time.monotonic() + PATIENCE_S
        while not orders and time.monotonic() < until_s:
            if socket.poll(100):
                head, body = socket.recv_multipart()
                if channel.take(decode_head(head), len(body)).is_new and body != msgspec.msgpack.encode(control.Pulse()):
                    orders.append(msgspec.msgpack.decode(body, type=control.ToWorker))
                if channel.owes_now:
                    channel.say()
        assert isinstance(orders[0], control.Welcome)
        assert orders[0].incarnation == channel.incarnation
        socket.close()


def test_a_worker_that_is_to_go_hears_so_although_its_slot_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[bytes, bytes]] = []

    class Socket:
        def send_multipart(self, frames: list[bytes], flags: int) -> None:
            sent.append((frames[1], frames[2]))

    made = Lines(Socket())  # type: ignore[arg-type]
    made.open(b"worker", INCARNATION)
    made.order(b"worker", b"go")
    made.part(b"worker")
    sent.clear()  # lost
    made.tend()
    head = decode_head(sent[-1][0])
    assert (head.number, head.newest) == (0, 1)  # it can tell that something is missing
    answer = msgspec.msgpack.encode(ControlHead(INCARNATION, 0, 0, 0, True))
    made.take(b"worker", answer, b"")
    assert sent[-1][1] == b"go"
    made.take(b"worker", msgspec.msgpack.encode(ControlHead(INCARNATION, 0, 0, 1, False)), b"")
    made.tend()
    assert made.take(b"worker", answer, b"").problem, "it is a stranger now"
    made.open(b"silent", INCARNATION + 1)
    made.order(b"silent", b"go")
    made.part(b"silent")
    monkeypatch.setattr(lines, "FAREWELL_S", 0.0)
    made.part(b"silent")
    made.tend()
    assert made.is_settled


def test_a_worker_without_its_controller_connects_again_and_then_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(
        "dirigo.runtime.worker.controller_line.time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])})
    )
    calls: list[str] = []

    class Socket:
        def connect(self, endpoint: str) -> None:
            calls.append(f"connect {endpoint}")

        def disconnect(self, endpoint: str) -> None:
            calls.append(f"disconnect {endpoint}")

    line = Line(Socket(), "there", Refusals("a worker"))  # type: ignore[arg-type]
    for _ in range(14):
        now[0] += 1.0
        line.look()
    assert calls == ["connect there"] + ["disconnect there", "connect there"] * 2
    now[0] += 2.0
    with pytest.raises(ConnectionError, match="has not been heard of"):
        line.look()
