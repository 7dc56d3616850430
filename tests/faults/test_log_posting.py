"""A worker that cannot bring its results to the log: it connects anew, and at last says so."""

from __future__ import annotations

from collections import deque
from threading import Lock
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import zmq

from dirigo.runtime.results import poster as log_posting
from dirigo.runtime.results.poster import LOST_AFTER_S, RECONNECT_AFTER_S, LogAck, LogPosting, Posted
from dirigo.runtime.transport.authenticator import Refusals
from dirigo.runtime.worker.core import Result, WorkerCore


class Socket:
    """Takes everything, and hands out the acknowledgments that a test gives."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.connected = 0
        self.acks: deque[bytes] = deque()

    def connect(self, _: str) -> None:
        self.connected += 1

    def disconnect(self, _: str) -> None:
        """Nothing is to be done."""

    def send_multipart(self, frames: Any, _flags: int) -> None:
        self.frames.append(frames)

    def recv_multipart(self, _flags: int) -> list[bytes]:
        if not self.acks:
            raise zmq.Again
        return [self.acks.popleft()]


def test_a_cut_is_posted_behind_the_rows_before_it() -> None:
    rows = pa.record_batch({"n": [1, 2, 3]})
    core: Any = SimpleNamespace(
        lock=Lock(),
        jobs={"job~1": SimpleNamespace(logged_bytes=0)},
        results=deque(),
        signal=SimpleNamespace(ring=lambda: None),
        refusals=Refusals("a worker"),
    )
    core.results.append(Result("job~1", "out", 0, rows, 24))
    WorkerCore.post_cut(core, "job~1", "out", 0, 5)
    core.results.append(Result("job~1", "out", 0, None, 0))
    socket = Socket()
    posting = LogPosting(socket)  # type: ignore[arg-type]
    posting.connect("tcp://the-log:1", 3, 7)
    posting.post(core)
    posted = [msgspec.msgpack.decode(head, type=Posted) for head, _ in socket.frames]
    assert [(each.number, each.rows, each.snapshot) for each in posted] == [(1, 3, 0), (2, 0, 5), (3, -1, 0)]


def test_results_that_nobody_acknowledges_fail_their_jobs_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(log_posting, "time", SimpleNamespace(monotonic=lambda: now[0]))
    failed: list[tuple[str, str]] = []
    rows = pa.record_batch({"n": [1, 2, 3]})
    large = log_posting._UNDER_WAY_BYTES_MOST
    core: Any = SimpleNamespace(
        lock=Lock(),
        worker=SimpleNamespace(id=3),
        jobs={name: SimpleNamespace(logged_bytes=0) for name in ("kept~1", "waiting~2", "other~3")},
        results=deque([Result("kept~1", "out", 0, rows, large), Result("waiting~2", "out", 0, rows, 1)]),
        refusals=Refusals("a worker"),
        fail=lambda job, error, _: failed.append((job, error)),
    )
    socket = Socket()
    posting = LogPosting(socket)  # type: ignore[arg-type]
    posting.connect("tcp://the-log:1", 3, 7)

    def wait(seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            now[0] += 0.1
            posting.post(core)

    posting.post(core)
    wait(LOST_AFTER_S - 1.0)
    assert not failed
    assert 3 <= socket.connected - 1 <= LOST_AFTER_S / RECONNECT_AFTER_S
    wait(4.0)
    assert {job for job, _ in failed} == {"kept~1", "waiting~2"}  # also what has to wait behind it
    assert all(
        error.startswith("worker 3 cannot bring its results to the log at tcp://the-log:1; see that") for _, error in failed
    )
    failed.clear()
    socket.acks.append(msgspec.msgpack.encode(LogAck(1)))
    posting.receive(core)
    wait(1.0)
    assert not core.results, "it goes on where it was"
    assert core.jobs["kept~1"].logged_bytes == large
