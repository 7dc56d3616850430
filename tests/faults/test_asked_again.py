"""Requests that come twice, as after a cut: what they change is changed once, and the answer is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import zmq

import dirigo as dg
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.runtime import control
from dirigo.runtime.client.shipment import manifest_of, ship
from dirigo.runtime.controller import requests
from runtime.clusters import PATIENCE_S, counting, until
from runtime.pretenders import PretendedCluster


class Asking:
    """A client that says what it likes, as often as it likes."""

    def __init__(self, cluster: PretendedCluster, context: zmq.Context[zmq.Socket[bytes]], identity: bytes) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.identity = identity
        access = cluster.client.access
        access.keys.secure_client(self.socket)
        self.socket.connect(access.controller)

    def ask(self, number: int, request: control.Request) -> control.Answer:
        self.tell(number, request)
        return self.hear()

    def tell(self, number: int, request: control.Request) -> None:
        self.socket.send(msgspec.msgpack.encode(control.Asked(number, request)))

    def hear(self) -> control.Answer:
        assert self.socket.poll(int(PATIENCE_S * 1000)), "there is no answer"
        return msgspec.msgpack.decode(self.socket.recv(), type=control.Answer)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PretendedCluster]:
    with PretendedCluster(tmp_path, 1) as made:
        yield made


@pytest.fixture
def asking(cluster: PretendedCluster) -> Iterator[Callable[[str], Asking]]:
    """Makes clients."""
    with zmq.Context() as context, ExitStack() as stack:

        def make(name: str) -> Asking:
            made = Asking(cluster, context, name.encode())
            stack.callback(made.socket.close)
            return made

        yield make


def submission(flow: dg.Dataflow) -> control.Submit:
    return control.Submit(flow.name, ship(BoundJob(flow).plan, flow.name), manifest_of(BoundJob(flow)), 1 << 20)


def test_what_changes_something_is_done_once(cluster: PretendedCluster, asking: Callable[[str], Asking]) -> None:
    one = asking("one")
    submit = submission(counting("once", rows=None)[0])
    first = one.ask(1, submit)
    assert first.error is None
    assert one.ask(1, submit) == first
    assert [job.name for job in cluster.client.jobs()] == ["once"]
    refused = one.ask(2, submit)
    assert refused.error is not None
    assert "running already" in refused.error
    cancelled = one.ask(3, control.CancelJob("once"))
    assert cancelled.error is None
    assert one.ask(3, control.CancelJob("once")) == cancelled  # a new request would be told that the job is over
    one.tell(1, submit)  # a copy that was long on its way
    assert one.ask(4, control.GetStatus()).number == 4
    assert [job.name for job in cluster.client.jobs()] == ["once"]
    other = asking("other")
    again = other.ask(1, submit)  # another client counts from one, too
    assert again.error is None
    assert again.value["id"] != first.value["id"]


def test_an_answer_that_has_to_wait_is_said_to_wait(cluster: PretendedCluster, asking: Callable[[str], Asking]) -> None:
    one = asking("one")
    job = one.ask(1, submission(counting("waited", rows=None)[0])).value["id"]
    one.tell(2, control.GetJob(job, 60.0))
    for _ in range(3):
        assert one.ask(2, control.GetJob(job, 60.0)) == control.Answer(2, is_pending=True)
    cluster.client.cancel(job)
    assert one.hear().value["state"] == "cancelled"
    assert cluster.client.status().name  # which comes after whatever else there was to say
    assert not one.socket.poll(0), "one answer is enough"


def test_few_clients_are_remembered_and_the_last_ones_are(
    cluster: PretendedCluster, asking: Callable[[str], Asking], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_CLIENTS_REMEMBERED", 3)
    for number in range(10):
        assert asking(f"client {number}").ask(1, control.Resize(number + 1)).error is None
    remembered = cluster.controller.requests._changes
    until(lambda: list(remembered) == [b"client 7", b"client 8", b"client 9"], "older ones are forgotten")
