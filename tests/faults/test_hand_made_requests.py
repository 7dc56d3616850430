"""A client of somebody's own making, who has keys and checks nothing: the controller and the log check all they are told."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import zmq

from dirigo.runtime import control
from dirigo.runtime.client.shipment import SHIPMENT_BYTES_MOST
from dirigo.runtime.transport.fragments import cut
from runtime.clusters import PATIENCE_S, until
from runtime.pretenders import PretendedCluster

SCHEMA = pa.schema([("n", pa.int64())]).serialize().to_pybytes()
OUTSIDE = ("../../../x", "..", ".", "/tmp/x", "a/b", "a\0b", "", "a" * 1_000, "a\nb")


class HandMade:
    """Says anything to the controller, or to the log, and hears the answer."""

    def __init__(self, access: control.Access) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets = {False: self._connected(access, access.controller), True: self._connected(access, access.log)}
        self._number = 0

    def _connected(self, access: control.Access, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        access.keys.secure_client(socket)
        socket.connect(endpoint)
        return socket

    def say(self, body: Any, *, to_log: bool = False) -> None:
        self._sockets[to_log].send_multipart(cut([msgspec.msgpack.encode(body)]))

    def ask(self, request: Any, *, to_log: bool = False) -> control.Answer:
        self._number += 1
        self.say(["AskedLog" if to_log else "Asked", self._number, request], to_log=to_log)
        return self.answer(self._number, to_log=to_log)

    def answer(self, number: int, *, to_log: bool = False) -> control.Answer:
        answer: control.Answer = self.hears(control.Answer, to_log=to_log)
        assert answer.number == number
        return answer

    def hears(self, kind: Any, *, to_log: bool = False) -> Any:
        socket = self._sockets[to_log]
        assert socket.poll(int(PATIENCE_S * 1000)), "it is answered"
        return msgspec.msgpack.decode(socket.recv_multipart()[-1], type=kind)

    def refused(self, request: Any, *, to_log: bool = False) -> str:
        """The sentence with which a request is refused."""
        answer = self.ask(request, to_log=to_log)
        assert answer.error is not None, f"{request} is done"
        assert "the controller failed" not in answer.error
        assert len(answer.error) < 1_000
        assert "\n" not in answer.error
        return answer.error

    def close(self) -> None:
        self._context.destroy(0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home") / "a" / "b" / "logs"


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[PretendedCluster]:
    with PretendedCluster(folder, workers=1) as made:
        yield made


@pytest.fixture
def client(cluster: PretendedCluster) -> Iterator[HandMade]:
    made = HandMade(cluster.controller.access)
    yield made
    made.close()


def submission(name: str = "job", shipment: bytes = b"code", budget: int = 1, **manifest: Any) -> control.Submit:
    about: dict[str, Any] = {"leaves": 1, "partitions": 1, "sinks": {}, "pushed": {}} | manifest
    return control.Submit(name, shipment, control.Manifest(**about), budget)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_sink_is_no_way_out_of_the_folder_of_results(
    cluster: PretendedCluster, client: HandMade, folder: Path, name: str
) -> None:
    home = folder.parents[2]
    (home / "x").mkdir(exist_ok=True)
    (home / "x" / "kept").touch()
    before = sorted(home.rglob("*"))
    assert "name" in client.refused(submission(sinks={name: (1, SCHEMA)}))
    assert sorted(home.rglob("*")) == before
    assert not cluster.client.jobs()


@pytest.mark.parametrize("name", [name for name in OUTSIDE if name.strip(".") or not name])
def test_nor_is_the_name_of_a_job_or_a_source(cluster: PretendedCluster, client: HandMade, name: str) -> None:
    assert "name" in client.refused(submission(name))
    assert "name" in client.refused(submission(pushed={name: (1, SCHEMA)}))
    assert not cluster.client.jobs()


@pytest.mark.parametrize(
    "wrong",
    [
        {"shipment": b""},
        {"budget": 0},
        {"budget": -(2**62)},
        {"leaves": 0},
        {"leaves": 2},
        {"leaves": -1},
        {"partitions": 0},
        {"partitions": 2**62, "leaves": 1},
        {"sinks": {"a": (2**40, SCHEMA)}},
        {"sinks": {"a": (0, SCHEMA)}},
        {"sinks": {"a": (1, b"no schema")}},
        {"sinks": {"a": (1, SCHEMA[:20])}},
        {"pushed": {"a": (2**40, SCHEMA)}},
        {"pushed": {"a": (-1, SCHEMA)}},
        {"labels": {"a/b": ""}},
        {"labels": {"a": "two\nlines"}},
        {"labels": {"a": "x" * 100_000}},
        {"labels": {str(number): "" for number in range(33)}},
        {"pushed": {"a": (1, b"")}},
        {"places": {"a": ""}},
        {"places": {"a": "/" * 100_000}},
        {"places": {"../a": "/out"}},
        {"latency_ms": 0},
        {"target": 1.5},
        {"target": math.nan},
    ],
    ids=str,
)
def test_a_submission_that_makes_no_sense(cluster: PretendedCluster, client: HandMade, wrong: dict[str, Any]) -> None:
    client.refused(submission(**wrong))
    assert not cluster.client.jobs()


def test_a_submission_that_is_too_large(cluster: PretendedCluster, client: HandMade) -> None:
    from dirigo.runtime.controller.checks import check_request  # it need not travel to be refused

    with pytest.raises(Exception, match="at most 256 MiB"):
        check_request(submission(shipment=bytes(SHIPMENT_BYTES_MOST + 1)))


def test_other_requests_that_make_no_sense(cluster: PretendedCluster, client: HandMade) -> None:
    job = msgspec.convert(client.ask(submission("known", pushed={"in": (1, SCHEMA)})).value, control.JobStatus).id
    attempt = control.AttemptRef(0, 1, 0, "attempt", 1)
    wrong: list[Any] = [
        control.Resize(0),
        control.Resize(-3),
        control.Resize(10**9),
        control.GetJob("no such job"),
        control.GetJob("a" * 10_000_000),
        control.GetJob(job, math.nan),
        control.GetJob(job, -1.0),
        control.CancelJob("a" * 100_000),
        control.EndSources(job, "no such source"),
        control.EndSources(job, "a" * 100_000),
        control.FailJob("no such job", "an error"),
        control.GetPlaces(job, "b" * 100_000),
        control.ReleaseBatch(job, "in", "query", -1, (attempt,)),
        control.ReleaseBatch(job, "in", "q" * 100_000, 1, (attempt,)),
        control.ReleaseBatch(job, "in", "query", 1, (msgspec.structs.replace(attempt, worker=-1),)),
        control.ReleaseBatch(job, "in", "query", 1, (msgspec.structs.replace(attempt, split=-1),)),
        control.ReleaseBatch(job, "in", "query", 1, (msgspec.structs.replace(attempt, attempt="a" * 100_000),)),
        control.IsCommitting("no such job", "in", "query", 1),
        control.ClaimPlaces("a" * 100_000, "job", {"a": "/out"}),
        control.ClaimPlaces("a", "../job", {"a": "/out"}),
        control.ClaimPlaces("a", "job", {"a": ""}),
        control.ClaimPlaces("a", "job", {f"a{number}": "/out" for number in range(100_000)}),
        ["Resize", "many"],
        ["Submit", "job"],
        ["NoSuchRequest"],
        [],
        None,
        7,
    ]
    for request in wrong:
        client.refused(request)
    assert [each.state for each in cluster.client.jobs()] == ["starting"]
    client.ask(control.CancelJob(job))
    assert cluster.controller.wanted == 1


def test_requests_to_the_log_that_make_no_sense(cluster: PretendedCluster, client: HandMade) -> None:
    job = msgspec.convert(client.ask(submission("logged", sinks={"out": (1, SCHEMA)})).value, control.JobStatus).id
    wrong: list[Any] = [
        control.GetLog("no such job", None),
        control.GetLog("a" * 100_000, None),
        control.GetLog(job, "no such sink"),
        control.ReadLog(job, "out", -1, 100, 0.0),
        control.ReadLog(job, "out", 0, 0, 0.0),
        control.ReadLog(job, "out", 0, -5, 0.0),
        control.ReadLog(job, "out", 0, 100, math.nan),
        control.ReadLog(job, "out", 0, 100, -1.0),
        ["ReadLog", job],
        ["NoSuchRequest"],
        None,
    ]
    for request in wrong:
        client.refused(request, to_log=True)
    assert client.ask(control.GetLog(job, None), to_log=True).error is None
    client.ask(control.CancelJob(job))


def test_an_error_of_any_length_is_told(cluster: PretendedCluster, client: HandMade) -> None:
    """It is cut, not refused: the job has to fail."""
    job = msgspec.convert(client.ask(submission("failing")).value, control.JobStatus).id
    assert client.ask(control.FailJob(job, "why? " * 10_000_000)).error is None
    status = cluster.client.job_status(job)
    assert status.state == "failed"
    assert status.error is not None
    assert status.error.startswith("why? why? ")
    assert len(status.error) <= 10_000
    assert cluster.controller.logs._shelves[job].failed == status.error  # and no more lies on disk


def test_reports_that_no_worker_could_mean(cluster: PretendedCluster, client: HandMade) -> None:
    worker = cluster.join(0)
    asked = client.ask(submission("reported", leaves=1, partitions=5, pushed={"in": (1, SCHEMA)}))
    handle = cluster.controller.jobs[msgspec.convert(asked.value, control.JobStatus).id]
    worker.take(control.Install, handle.id)
    hello = cluster.controller.slots[0].hello
    assert hello is not None
    worker.say(control.Installed(handle.id, pushed=(("in", 0), ("in", 7), ("in", -1), ("other", 0))))
    worker.take(control.Start, handle.id)
    reports: list[Any] = [
        control.ActorEnded(handle.id, "another~1/sink/0"),
        control.ActorEnded(handle.id, "no address"),
        control.ActorEnded(handle.id, "a" * 100_000),
        control.Beat(1, control.WorkerFigures(busy_s=math.nan), {}),
        control.Beat(1, control.WorkerFigures(messages=-1), {}),
        control.Beat(1, control.WorkerFigures(), {handle.id: control.JobFigures(busy_s=math.inf)}),
        control.Beat(1, control.WorkerFigures(), {handle.id: control.JobFigures(rows_in=-5)}),
        control.Removed(handle.id, control.JobFigures(rows_out=-1)),
    ]
    for report in reports:
        worker.say(report)
    counts = cluster.controller.refusals.counts
    until(lambda: counts["a wrong report of a worker"] == len(reports), "all are counted")
    assert handle.places == {("in", 0): 0}
    assert handle.state == "running"
    assert cluster.client.job_status(handle.id).metrics.rows_in == 0
    assert cluster.states() == {0: "ready"}
    cluster.client.cancel(handle.id)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": ""},
        {"key": "x" * 1_000},
        {"data": "ipc:///tmp/x"},
        {"control": "tcp://"},
        {"ingest": "tcp://h:1/../x"},
        {"pid": -1},
    ],
    ids=str,
)
def test_a_worker_to_which_nobody_could_connect_is_told_to_go(cluster: PretendedCluster, wrong: dict[str, Any]) -> None:
    cluster.join(0)
    slot, counts = cluster.controller.slots[0], cluster.controller.refusals.counts
    before, incarnation = counts["a wrong report of a worker"], slot.incarnation
    assert slot.hello is not None
    keys = cluster.controller.bootstrap(0).keys
    other = HandMade(msgspec.structs.replace(cluster.controller.access, keys=keys))
    other.say(msgspec.structs.replace(slot.hello, **wrong))
    assert other.hears(control.ToWorker) == control.Stop()
    other.close()
    assert counts["a wrong report of a worker"] == before + 1
    assert slot.is_there
    assert slot.incarnation == incarnation, "and nobody takes its place"
