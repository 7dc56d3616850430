"""Ties a worker to its Spark task, not to the process that Spark forked it from.

An executor forks its Python processes from one daemon, and replaces that daemon when it could not connect to it, be it only
because somebody's query was cancelled at that moment. A daemon that goes sends SIGHUP to all it forked: without care, one
failing query would kill all workers of its executor. The tasks themselves go on; they read from their processes until the
connection closes. So a worker that gets SIGHUP stays if there is a new daemon, and otherwise goes, because then it was the
session that was stopped. It also goes when its connection closes: task killed, executor dead.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dirigo.runtime.threads import ServiceThread

_DAEMON = b"pyspark.daemon"
_REPLACED_WITHIN_S = 10.0  # a daemon starts in less than a second, but the machine may be busy
_LOOK_AGAIN_S = 0.25
# A function that never gives up the interpreter lock keeps the watching thread from running. The cluster has such a worker
# killed after some seconds; if there is no cluster any more, this clock, which needs no lock, ends the process.
_STUCK_S = 120.0
_WIND_UP_S = 20.0


@contextmanager
def tied_to_task() -> Iterator[None]:
    """Within, the process ends with its Spark task; to be used on the main thread of a process that Spark forked."""
    if not _is_daemon(daemon := os.getppid()) or (connection := _connection_of_task()) is None:
        yield  # somewhere else, where SIGHUP keeps its meaning
        return
    watched, own = socket.socketpair()
    before = signal.signal(signal.SIGHUP, lambda *_: own.send(b"h"))
    watcher = ServiceThread(
        _watch,
        name="lifeline",
        on_escape=lambda _: os._exit(1),  # or the process might outlive its task
        args=(connection, watched, daemon, _parent(daemon)),
    )
    watcher.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
        own.close()
        watcher.join()
        watched.close()
        faulthandler.cancel_dump_traceback_later()


def _connection_of_task() -> int | None:
    """The descriptor of the connection to the executor: the first one, as it was there before the process itself was."""
    for fd in sorted(int(entry.name) for entry in Path("/dev/fd").iterdir()):
        try:
            with socket.socket(fileno=os.dup(fd)) as found:
                found.getpeername()
        except OSError:  # closed meanwhile, no socket, or one that is not connected
            continue
        return fd
    return None


def _watch(connection: int, told: socket.socket, daemon: int, executor: int) -> None:
    """Until the other end of ``told`` is closed; a byte means that the daemon has gone."""
    poller = select.poll()
    poller.register(connection, select.POLLRDHUP)
    poller.register(told, select.POLLIN)
    while True:
        faulthandler.dump_traceback_later(_STUCK_S, exit=True)
        ready = [fd for fd, _ in poller.poll(_WIND_UP_S * 1000)]
        if connection in ready:
            os._exit(1)  # nobody is left to tell, and user code must not keep the process
        if ready:
            if not told.recv(1):
                return
            if (new := _new_daemon(daemon, executor)) is None:
                os._exit(1)
            daemon = new


def _new_daemon(old: int, executor: int) -> int | None:
    until = time.monotonic() + _REPLACED_WITHIN_S
    while time.monotonic() < until:
        for entry in Path("/proc").iterdir():
            pid = int(entry.name) if entry.name.isdigit() else old
            with suppress(OSError, IndexError):  # gone meanwhile, and what is told of it may be empty
                if pid != old and _parent(pid) == executor and _is_daemon(pid):
                    return pid
        time.sleep(_LOOK_AGAIN_S)
    return None


def _is_daemon(pid: int) -> bool:
    try:
        return _DAEMON in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # also where there is no /proc
        return False


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
