"""How everybody else talks to a cluster: the command line, ``dg.Cluster``, and Spark's tasks.

A client may be used by several threads: each has a connection of its own.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import zmq

from dirigo.flow.api.dataflow import Dataflow, check_name
from dirigo.flow.api.duration import Duration, positive_milliseconds
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.runtime import control
from dirigo.runtime.client.job import Job
from dirigo.runtime.client.savepoints import beginning_of
from dirigo.runtime.client.shipment import manifest_of, named_shipment, ship
from dirigo.runtime.errors import ControlError
from dirigo.runtime.transport.fragments import cut
from dirigo.runtime.transport.payload import Frame
from dirigo.runtime.transport.plain_columns import plain_schema
from dirigo.runtime.transport.reconnect import connect_again
from dirigo.scheduling import StrategyLike

T = TypeVar("T")

BUDGET_BYTES = 64 << 20
_ANSWER_S = 15.0
_ASK_AGAIN_S, _ASK_AGAIN_S_MOST = 0.5, 4.0
_BYTES_PER_S = 10 << 20  # a large request is given time to arrive before it is sent again
_WAIT_S = 30.0  # for a release, before asking again
_FULL_S = 0.02
_LOOK_S = 0.5

_CLOSED = "the connection to the cluster is closed."

_encoder = msgspec.msgpack.Encoder()
_answers = msgspec.msgpack.Decoder(control.Answer)


class Client:
    """A connection to one cluster."""

    def __init__(
        self,
        access: control.Access,
        *,
        answer_s: float = _ANSWER_S,
        why_silent: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`why_silent`, asked while an answer is missing, tells why none will come; None as long as one may."""
        self.access = access
        self._why_silent = why_silent
        self._answer_s = answer_s
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._asking: set[zmq.Socket[bytes]] = set()  # in use by some thread, which closes them itself if it has to
        self._closed = threading.Event()

    def close(self) -> None:
        """Whoever still waits for an answer gets an error."""
        with self._lock:
            self._closed.set()
            for socket in self._sockets:
                if socket not in self._asking:
                    socket.close(0)
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close_thread(self) -> None:
        """Close the connections of the calling thread, which will not ask any more."""
        for attribute in ("controller", "log"):
            socket: zmq.Socket[bytes] | None = self._mine.__dict__.pop(attribute, None)
            if socket is not None:
                with self._lock:
                    self._sockets.remove(socket)
                    socket.close(0)

    # --- the cluster ---------------------------------------------------------------------------------------------------

    def status(self) -> control.ClusterStatus:
        return self._ask(control.GetStatus(), control.ClusterStatus)

    def resize(self, workers: int) -> None:
        """Have this many workers. More come as soon as they can; of fewer, those leave that no running job needs."""
        if type(workers) is not int:  # True is none, either
            raise ControlError(f"a pool has a whole number of workers, not {workers!r}.")
        self._ask(control.Resize(workers), None)

    def stop_cluster(self) -> None:
        self._ask(control.StopCluster(), None)

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def submit(
        self,
        flow: Dataflow,
        *,
        name: str | None = None,
        strategy: StrategyLike | None = None,
        budget_bytes: int = BUDGET_BYTES,
        snapshots_every: Duration | None = None,
        savepoint: str | Path | None = None,
        dropped: Sequence[str] = (),
        renamed: Mapping[str, str] | None = None,
    ) -> Job:
        """Run a flow as a job. Rows for sinks such as to_memory() come back to this process while the job runs.

        `strategy`: what schedules it, if not the cluster's; a name, "module:Class", or a ``Strategy``. Jobs with the same
        strategy are scheduled together. `budget_bytes`: when more than this waits in the job's queues, its sources stop
        for a while. `snapshots_every`: how often a snapshot is taken, if not as often as the cluster says.
        `savepoint`: the folder of one, with which the job begins; `dropped` names operators in it that nobody goes on from,
        and `renamed` those that have another name now.
        """
        every_s = None if snapshots_every is None else positive_milliseconds(snapshots_every, "snapshots_every") / 1000
        if budget_bytes < 1:
            raise ControlError(f"a budget of {budget_bytes} bytes lets nothing run; give 1 or more.")
        if name is not None:
            check_name(name, "a job needs a name")
        bound = BoundJob(flow, name=name)
        bound.plan.close_splits()
        beginning = beginning_of(bound.plan, savepoint, dropped, renamed)
        shipment = ship(bound.plan, flow.name)
        code, code_name = (None, "") if strategy is None else named_shipment(strategy)
        manifest = manifest_of(bound)
        with self._claimed(bound.name, manifest.places) as claim:
            bound.prepare_sinks()
            request = control.Submit(
                bound.name, shipment, manifest, budget_bytes, code, code_name, claim, every_s, beginning
            )
            status = self._ask(request, control.JobStatus)
        return Job(self, status, [(each.name, each.sink, plain_schema(each.schema)) for each in bound.outside_sinks()])

    @contextmanager
    def _claimed(self, job: str, places: dict[str, str]) -> Iterator[str]:
        """Nobody else writes to these places from here until the job is submitted: preparing them may remove results."""
        if not places:
            yield ""
            return
        claim = secrets.token_hex(8)
        self._ask(control.ClaimPlaces(claim, job, places), None)
        try:
            yield claim
        except BaseException:
            with suppress(ControlError):  # then it ends by itself
                self._ask(control.ClaimPlaces(claim, job, {}), None)
            raise

    def jobs(self) -> list[control.JobStatus]:
        return list(self.status().jobs)

    def job(self, name: str) -> Job:
        """The newest job of this name, or the one with this id."""
        return Job(self, self.job_status(name), ())

    def job_status(self, name: str, wait_s: float = 0.0) -> control.JobStatus:
        return self._ask(control.GetJob(name, wait_s), control.JobStatus, wait_s)

    def cancel(self, name: str) -> control.JobStatus:
        return self._ask(control.CancelJob(name), control.JobStatus)

    def end_sources(self, name: str, source: str | None = None) -> control.JobStatus:
        return self._ask(control.EndSources(name, source), control.JobStatus)

    def savepoint(self, name: str, place: str, wait_s: float, *, stops: bool = False) -> control.JobStatus:
        return self._ask(control.TakeSavepoint(name, place, wait_s, stops), control.JobStatus, wait_s)

    def fail(self, name: str, error: str) -> None:
        self._ask(control.FailJob(name, error), None)

    def find_snapshot(
        self, name: str, *, fresh: bool = False, wait_s: float = 0.0, number: int | None = None
    ) -> control.SnapshotPlace:
        """The last snapshot of a job, or one that begins from now on, or that with a number, if it is still there.

        It stays for a while, so that it can be read.
        """
        return self._ask(control.FindSnapshot(name, fresh, wait_s, number), control.SnapshotPlace, wait_s)

    # --- rows in and out -----------------------------------------------------------------------------------------------

    def source_places(self, job: str, source: str | None = None) -> control.SourcePlaces:
        return self._ask(control.GetPlaces(job, source), control.SourcePlaces)

    def release(
        self, job: str, source: str, query: str, batch: int, attempts: Iterable[control.AttemptRef], wait_s: float
    ) -> bool:
        """Have what was staged for a micro-batch read, as soon as the source has room for it, or the job has come back.

        Returns whether it had come before, perhaps as other attempts, so that these are not needed.
        """
        request = control.ReleaseBatch(job, source, query, batch, tuple(attempts))
        until = time.monotonic() + wait_s
        pause_s = _FULL_S
        while (outcome := self._ask(request, str, _WAIT_S)) in ("full", "away"):
            if time.monotonic() >= until:
                what = "had no room" if outcome == "full" else "not come back"
                raise ControlError(f"source '{source}' of job '{job}' has {what} for {wait_s:.0f} s; see its metrics.")
            time.sleep(pause_s)
            pause_s = min(1.0, pause_s * 1.5)
        return outcome == "known"

    def is_committing(self, job: str, source: str, query: str, batch: int) -> bool:
        """Whether the release of a micro-batch has begun somewhere, so that it must be resumed."""
        return self._ask(control.IsCommitting(job, source, query, batch), bool)

    def log_info(self, job: str, sink: str | None = None) -> control.LogInfo:
        return self._ask(control.GetLog(job, sink), control.LogInfo)

    def log_read(self, job: str, sink: str, offset: int, bytes_max: int, wait_s: float) -> list[bytes]:
        return self._ask(control.ReadLog(job, sink, offset, bytes_max, wait_s), list[bytes], wait_s)

    # --- asking --------------------------------------------------------------------------------------------------------

    def _ask(self, request: Any, kind: type[T] | None, wait_s: float = 0.0) -> T:
        is_log = isinstance(request, control.GetLog | control.ReadLog)
        self._mine.number = number = getattr(self._mine, "number", 0) + 1
        asked = control.AskedLog(number, request) if is_log else control.Asked(number, request)
        try:
            with self._socket(is_log) as socket:
                answer = self._answer_to(socket, cut([_encoder.encode(asked)]), number, is_log, self._answer_s + wait_s)
        except zmq.Again:
            raise self._silence() from None
        except zmq.ZMQError as error:
            raise ControlError(_CLOSED) from error
        if answer.error is not None:
            raise ControlError(answer.error)
        return answer.value if kind is None else msgspec.convert(answer.value, kind)

    def _answer_to(
        self, socket: zmq.Socket[bytes], asked: Sequence[Frame], number: int, is_log: bool, patience_s: float
    ) -> control.Answer:
        """Ask until there is an answer: a request, or its answer, is lost when a connection is cut.

        Asked again, it has the same number, so that nothing is done twice. If not even that is answered, the connection may
        be dead without knowing so, and is made anew.
        """
        until = time.monotonic() + patience_s
        pause_s, travel_s = _ASK_AGAIN_S, sum(map(len, asked)) / _BYTES_PER_S
        in_vain = 0
        socket.send_multipart(asked, zmq.NOBLOCK)
        again = time.monotonic() + pause_s + travel_s
        while True:
            now = time.monotonic()
            if now >= until:
                raise self._silence()
            if not socket.poll(int(max(0.0, min(until - now, again - now, _LOOK_S)) * 1000) + 1):
                if (reason := self._why_silent()) is not None:
                    raise ControlError(reason)
                if time.monotonic() < again:
                    continue
                in_vain += 1
                if in_vain >= 2:
                    connect_again(socket, self._endpoint(is_log))
                socket.send_multipart(asked, zmq.NOBLOCK)
                pause_s = min(2 * pause_s, _ASK_AGAIN_S_MOST)
                again = time.monotonic() + pause_s + travel_s
                continue
            answer = _answers.decode(socket.recv_multipart()[-1])
            if answer.number != number:  # it is the answer to a question that was given up, or a second one
                continue
            if not answer.is_pending:
                return answer
            in_vain = 0

    def _silence(self) -> ControlError:
        return ControlError(
            f"the cluster at {self.access.controller} does not answer; see whether it still runs, or start one."
        )

    def _endpoint(self, is_log: bool) -> str:
        return self.access.log if is_log else self.access.controller

    @contextmanager
    def _socket(self, is_log: bool) -> Iterator[zmq.Socket[bytes]]:
        """The socket of the calling thread, while it asks. ``close`` waits for all sockets, so none may be forgotten."""
        attribute = "log" if is_log else "controller"
        with self._lock:
            if self._closed.is_set():
                raise ControlError(_CLOSED)
            socket: zmq.Socket[bytes] | None = getattr(self._mine, attribute, None)
            if socket is None:
                socket = self._context.socket(zmq.DEALER)
                self._sockets.append(socket)
                setattr(self._mine, attribute, socket)
                socket.linger = 0
                # Nobody else can take this name over; it stays the same after the socket has connected again.
                socket.identity = b"client-" + secrets.token_hex(16).encode()
                self.access.keys.secure_client(socket)
                socket.connect(self._endpoint(is_log))
            self._asking.add(socket)
        try:
            yield socket
        finally:
            with self._lock:
                self._asking.remove(socket)
                if self._closed.is_set():
                    socket.close(0)
