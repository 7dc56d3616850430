"""Measures what each lessee of a barrier costs its lessor, when many of them answer at the same moment.

That takes as many cores as lessees, which a small machine does not have. So the parts of real workers, which are all but
their threads and processes, are driven one after the other here, in one thread: sockets, encryption, packets, protocol and
states are those of real workers. The lessor is left alone until all replies have come. What is timed is the processor's time
that it takes, and nobody else: to send to all lessees, and to take in their replies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import zmq

from dirigo.errors import DirigoError
from dirigo.flow.plan.plan import Plan
from dirigo.kernel import Message, WorkerId
from dirigo.kernel.interface.message import SyncReply, SyncRequest, Unsync
from dirigo.runtime.client.shipment import named_shipment, ship
from dirigo.runtime.control import Install, Member
from dirigo.runtime.folders import OwnFolder
from dirigo.runtime.transport.authenticator import Refusals
from dirigo.runtime.transport.keys import WORKER, KeyPair, KeyRing
from dirigo.runtime.transport.payload import Schemas
from dirigo.runtime.transport.peers import CONTROL, DATA, Peers
from dirigo.runtime.worker.core import WorkerCore
from dirigo.runtime.worker.inbound import InboundSockets
from dirigo.runtime.worker.installed_job import InstalledJob
from dirigo.runtime.worker.user_code import do
from dirigo_lab.experiments.overhead.forwarding_in_turn import ForwardingInTurn
from dirigo_lab.experiments.overhead.on_spark import HOLDER, flow_of
from dirigo_lab.experiments.window_jobs.scheduled_rows import Entry

_BUDGET_BYTES = 64 << 20
_QUIET_S = 0.005  # if nothing has come to anybody for so long, all is there
_CONNECTING_S = 0.5
_PATIENCE_S = 3.0
_WARM_UP_ROUNDS = 5
_STATE_BYTES = 1024
_ACTORS = 3  # of the job: it reads, holds a state, and discards what comes out


class BarrierShares(NamedTuple):
    """Seconds of the lessor, for each of many lessees."""

    send_s: float  # a message that goes to all of them
    reply_s: float  # a reply, taken in among others


def measure_shares(lessees: int, rounds: int) -> BarrierShares:
    """Hold so many barriers with so many lessees."""
    with OwnFolder("shares") as folder, _workers(lessees + 1) as workers:
        now = [0.0]
        install = _install(lessees, rounds + _WARM_UP_ROUNDS)
        for worker in workers:
            worker.install(install, folder, tuple(each.core.worker.id for each in workers), lambda: now[0])
        lessor = next(worker for worker in workers if worker.is_home_of(HOLDER))
        sends: list[float] = []
        replies: list[float] = []
        with lessor.timed_sends(lessees, sends):
            _work_off(workers, lessor, _CONNECTING_S, [])  # the schedule begins a second after the first look
            for _ in range(rounds + _WARM_UP_ROUNDS):
                now[0] += 1.0
                _work_off(workers, lessor, _QUIET_S, [])
                now[0] += 1.0
                until, expected = time.monotonic() + _PATIENCE_S, lessor.replied + lessees
                while lessor.replied < expected and time.monotonic() < until:
                    _work_off(workers, lessor, _QUIET_S, replies)
    sends, replies = sends[2 * _WARM_UP_ROUNDS :], replies[_WARM_UP_ROUNDS:]
    if min(len(sends), len(replies)) < rounds / 2:
        raise DirigoError(f"of {rounds} barriers {len(replies)} were seen; is this machine very busy?")
    return BarrierShares(median(sends), median(replies))


def _work_off(workers: Sequence[_Worker], lessor: _Worker, quiet_s: float, replies: list[float]) -> None:
    """Until nobody has anything to do. The lessor looks only when all others are done; what a reply took it is noted."""
    others = [worker for worker in workers if worker is not lessor]
    for worker in workers:
        worker.read()
    until = time.monotonic() + _PATIENCE_S
    has_worked = True
    while has_worked and time.monotonic() < until:
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < quiet_s and quiet_since < until:
            if sum(worker.work() for worker in others):  # all of them, not only up to the first
                quiet_since = time.monotonic()
        began_s, replied = time.thread_time(), lessor.replied
        has_worked = lessor.take_in()
        if lessor.replied > replied:
            replies.append((time.thread_time() - began_s) / (lessor.replied - replied))
        has_worked |= lessor.work()


class _Worker:
    """A worker without threads."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], ring: KeyRing, number: WorkerId) -> None:
        schemas = Schemas()
        self.replied = 0
        peers = Peers(context, ring.keys_of(WORKER), number, schemas, time.monotonic)
        peers.incarnation = 1
        self.core = WorkerCore(number, peers, schemas, Refusals(f"worker {number}"), time.time)
        self.lanes = InboundSockets(self.core, (_listening(context, ring.server), _listening(context, ring.server)))
        control, data = (f"tcp://127.0.0.1:{each.bind_to_random_port('tcp://127.0.0.1')}" for each in self.lanes.sockets)
        self.member = Member(number, 1, control, data)
        self._job: InstalledJob | None = None

    def install(self, install: Install, folder: Path, workers: tuple[WorkerId, ...], clock: Callable[[], float]) -> None:
        job = self._job = InstalledJob(install, self.core.worker.id, self.core.post_result, self.core.schemas, folder)
        self.core.add(job)
        job.helpers = frozenset(workers)
        job.is_started = True
        self.core.count_helpers()
        for reader in job.readers:
            reader.split.clock = clock

    def is_home_of(self, operator: str) -> bool:
        assert self._job is not None
        own = self.core.worker.id
        return any(spec.home == own and f"/{operator}/" in spec.address for spec in self._job.specs)

    def read(self) -> None:
        """Emit all that is due."""
        assert self._job is not None
        for reader in self._job.readers:
            while not reader.has_ended and (emissions := reader.read(1 << 20, time.time())):
                for emission in emissions:
                    self._job.sources[reader.address].emit(emission)
                self.core.flush()

    def take_in(self) -> bool:
        """Whether anything had come."""
        came = False
        for lane in (CONTROL, DATA):
            while self.lanes.sockets[lane].poll(0):
                self.lanes.take_in(lane)
                came = True
        return came

    def work(self) -> bool:
        """Take in what has come, and run all that waits. Whether there was anything."""
        has_worked = self.take_in()
        worker = self.core.worker
        worker.now = time.time()
        while True:
            errand = self.core.next_errand()
            if errand is not None:
                errand.finish(do(errand, self.core.schemas))
            elif worker.next() is not None:
                worker.apply()
                worker.finish(0.0)
            else:
                break
            self.core.flush()
            has_worked = True
        self.core.flush()
        return has_worked

    @contextmanager
    def timed_sends(self, messages: int, seconds: list[float]) -> Iterator[None]:
        """Note what it takes to send so many messages at once, for each of them; and count replies that come."""
        send, deliver = self.core.peers.send, self.core.deliver

        def timed(leaving: Sequence[Message]) -> Sequence[tuple[Message, Exception]]:
            began_s = time.thread_time()
            unsendable = send(leaving)
            if sum(isinstance(message, SyncRequest | Unsync) for message in leaving) == messages:
                seconds.append((time.thread_time() - began_s) / len(leaving))
            return unsendable

        def counted(messages: Iterable[Any]) -> None:
            self.replied += sum(isinstance(message, SyncReply) for message in messages)
            deliver(messages)

        self.core.peers.send = timed  # type: ignore[method-assign,assignment]
        self.core.deliver = counted  # type: ignore[method-assign]
        yield

    def close(self) -> None:
        self.core.close()
        for socket in self.lanes.sockets:
            socket.close(0)


