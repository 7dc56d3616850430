"""Nonsense from somebody who has the right keys: jobs go on, and it is counted and logged once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import msgspec
import pytest
import zmq

from dirigo.runtime import control
from dirigo.runtime.results.poster import Posted
from dirigo.runtime.transport.keys import WRITER, Keys
from dirigo.runtime.transport.payload import Schemas
from dirigo.runtime.transport.wire import FORMAT, PacketHead, Pressure, encode_head
from runtime.clusters import PATIENCE_S, LocalCluster, counting, until
from runtime.packets import batch, data, packet, plain_messages

FRAMES = 100_000


@contextmanager
def connected(kind: int, keys: Keys, *endpoints: tuple[str, str]) -> Iterator[list[zmq.Socket[bytes]]]:
    """Sockets to each endpoint, behind which is whoever has this public key; the controller's if it is empty."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = []
    try:
        for endpoint, key in endpoints:
            socket = context.socket(kind)
            socket.linger = 5_000  # what was sent is to arrive
            socket.sndtimeo = int(PATIENCE_S * 1000)
            keys.secure_client(socket, key)
            socket.connect(endpoint)
            made.append(socket)
        yield made
    finally:
        for socket in made:
            socket.close()
        context.term()


def worker_keys(cluster: LocalCluster) -> Keys:
    return cluster.controller.bootstrap(0).keys


def hellos(cluster: LocalCluster) -> list[control.Hello]:
    return [slot.hello for slot in cluster.controller.slots.values() if slot.hello is not None]


def refused(cluster: LocalCluster, *reasons: str) -> int:
    counts = cluster.client.status().refused
    return sum(counts.get(reason, 0) for reason in reasons)


def nonsense(rng: Random) -> list[bytes]:
    """Bytes of every degree of likeness to a packet."""
    good = bytes(packet([plain_messages()[rng.randrange(8)]], Schemas())[0])
    degree = rng.randrange(5)
    if degree == 0:
        return [rng.randbytes(rng.randrange(60))]
    if degree == 1:
        return [good[: rng.randrange(len(good))]]
    if degree == 2:
        body = bytearray(good)
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        return [bytes(body)]
    if degree == 3:
        return [good, b"", os.urandom(10)]
    return [msgspec.msgpack.encode([rng.randrange(5) for _ in range(rng.randrange(12))])]


@pytest.fixture
def nonsense_frames() -> list[list[bytes]]:
    rng = Random(5)
    return [nonsense(rng) for _ in range(1_000)]


