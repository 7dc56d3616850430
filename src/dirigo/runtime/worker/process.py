"""A worker: one process, one kernel, a thread that executes and a thread that fetches.

``run_worker`` is all that a host has to call. It returns when the controller says so and raises when something went wrong;
the host may then call it again in a new process, which joins the cluster in the place of the old one.
"""

from __future__ import annotations

import gc
import os
import secrets
import socket as sockets
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import zmq

from dirigo.runtime.control import Bootstrap, Hello
from dirigo.runtime.folders import SUCCEEDED_WITHIN_S, OwnFolder, remove_abandoned
from dirigo.runtime.ingest.thread import IngestThread
from dirigo.runtime.results.poster import LogPosting
from dirigo.runtime.transport.authenticator import Authenticator, Refusals
from dirigo.runtime.transport.keys import KeyPair
from dirigo.runtime.transport.payload import Schemas
from dirigo.runtime.transport.peers import Peers
from dirigo.runtime.worker.clock import WorkerClock
from dirigo.runtime.worker.controller_line import Line
from dirigo.runtime.worker.core import WorkerCore
from dirigo.runtime.worker.executor import Executor
from dirigo.runtime.worker.fetcher import FROZEN_AFTER_S, Fetcher, StuckError
from dirigo.runtime.worker.last_words import LastWords
from dirigo.runtime.worker.streams import shared_streams

# How long a thread may keep the interpreter while another one waits. The fetcher's answers come after this long beside a
# busy function, so it is shorter than usual; each switch costs some microseconds.
SWITCH_S = 0.0005
_LEAVE_AFTER_S = 5.0  # user code that does not return when the worker has to go
_STUCK_LEAVES_AFTER_S = 0.5  # if it has been asked to before: for the last words to the controller
_PACKETS_MOST = 1000
_INBOUND, _INGEST = "inbound", "ingest"  # the doors of a worker


def run_worker(bootstrap: Bootstrap) -> None:
    """Join the cluster and work until told to stop."""
    sys.setswitchinterval(SWITCH_S)
    _spare_imports_from_collection()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with shared_streams(), OwnFolder(f"{_folders_of(bootstrap)}{os.getpid()}") as folder:
        # What is left of the other workers of this run is for those who take their places.
        remove_abandoned(but=folders_of_run(bootstrap.run), gone_for_s=SUCCEEDED_WITHIN_S)
        try:
            _Worker(context, bootstrap, folder).run()
        finally:
            context.destroy(0)


def _spare_imports_from_collection() -> None:
    """What was imported stays, and is most of what Python's collector of garbage would look at again and again.

    It stops all threads for that: with 90,000 objects for some 50 ms, in the middle of anybody's messages.
    """
    gc.collect()
    gc.freeze()


def folders_of_run(run: str) -> str:
    """How the folders of a run's workers are called, on whatever machine."""
    return f"worker-{run}-"


def _folders_of(bootstrap: Bootstrap) -> str:
    return f"{folders_of_run(bootstrap.run)}{bootstrap.worker}-"


class _Worker:
    """The parts of a worker, put together."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], bootstrap: Bootstrap, folder: Path) -> None:
        keys, own = bootstrap.keys, KeyPair.new()
        refusals = Refusals(f"worker {bootstrap.worker}")
        host = reachable_host(bootstrap.controller)
        authenticator = Authenticator(context, {_INBOUND: bootstrap.inbound, _INGEST: bootstrap.ingest}, refusals)
        inbound = (_listening(context, zmq.PULL, own, _INBOUND), _listening(context, zmq.PULL, own, _INBOUND))
        ingest = _listening(context, zmq.ROUTER, own, _INGEST)
        for listener in (*inbound, ingest):
            authenticator.watch(listener)
        control, data, pushed = (
            f"tcp://{host}:{listener.bind_to_random_port(f'tcp://{host}')}" for listener in (*inbound, ingest)
        )
        controller = context.socket(zmq.DEALER)
        log = context.socket(zmq.DEALER)
        for outward in (controller, log):
            outward.linger = 0
            # Whoever connects with this name takes the place of whoever had it: nobody else can know it.
            outward.identity = f"worker-{bootstrap.worker}-{os.getpid()}-{secrets.token_hex(16)}".encode()
            keys.secure_client(outward)
        schemas = Schemas()
        peers = Peers(context, keys, bootstrap.worker, schemas, time.monotonic)
        clock = WorkerClock()
        self.core = WorkerCore(bootstrap.worker, peers, schemas, refusals, clock)
        self._last_words = LastWords(folder)
        remove_abandoned(_folders_of(bootstrap), first=self._last_words.read_left)
        self._executor = Executor(self.core, self._last_words)
        hello = Hello(
            bootstrap.run,
            bootstrap.worker,
            sockets.gethostname(),
            os.getpid(),
            control,
            data,
            pushed,
            own.public,
            self._last_words.before,
            FROZEN_AFTER_S if self._last_words.before_frozen else 0.0,
        )
        self._fetcher = Fetcher(
            self.core,
            self._executor,
            authenticator,
            inbound,
            Line(controller, bootstrap.controller, refusals),
            LogPosting(log),
            hello,
            folder,
            self._last_words,
            clock,
            self._stop_executor,
        )
        self._ingest = IngestThread(ingest, self.core.jobs.get, refusals, self._fetcher.give_up)
        self._failure: BaseException | None = None
        self._has_left = threading.Event()
        self._own_sockets = (*inbound, controller, log)
        self._authenticator = authenticator

    def run(self) -> None:
        thread = threading.Thread(target=self._fetcher.run, name="fetcher", daemon=True)
        thread.start()
        try:
            self._run(thread)
        finally:
            self._has_left.set()

    def _run(self, fetcher: threading.Thread) -> None:
        self._executor.run()  # user code is used to the main thread
        fetcher.join()
        self._ingest.stop()
        self.core.close()
        self._last_words.close()
        self._authenticator.close()
        for each in self._own_sockets:
            each.close(0)
        if self._failure is not None:
            raise self._failure

    def _stop_executor(self, failure: BaseException | None) -> None:
        """The fetcher has ended, so the worker does. Called on the fetcher's thread."""
        self._failure = failure
        with self.core.lock:
            self.core.is_stopping = True
            self.core.wake_worker()
        patience_s = _STUCK_LEAVES_AFTER_S if isinstance(failure, StuckError) else _LEAVE_AFTER_S
        threading.Thread(target=self._leave, args=(patience_s,), name="leave", daemon=True).start()

    def _leave(self, patience_s: float) -> None:
        """User code that keeps the worker thread must not keep the process."""
        if not self._has_left.wait(patience_s):
            os._exit(1)


def reachable_host(endpoint: str) -> str:
    """The address of this machine on the way to another one, where others can reach it too."""
    host, port = urlsplit(endpoint).hostname, urlsplit(endpoint).port
    with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as probe:
        probe.connect((host, port))  # which sends nothing
        return str(probe.getsockname()[0])


def _listening(context: zmq.Context[zmq.Socket[bytes]], kind: int, own: KeyPair, door: str) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    socket.linger = 0
    socket.rcvhwm = _PACKETS_MOST
    own.secure_server(socket, door)
    return socket