@contextmanager
def _workers(count: int) -> Iterator[list[_Worker]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    ring = KeyRing()
    with ExitStack() as ends:
        ends.callback(context.destroy, 0)
        workers = []
        for number in range(count):
            worker = _Worker(context, ring, number)
            ends.callback(worker.close)
            workers.append(worker)
        for number, worker in enumerate(workers):  # all with those that have an actor, which is all that is needed
            worker.core.set_members([each.member for each in (workers if number < _ACTORS else workers[:_ACTORS])])
        yield workers


def _install(lessees: int, rounds: int) -> Install:
    flow = flow_of(partial(_schedule, lessees, rounds), _STATE_BYTES)
    workers = tuple(range(lessees + 1))
    strategy, _ = named_shipment(ForwardingInTurn(HOLDER, lessees))
    return Install(flow.name, ship(Plan(flow), flow.name), workers, _BUDGET_BYTES, strategy)


def _schedule(lessees: int, rounds: int) -> Iterator[Entry]:
    """Every other second a message for each lessee, and in between one for the lessor and a barrier."""
    for second in range(0, 2 * rounds, 2):
        yield from [Entry(second, second)] * lessees
        yield Entry(second + 1, second)
        yield Entry(second + 1, None)


def _listening(context: zmq.Context[zmq.Socket[bytes]], own: KeyPair) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PULL)
    socket.linger = 0
    own.secure_server(socket)
    return socket
