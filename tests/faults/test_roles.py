"""Each role has keys of its own: they let it do what it is for, and cannot pose as another one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa
import pytest
import zmq
from pyspark.sql.types import LongType, StructField, StructType

import dirigo as dg
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime import control
from dirigo.runtime.client.client import Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.errors import ControlError
from dirigo.runtime.ingest.pusher import Pusher, PushError
from dirigo.runtime.results.poster import Posted
from dirigo.runtime.transport.keys import CLIENT, READER, ROLES, WORKER, WRITER, Keys
from dirigo.runtime.transport.wire import FORMAT, PacketHead, encode_head
from dirigo.spark.data_source import dirigo_format
from dirigo.spark.sessions import Reach, TaskAccess
from runtime.clusters import PATIENCE_S, LocalCluster, counting, until

STRANGER = "a stranger's key"
COLUMNS = StructType([StructField("n", LongType())])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("logs"), workers=2) as made:
        yield made


@pytest.fixture(scope="module")
def job(cluster: LocalCluster) -> Job:
    """A job that takes rows from outside, and keeps its results."""
    flow = dg.Dataflow("fed")
    flow.source(PushedSource({"n": "int64"}), splits=2).sink(dg.to_spark(name="out"))
    handle = cluster.submit(flow)
    until(lambda: handle.status().state == "running", "it runs")
    return handle


def keys_of(cluster: LocalCluster, role: str) -> Keys:
    return cluster.controller.bootstrap(0).keys if role == WORKER else cluster.controller.access.lowered(role).keys


def client_of(cluster: LocalCluster, role: str, answer_s: float = PATIENCE_S) -> Client:
    return Client(msgspec.structs.replace(cluster.controller.access, keys=keys_of(cluster, role)), answer_s=answer_s)


LOOKING: dict[str, Callable[[Client, str], Any]] = {
    "look at the cluster": lambda client, _: client.status(),
    "look at a job": lambda client, job: client.job_status(job),
}
READING: dict[str, Callable[[Client, str], Any]] = {
    "read results": lambda client, job: (client.log_info(job), client.log_read(job, "out", 0, 1_000, 0.0)),
}
WRITING: dict[str, Callable[[Client, str], Any]] = {
    "bring rows to a job": lambda client, job: (
        client.source_places(job),
        client.is_committing(job, "pushed", "query", 1),
    ),
}
RULING: dict[str, Callable[[Client, str], Any]] = {
    "submit a job": lambda client, _: client.submit(counting("refused")[0]),
    "cancel a job": lambda client, job: client.cancel(job),
    "end the sources of a job": lambda client, job: client.end_sources(job),
    "fail a job": lambda client, job: client.fail(job, "a lie"),
    "change the number of workers": lambda client, _: client.resize(7),
    "stop the cluster": lambda client, _: client.stop_cluster(),
}
ALLOWED = {
    READER: LOOKING | READING,
    WRITER: WRITING,
    WORKER: {},
    CLIENT: LOOKING | READING | WRITING,  # and what is tried everywhere else
}


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_may_ask_for(cluster: LocalCluster, job: Job, role: str) -> None:
    with client_of(cluster, role) as client:
        for ask in ALLOWED[role].values():
            ask(client, job.id)
        for what, ask in (LOOKING | READING | WRITING | RULING).items() if role != CLIENT else ():
            if what not in ALLOWED[role]:
                with pytest.raises(ControlError) as refused:
                    ask(client, job.id)
                assert str(refused.value) == f"a {role} may not {what}; connect with the keys of a client."
    assert job.status().state == "running"
    assert cluster.controller.wanted == 2


@pytest.mark.parametrize("role", [CLIENT, WRITER, READER])
def test_nobody_poses_as_a_worker(cluster: LocalCluster, job: Job, role: str) -> None:
    """Neither at the controller, nor at the log, nor at another worker."""
    controller = cluster.controller
    slot, counts = controller.slots[0], controller.refusals.counts
    hello = slot.hello
    assert hello is not None
    reports: list[Any] = [
        hello,
        control.Beat(slot.incarnation, control.WorkerFigures(messages=10**9), {}),
        control.ActorFailed(job.id, "a lie", None),
    ]
    before = counts.copy()
    incarnations = [worker.incarnation for worker in cluster.workers()]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        sockets = {}
        for name, kind, endpoint, key in (
            ("controller", zmq.DEALER, controller.access.controller, ""),
            ("log", zmq.DEALER, controller.access.log, ""),
            ("lane", zmq.PUSH, hello.control, hello.key),
        ):
            sockets[name] = socket = context.socket(kind)
            keys_of(cluster, role).secure_client(socket, key)
            socket.connect(endpoint)
        for report in reports:
            sockets["controller"].send(msgspec.msgpack.encode(report))
        lie = Posted(0, slot.incarnation, 1, job.id, "out", 0, -1)
        sockets["log"].send_multipart([msgspec.msgpack.encode(lie), b""])
        strangers = cluster.client.status().refused.get(STRANGER, 0)
        head = PacketHead(FORMAT, 1, incarnations[1], 0, incarnations[0], 1, (0, 0), False, (0.0, 0.0), (), ())
        sockets["lane"].send(encode_head(head))
        reason = "a report of somebody who is no worker"
        until(lambda: counts[reason] - before[reason] == len(reports), "reports are refused")
        posted = "results of somebody who is no worker"
        until(lambda: counts[posted] - before[posted] == 1, "results are refused")
        until(lambda: cluster.client.status().refused.get(STRANGER, 0) > strangers, "the lane is closed to it")
    finally:
        context.destroy(0)
    until(lambda: [worker.state for worker in cluster.workers()] == ["ready", "ready"], "the workers are there")
    assert [worker.incarnation for worker in cluster.workers()] == incarnations
    assert job.status().state == "running"


@pytest.mark.parametrize("role", [READER, WORKER])
def test_who_may_not_write_cannot_push_either(cluster: LocalCluster, job: Job, role: str) -> None:
    places = cluster.client.source_places(job.id)
    with Pusher(places, places.splits[0], keys_of(cluster, role), patience_s=0.3) as pusher:
        pusher.push(pa.record_batch({"n": [1]}))
        with pytest.raises(PushError, match="has not taken in rows"):
            pusher.finish()


def test_a_writer_brings_rows_and_a_reader_sees_what_comes_of_them(cluster: LocalCluster, job: Job) -> None:
    with client_of(cluster, WRITER) as writer, client_of(cluster, READER) as reader:
        places = writer.source_places(job.id)
        refs = []
        for place in places.splits:
            with Pusher(places, place, keys_of(cluster, WRITER)) as pusher:
                pusher.push(pa.record_batch({"n": [1, 2, 3]}))
                refs.append(pusher.finish())
        writer.release(job.id, "pushed", "a query", 1, refs, PATIENCE_S)
        until(lambda: reader.log_info(job.id).next >= len(refs), "their results")
        until(lambda: reader.job_status(job.id).metrics.rows_in == 6, "and the figures")


def test_a_secret_stays_with_its_owner(cluster: LocalCluster) -> None:
    """The controller's secret in its process, a worker's in its own; no role has the secret of another one."""
    controller = cluster.controller
    first, second = (slot.hello for slot in controller.slots.values())
    assert first is not None
    assert second is not None
    assert len({first.key, second.key, controller.access.keys.server_public}) == 3
    given = {
        role: cloudpickle.dumps(controller.bootstrap(0) if role == WORKER else controller.access.lowered(role))
        for role in ROLES
    }
    for role, text in given.items():
        assert controller._ring.server.secret.encode() not in text
        for other in ROLES:
            assert (keys_of(cluster, other).secret.encode() in text) == (other == role)


def test_tasks_of_spark_get_the_keys_that_they_need_and_no_others(cluster: LocalCluster, job: Job) -> None:
    data_source = dirigo_format(Reach({"run": TaskAccess.of(cluster.controller.access)}, ("run",)))
    reading = pickle.dumps(data_source(options={"job": job.id}).reader(COLUMNS))
    writing = pickle.dumps(data_source(options={"job": job.id}).writer(COLUMNS, False))
    everything = cloudpickle.dumps(data_source)
    for text, roles in ((reading, {READER}), (writing, {WRITER}), (everything, {READER, WRITER})):
        assert {role for role in ROLES if keys_of(cluster, role).secret.encode() in text} == roles


def test_who_may_do_less_cannot_get_more(cluster: LocalCluster) -> None:
    reader = cluster.controller.access.lowered(READER)
    for role in (CLIENT, WRITER):
        with pytest.raises(ControlError, match=f"the keys of a reader are none of a {role}"):
            reader.lowered(role)
