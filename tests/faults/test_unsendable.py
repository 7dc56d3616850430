"""A message that cannot be turned into bytes: its job fails by name, and no other job notices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zmq

from dirigo.kernel import Data, Lane
from dirigo.kernel.interface.message import Note
from dirigo.runtime.control import Member
from dirigo.runtime.transport.authenticator import Refusals
from dirigo.runtime.transport.keys import WORKER, KeyPair, KeyRing
from dirigo.runtime.transport.payload import Schemas
from dirigo.runtime.transport.peers import PACKET_BYTES_MOST, Peers
from dirigo.runtime.transport.wire import decode_head, decode_messages
from dirigo.runtime.worker.core import WorkerCore

GOOD, BAD = "good~1", "bad~2"
WORKERS = (1, 2)


def batch(rows: int, column: str) -> pa.RecordBatch:
    return pa.record_batch({column: np.arange(rows, dtype=np.int64)})


def data(job: str, seq: int, worker: int, payload: Any) -> Data:
    return Data(f"{job}/count/0", worker, f"{job}/source/0", 0, Lane.INPUT, seq, 0, payload)


def stub() -> Any:
    return SimpleNamespace(
        source_workers=frozenset(), used=set(), budget=SimpleNamespace(queued=0), figures=SimpleNamespace()
    )


@pytest.fixture
def core() -> Iterator[WorkerCore]:
    with zmq.Context() as context:
        peers = Peers(context, KeyRing().keys_of(WORKER), 0, Schemas(), lambda: 100.0)
        peers.incarnation = 1
        key, nowhere = KeyPair.new().public, "tcp://127.0.0.1:1"
        peers.set_members([Member(worker, 1, nowhere, nowhere, key) for worker in WORKERS])
        made = WorkerCore(0, peers, peers._schemas, Refusals("a worker"), lambda: 100.0)
        made.jobs = {GOOD: stub(), BAD: stub()}
        yield made
        made.jobs.clear()
        made.close()


def kept(core: WorkerCore) -> list[tuple[int, int]]:
    """The messages of the good job that are under way, as (worker, sequence number); all of them can be read."""
    found = []
    for worker, peer in core.peers.by_worker.items():
        schemas = Schemas()
        for lane in peer.links:
            for parcel in lane.sending.kept:
                frames = [bytes(frame) for frame in parcel.frames]
                head = decode_head(frames)
                for message in decode_messages(head, frames, schemas):
                    assert isinstance(message, Data | Note)
                    if message.to.startswith(GOOD):
                        found.append((worker, message.seq if isinstance(message, Data) else message.note))
    return sorted(found)


@pytest.mark.parametrize("bad", ["a payload", "a note"])
def test_messages_of_others_leave_once_and_count_once(core: WorkerCore, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    failed: list[tuple[str, str]] = []
    monkeypatch.setattr(core, "fail", lambda job, error, _: failed.append((job, error)))
    large = batch(PACKET_BYTES_MOST // 16, "large")  # two of them fill a packet
    messages: list[Any] = []
    for worker in WORKERS:
        messages += [data(GOOD, seq, worker, (0, large)) for seq in (1, 2, 3)]
        messages.append(Note(f"{GOOD}/count/0", worker, f"{GOOD}/source/0", 0, 4))
    if bad == "a payload":
        messages.insert(7, data(BAD, 1, WORKERS[1], threading.Lock()))
    else:
        messages.insert(7, Note(f"{BAD}/count/0", WORKERS[1], f"{BAD}/source/0", 0, threading.Lock()))
    messages.append(data(GOOD, 5, WORKERS[1], (0, batch(3, "a schema that was not sent before"))))
    core.worker.outgoing += messages
    core.flush()
    assert kept(core) == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (2, 4), (2, 5)]
    charged = sum(
        size
        for peer in core.peers.by_worker.values()
        for lane in peer.links
        for parcel in lane.sending.kept
        for _, size in parcel.charges
    )
    assert core.peers.unacknowledged == {GOOD: charged}
    assert 6 * large.nbytes < charged < 7 * large.nbytes
    ((job, error),) = failed
    assert job == BAD
    assert error.startswith(f"a message to {BAD}/count/0 cannot be sent: ")
