"""A worker as its host and its controller see it: it may be one of several in a process, and what it has to say arrives."""

from __future__ import annotations

import gc
import multiprocessing
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

import dirigo as dg
from dirigo.runtime import control
from dirigo.runtime.client.client import Client
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.transport.control_link import ControlLink, decode_head
from dirigo.runtime.transport.keys import WORKER, KeyPair, KeyRing
from dirigo.runtime.worker import process as worker_process
from dirigo.runtime.worker.process import _Worker
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, counting, numbers, until
from runtime.pretenders import QuietPool
from runtime.used_twice import work_twice

LEAVE_AFTER_S = 0.3


# --- a process that is used again ------------------------------------------------------------------------------------------


def test_a_process_whose_worker_has_ended_is_left_alone(tmp_path: Path) -> None:
    controllers = [Controller(name, QuietPool(), 1, logs=tmp_path / name) for name in ("first", "second")]
    clients = [Client(controller.access) for controller in controllers]
    process = multiprocessing.get_context("spawn").Process(
        target=work_twice, args=(LEAVE_AFTER_S, *(controller.bootstrap(0) for controller in controllers))
    )
    try:
        for controller in controllers:
            controller.start()
        process.start()
        for controller, client in zip(controllers, clients, strict=True):
            until(lambda client=client: client.status().workers[0].state == "ready", "it joins")  # type: ignore[misc]
            assert client.status().workers[0].pid == process.pid
            if controller is controllers[1]:
                time.sleep(2 * LEAVE_AFTER_S)  # whoever waited for the first worker to leave has stopped waiting
            flow, out = counting(rows=1_000)
            client.submit(flow).wait(PATIENCE_S)
            assert sum(row["count"] for row in out.rows) == 1_000
            client.stop_cluster()
        process.join(PATIENCE_S)
        assert process.exitcode == 0
    finally:
        for client in clients:
            client.close()
        for controller in controllers:
            controller.stop()
        process.kill()
        process.join()


# --- reports ---------------------------------------------------------------------------------------------------------------


@contextmanager
def listening(own: KeyPair) -> Iterator[tuple[zmq.Socket[bytes], str]]:
    """The place of a controller that takes little at a time."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.linger = 0
    socket.rcvhwm = 10
    socket.rcvbuf = 1 << 12
    own.secure_server(socket)
    try:
        yield socket, f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"
    finally:
        context.destroy(0)


def test_many_reports_at_once_wait_for_a_slow_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_LEAVE_AFTER_S", PATIENCE_S)  # a worker that hangs would end this process
    ring = KeyRing()
    reports = [control.ActorEnded("job~1", f"job~1/{'a' * 1_000}/{number}") for number in range(10_000)]
    with listening(ring.server) as (socket, endpoint):
        bootstrap = control.Bootstrap(secrets.token_hex(8), 0, endpoint, ring.keys_of(WORKER), {}, {})
        ends: list[BaseException | None] = []
        workers: list[Any] = []

        def work() -> None:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            try:
                workers.append(_Worker(context, bootstrap, tmp_path))
                workers[0].run()
                ends.append(None)
            except BaseException as error:
                ends.append(error)
            finally:
                context.destroy(0)

        thread = threading.Thread(target=work)
        thread.start()
        identity, _ = socket.recv_multipart()
        channel = ControlLink(lambda *frames: socket.send_multipart([identity, *frames]) is None, time.monotonic, 7)
        channel.say(msgspec.msgpack.encode(control.Pulse()))
        core = workers[0].core
        for report in reports:
            core.report(report)
        until(lambda: len(core.reports) < len(reports), "some are taken")
        time.sleep(0.5)
        assert core.reports, "others wait"
        assert not ends, "and so does the worker"
        heard: list[str] = []
        while len(heard) < len(reports):
            assert socket.poll(int(PATIENCE_S * 1000))
            _, *heads, body = socket.recv_multipart()
            if heads and channel.take(decode_head(heads[0]), len(body)).is_new:
                record = msgspec.msgpack.decode(body, type=control.ToController)
                assert isinstance(record, control.ActorEnded)
                heard.append(record.address)
            if channel.owes_now:
                channel.say()
        assert heard == [report.address for report in reports]
        channel.post(msgspec.msgpack.encode(control.Stop()))
        thread.join(PATIENCE_S)
    assert ends == [None]


# --- what the collector of garbage looks at --------------------------------------------------------------------------------


def test_what_a_worker_has_imported_is_spared_from_collection(cluster: LocalCluster) -> None:
    def look(_: Any) -> dict[str, int]:
        return {"frozen": gc.get_freeze_count(), "seen": len(gc.get_objects())}

    flow = dg.Dataflow("collected")
    out = dg.to_memory()
    rows = flow.source(dg.from_generator(numbers, SCHEMA, 1, block=1, time="ts", name="numbers"))
    rows.map(look, schema={"frozen": "int64", "seen": "int64"}).sink(out)
    cluster.run(flow)
    (found,) = out.rows
    assert found["frozen"] > 40_000  # modules, functions, classes: what a worker is made of
    assert found["seen"] < found["frozen"] / 2