def test_a_flood_of_nonsense_at_workers_and_controller_and_log(
    cluster: LocalCluster, nonsense_frames: list[list[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    flow, out = counting("flooded", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    lanes = [(endpoint, hello.key) for hello in hellos(cluster) for endpoint in (hello.control, hello.data)]
    access = cluster.controller.access
    ingests = [(hello.ingest, hello.key) for hello in hellos(cluster)]
    keys = worker_keys(cluster)
    with (
        caplog.at_level(logging.WARNING),
        connected(zmq.PUSH, keys, *lanes) as pushers,
        connected(zmq.DEALER, keys, (access.controller, ""), (access.log, "")) as reporters,
        connected(zmq.DEALER, access.lowered(WRITER).keys, *ingests) as writers,
    ):
        dealers = [*reporters, *writers]
        everybody = [*pushers, *dealers]
        for number in range(FRAMES):
            socket = everybody[number % len(everybody)]
            socket.send_multipart(nonsense_frames[number % len(nonsense_frames)])
            if number % 100 == 0:
                for dealer in dealers:
                    while dealer.poll(0):
                        dealer.recv_multipart()
        reasons = ("a malformed packet", "a packet of a worker that is not a member", "a packet for another worker")
        others = ("a malformed message", "a malformed message to the log", "a malformed push")
        until(lambda: refused(cluster, *reasons) > FRAMES // 3, "the workers have counted them")
        until(lambda: all(refused(cluster, other) > 1_000 for other in others), "and so have the others")
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in
    assert len({(row["key"], row["window_start"]) for row in out.rows}) == len(out.rows)
    for reason in ("a malformed message (", "a malformed message to the log"):
        assert sum(f"refused: {reason}" in record.getMessage() for record in caplog.records) <= 1


def test_packets_that_are_well_formed_but_of_nobody(cluster: LocalCluster) -> None:
    """Of a worker that was there before, for one that was, of a number that was never given."""
    flow, out = counting("undisturbed", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    here = {worker.id: worker.incarnation for worker in cluster.workers()}
    before = refused(cluster, "a packet of a worker that is not a member", "a packet for another worker")

    def head(sender: int, incarnation: int, to: int, to_incarnation: int, acks: tuple[int, int] = (0, 0)) -> bytes:
        lie = Pressure(handle.id, sender, 1 << 60, 0, None)  # would stop all sources for ever
        return encode_head(
            PacketHead(FORMAT, sender, incarnation, to, to_incarnation, 1, acks, True, (0.0, 0.0), (), (lie,))
        )

    wrong = [
        head(1, here[1] + 7, 0, here[0]),
        head(1, here[1] - 1, 0, here[0]),
        head(1, here[1], 0, here[0] + 1),
        head(1, here[1], 1, here[1]),
        head(5, here[1], 0, here[0]),
        head(0, here[0], 0, here[0]),
        head(-1, -1, -1, -1),
    ]
    where = next((hello.control, hello.key) for hello in hellos(cluster) if hello.worker == 0)
    with connected(zmq.PUSH, worker_keys(cluster), where) as (socket,):
        for body in wrong:
            socket.send(body)
        until(
            lambda: (
                refused(cluster, "a packet of a worker that is not a member", "a packet for another worker")
                == before + len(wrong)
            ),
            "all are counted",
        )
        acknowledging = head(1, here[1], 0, here[0], (10**12, 10**12))
        socket.send(acknowledging)
        until(lambda: refused(cluster, "an acknowledgment of what was never sent"), "it is counted")
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in


def test_reports_of_workers_that_are_none(cluster: LocalCluster) -> None:
    flow, out = counting("unreported", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    before = cluster.workers()
    hello = hellos(cluster)[0]
    records: list[Any] = [
        control.Hello("another run", 0, "host", 1, hello.control, hello.data, hello.ingest, hello.key),
        control.Hello(cluster.controller.run_id, 99, "host", 1, hello.control, hello.data, hello.ingest, hello.key),
        control.ActorFailed(handle.id, "a lie", None),
        control.ActorEnded(handle.id, "a/b/0"),
        control.Removed(handle.id, control.JobFigures()),
        control.PeerLost(1, before[1].incarnation),
        control.Beat(before[0].incarnation, control.WorkerFigures(), {}),
        control.Installed(handle.id),
    ]
    access = cluster.controller.access
    with connected(zmq.DEALER, worker_keys(cluster), (access.controller, "")) as (socket,):
        for record in records:
            socket.send(msgspec.msgpack.encode(record))
        until(lambda: refused(cluster, "a worker of another run") >= 2, "they are counted")
        until(lambda: refused(cluster, "a report of a worker that is not a member") >= 6, "so are the reports")
        assert socket.poll(int(PATIENCE_S * 1000))
        _, order = socket.recv_multipart()
        assert msgspec.msgpack.decode(order, type=control.ToWorker) == control.Stop()  # a worker of old is told to go
    assert handle.status().state == "running"
    assert [each.incarnation for each in cluster.workers()] == [each.incarnation for each in before]
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in


def test_rows_for_the_log_from_somebody_who_is_no_worker(cluster: LocalCluster) -> None:
    flow, out = counting("logged", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    access = cluster.controller.access
    incarnation = max(worker.incarnation for worker in cluster.workers()) + 50
    with connected(zmq.DEALER, worker_keys(cluster), (access.log, "")) as (socket,):
        for number, sink in enumerate(["to_memory", "no such sink", "to_memory"], 1):
            head = msgspec.msgpack.encode(Posted(0, incarnation, number, handle.id, sink, 0, 5))
            socket.send_multipart([head, os.urandom(100)])
        head = msgspec.msgpack.encode(Posted(0, incarnation, 4, handle.id, "to_memory", 0, -1))
        socket.send_multipart([head, b""])
        cluster.client.log_info(handle.id)  # it is still there
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in


def test_a_stale_packet_does_not_reach_a_worker_that_came_back(start_cluster: Any) -> None:
    cluster = start_cluster(2)
    old = {worker.id: worker.incarnation for worker in cluster.workers()}
    cluster.kill(1)
    until(lambda: cluster.worker(1).incarnation > old[1] and cluster.worker(1).state == "ready", "it comes back")
    flow, out = counting("afterwards", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    stale = data((0, batch()))
    frames = packet([stale], Schemas())
    value = msgspec.msgpack.decode(frames[0])
    value[1:5] = [0, old[0], 1, old[1]]  # from worker 0 to the process that was worker 1
    where = next((hello.data, hello.key) for hello in hellos(cluster) if hello.worker == 1)
    with connected(zmq.PUSH, worker_keys(cluster), where) as (socket,):
        socket.send_multipart([msgspec.msgpack.encode(value), *frames[1:]])
        until(lambda: refused(cluster, "a packet of a worker that is not a member"), "it is counted")
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in
