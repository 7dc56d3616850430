"""A results log to which a test posts what it likes, as the only worker of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import pyarrow as pa
import zmq

import dirigo as dg
from dirigo.runtime import control
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.results.poster import LogAck, Posted
from runtime.clusters import PATIENCE_S, until
from runtime.pretenders import PretendedCluster, Pretender

SCHEMA = pa.schema([("n", pa.int64())])


def rows(*numbers: int) -> bytes:
    frame: bytes = pa.record_batch({"n": pa.array(numbers, pa.int64())}, schema=SCHEMA).serialize().to_pybytes()
    return frame


def numbers_in(frames: list[bytes]) -> list[int]:
    return [n for frame in frames for n in pa.ipc.read_record_batch(pa.py_buffer(frame), SCHEMA).column("n").to_pylist()]


class Posting:
    """A cluster with one worker, which is the test: it posts what it likes to the results log."""

    def __init__(self, folder: Path) -> None:
        self.cluster = PretendedCluster(folder, 1)
        self.client = self.cluster.client
        self.controller: Controller = self.cluster.controller
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._numbers = iter(range(1, 1_000_000))

    def __enter__(self) -> Self:
        self.worker: Pretender = self.cluster.join(0)
        self._incarnation = self.worker.take(control.Welcome).incarnation
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self.controller.bootstrap(0).keys.secure_client(self._socket)
        self._socket.connect(self.controller.access.log)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()
        self._context.term()
        self.cluster.__exit__(kind, error, trace)

    def submit(self, name: str) -> Job:
        """A job that runs: one partition writes to the sink "out"."""
        flow = dg.Dataflow(name, partitions=1)
        flow.source(dg.from_iterable([{"n": 1}]), splits=1).sink(dg.to_spark(), name="out")
        job = self.client.submit(flow)
        self.worker.take(control.Install, job.id)
        self.worker.say(control.Installed(job.id))
        until(lambda: self.state_of(job) == "running", f"{name} runs")
        return job

    def state_of(self, job: Job) -> str:
        self.worker.has()  # it beats
        return job.status().state

    def post(
        self, job: Job | str, frame: bytes, count: int, *, sink: str = "out", partition: int = 0, snapshot: int = 0
    ) -> None:
        """Post a record, and wait for the log to acknowledge it."""
        number = next(self._numbers)
        name = job if isinstance(job, str) else job.id
        posted = Posted(0, self._incarnation, number, name, sink, partition, count, snapshot)
        self._socket.send_multipart([msgspec.msgpack.encode(posted), frame])
        while True:
            assert self._socket.poll(int(PATIENCE_S * 1000)), "the log does not answer any more"
            if msgspec.msgpack.decode(self._socket.recv(), type=LogAck).number >= number:
                return

    def finish(self, job: Job) -> None:
        """Nothing more comes of a job."""
        self.post(job, b"", -1)
        self.worker.say(control.ActorEnded(job.id, f"{job.id}/out/0"))

    def until_over(self, job: Job, state: str) -> control.JobStatus:
        def is_over() -> bool:
            if self.worker.has(control.Remove):
                self.worker.say(control.Removed(self.worker.take(control.Remove).job, control.JobFigures()))
            return job.status().ended_s is not None

        until(is_over, f"{job.name} is {state}")
        status = job.status()
        assert status.state == state, status
        return status

    def results(self, job: Job | str) -> list[int]:
        name = job if isinstance(job, str) else job.id
        info = self.client.log_info(name)
        frames: list[bytes] = []
        while info.first + len(frames) < info.next:
            frames += self.client.log_read(name, "out", info.first + len(frames), 1 << 20, 0.0)
        return numbers_in(frames)


def files_of(folder: Path, job: str) -> list[Path]:
    return sorted((folder / "logs" / job / "out").glob("*.frames"))


@contextmanager
def run_again(folder: Path) -> Iterator[Posting]:
    with Posting(folder / "logs") as again:
        yield again
