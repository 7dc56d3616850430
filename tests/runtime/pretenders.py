"""A controller whose workers are the test itself: each says what it is told to say, and hears all orders."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import zmq

from dirigo.runtime import control
from dirigo.runtime.client.client import Client
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.transport.control_link import ControlLink, decode_head
from dirigo.runtime.transport.keys import KeyPair
from runtime.clusters import PATIENCE_S, until

T = TypeVar("T")

_orders = msgspec.msgpack.Decoder(control.ToWorker)
_BEAT_S = 0.5


class QuietPool:
    """Starts nothing, and remembers what it was asked for."""

    workers_most: int | None = None

    def __init__(self) -> None:
        self.started: list[int] = []
        self.stopped: list[int] = []
        self.interrupted: list[int] = []

    def start(self, bootstrap: control.Bootstrap) -> None:
        self.started.append(bootstrap.worker)

    def stop(self, slot: int) -> None:
        self.stopped.append(slot)

    def interrupt(self, slot: int) -> None:
        self.interrupted.append(slot)

    def problem(self, slot: int) -> str | None:
        return None

    def close(self) -> None:
        """There is nothing to end."""


class PretendedCluster:
    """A controller and a client, without any worker but those that a test pretends to be."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.pool = QuietPool()
        self.controller = Controller("pretended", self.pool, workers, logs=folder)
        self.controller.farewell_s = 0.0  # nobody answers
        self.controller.start()
        self.client = Client(self.controller.access)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._pretenders: list[Pretender] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.client.close()
        self.controller.stop()
        for pretender in self._pretenders:
            pretender.vanish()
        self._context.term()

    def states(self) -> dict[int, str]:
        return {worker.id: worker.state for worker in self.client.status().workers}

    def until_states(self, **states: str) -> None:
        """The slots and how they are, as in w0="ready"."""
        wanted = {int(slot[1:]): state for slot, state in states.items()}
        until(lambda: self.states() == wanted, f"the slots are {wanted}")

    def join(self, worker: int) -> Pretender:
        """A process joins as this worker, unless it is told to go."""
        pretender = Pretender(self._context, self.controller, worker)
        self._pretenders.append(pretender)
        until(lambda: pretender.has(control.Welcome, control.Stop), "it is heard")
        return pretender


class Pretender:
    """One worker, as far as the controller can tell."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], controller: Controller, worker: int) -> None:
        self.worker = worker
        self.jobs: dict[str, control.JobFigures] = {}  # what it tells of them
        self._orders: list[control.ToWorker] = []
        self._beat_s = time.monotonic()
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = 0
        controller.bootstrap(worker).keys.secure_client(self._socket)
        self._socket.connect(controller.access.controller)
        self._channel = ControlLink(self._send, time.monotonic)
        nowhere = "tcp://127.0.0.1:1"  # others may connect to it, in vain
        key = KeyPair.new().public
        hello = control.Hello(controller.run_id, worker, "nowhere", 0, nowhere, nowhere, nowhere, key)
        self._socket.send(msgspec.msgpack.encode(hello))

    def say(self, record: control.FromWorker) -> None:
        self._channel.post(msgspec.msgpack.encode(record))

    def beat(self) -> None:
        self._channel.say(msgspec.msgpack.encode(control.Beat(0, control.WorkerFigures(), self.jobs)))

    def _send(self, head: bytes, body: bytes) -> bool:
        self._socket.send_multipart([head, body])
        return True

    def has(self, *kinds: type) -> bool:
        """Whether an order of these kinds has come that was not taken yet."""
        self._listen()
        return any(isinstance(order, kinds) for order in self._orders)

    def take(self, kind: type[T], job: str | None = None) -> T:
        """The first order of a kind, or for a job, that has not been taken, as soon as it comes."""

        def found() -> T | None:
            self._listen()
            of_kind = [order for order in self._orders if isinstance(order, kind)]
            return next((order for order in of_kind if job in (None, getattr(order, "job", None))), None)

        order = until(found, f"worker {self.worker} hears {kind.__name__}", PATIENCE_S)
        assert order is not None
        self._orders.remove(order)  # type: ignore[arg-type]
        return order

    def vanish(self) -> None:
        """As a process does that is killed, and that nobody starts again."""
        self._socket.close(0)

    def _listen(self) -> None:
        while self._socket.poll(0):
            head, body = self._socket.recv_multipart()
            if self._channel.take(decode_head(head), len(body)).is_new:
                self._orders.append(_orders.decode(body))
                self._channel.say()
        if time.monotonic() - self._beat_s > _BEAT_S:
            self._beat_s = time.monotonic()
            self.beat()
