"""A cluster in the background: the process that holds it, and how that process is started and stopped.

The process leads a session of its own, so it outlives the terminal, and whatever it starts can be told by that session.
"""

from __future__ import annotations

import fcntl
import importlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol
from urllib.parse import urlsplit

import msgspec

from dirigo.errors import DirigoError
from dirigo.flow.api.duration import Duration
from dirigo.runtime.client.client import BUDGET_BYTES, Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.control import Access
from dirigo.runtime.errors import ControlError
from dirigo.runtime.transport.keys import CLIENT
from dirigo.scheduling import StrategyLike
from dirigo.spark.service import file as service_file
from dirigo.spark.service.file import RunningService
from dirigo.spark.session import LOOPBACK, is_local

READY_S = 120.0
_LOOK_S = 0.1
_ANSWER_S = 5.0
_ASKED_S = 30.0  # to end, after it was asked to
_TOLD_S = 15.0  # to end, after it was told to
_KILLED_S = 10.0
_LEFT_S = 15.0  # for what the process has started to end after it
# Rows become visible when a snapshot has them, and people watch what a service does.
SNAPSHOTS_EVERY = "1s"
_NOT_ALONE = 3  # exit code: another process has this name

_log = logging.getLogger(__name__)


class ServiceSettings(msgspec.Struct, frozen=True):
    """What a cluster in the background is started with."""

    name: str
    workers: int | None = None
    master: str | None = None
    host: str | None = None
    logs: str | None = None
    strategy: str | None = None
    snapshots: str | None = ""  # a folder for those of many clusters, this one's own if empty; None: none are taken
    snapshots_every: str = SNAPSHOTS_EVERY


class AnyCluster(Protocol):
    """What the service and `dirigo run` need of a cluster."""

    access: Access
    client: Client

    @property
    def is_running(self) -> bool: ...

    @property
    def failure(self) -> str | None: ...

    def wait_ready(self, timeout_s: float = READY_S) -> None: ...

    def submit(
        self,
        flow: Any,
        *,
        name: str | None = None,
        strategy: StrategyLike | None = None,
        budget_bytes: int = BUDGET_BYTES,
        snapshots_every: Duration | None = None,
    ) -> Job: ...

    def stop(self) -> None: ...


def new_cluster(**settings: Any) -> AnyCluster:
    """A cluster on Spark; tests name another class, MODULE:CLASS, in DIRIGO_CLUSTER_CLASS."""
    module, _, name = os.environ.get("DIRIGO_CLUSTER_CLASS", "dirigo.spark.cluster:Cluster").partition(":")
    cluster: AnyCluster = getattr(importlib.import_module(module), name)(**settings)
    return cluster


# --- starting --------------------------------------------------------------------------------------------------------------


def start(settings: ServiceSettings, on_news: Callable[[RunningService | None], None]) -> RunningService:
    """Start the process and wait until all workers are there; a ControlError in one line if they are not to come."""
    known = service_file.read(settings.name)
    if known is not None and known.state != "failed" and _is_taken(known):
        raise ControlError(
            f"a cluster '{known.name}' runs already, as process {known.pid} on {known.machine}; "
            f"stop it with 'dirigo cluster stop{_option(known.name)}', or choose another name."
        )
    _check_host(settings)
    service_file.make_folder(settings.name)
    service_file.remove(settings.name)
    log = service_file.log_file_of(settings.name)
    pid = _spawn(settings, log)
    try:
        until = time.monotonic() + READY_S + 2 * _ASKED_S
        while time.monotonic() < until:
            service = service_file.read(settings.name)
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            if service is not None and service.pid == pid and service.state == "ready":
                return service
            on_news(service)
            time.sleep(_LOOK_S)
        else:
            raise ControlError(f"the cluster does not get ready; see {log}.")
    except BaseException:  # an interrupt too: nobody would know of the process
        _give_up(pid)
        raise
    _end_members(pid)
    raise ControlError(_why_ended(settings.name, pid, os.waitstatus_to_exitcode(code), log))


def _check_host(settings: ServiceSettings) -> None:
    """Nobody listens to a network without having been told to; and workers elsewhere cannot do with less."""
    master = settings.master
    if master is None or settings.host is not None or is_local(master):
        return
    if urlsplit(master).hostname not in ("localhost", LOOPBACK):
        raise ControlError(
            f"workers at {master} must reach this machine; say with --host by which of its addresses, and that is opened."
        )


def _is_taken(known: RunningService) -> bool:
    if known.is_here or known.access is None:
        return known.lives()
    try:
        with Client(known.access, answer_s=_ANSWER_S) as client:
            client.status()
    except ControlError:
        return False
    return True


def _spawn(settings: ServiceSettings, log: Path) -> int:
    """The number of the new process, which has this log as its output."""
    with suppress(FileNotFoundError):
        log.replace(log.with_suffix(".log.old"))
    command = [sys.executable, "-m", "dirigo.spark.service.service", msgspec.json.encode(settings).decode()]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _why_ended(name: str, pid: int, code: int, log: Path) -> str:
    if code == _NOT_ALONE:
        return f"another cluster '{name}' is being started; see 'dirigo cluster status{_option(name)}'."
    service = service_file.read(name)
    if service is not None and service.pid == pid and service.problem:
        return f"the cluster did not start: {service.problem} (log: {log})"
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"the cluster did not start: its process {how}; see {log}."


def _give_up(pid: int) -> None:
    for sign, seconds in ((signal.SIGTERM, _ASKED_S), (signal.SIGKILL, _KILLED_S)):
        _signal([pid], sign)
        if _wait_until(lambda: service_file.started_of(pid) is None, seconds):
            break
    _end_members(pid)


def _option(name: str) -> str:
    return service_file.named(name, "--name")


# --- stopping --------------------------------------------------------------------------------------------------------------


def stop(service: RunningService) -> str:
    """End a cluster and all its processes; how it went: "stopped", or "killed" if it did not want to."""
    if service.access is not None and service.access.keys.role != CLIENT:
        raise ControlError(f"a {service.access.keys.role} may not stop the cluster; connect with the keys of a client.")
    if not service.is_here:
        return _stop_elsewhere(service)
    if not service.lives():
        service_file.remove(service.name)
        return "gone"
    pid = service.pid
    how = "stopped"
    is_asked = service.access is not None and _ask_to_stop(service.access)
    steps = [(signal.SIGTERM, _TOLD_S), (signal.SIGKILL, _KILLED_S)]
    if not is_asked or not _wait_until(lambda: not service.lives(), _ASKED_S):
        for sign, seconds in steps:
            if not service.lives():  # never signal a process that only has the number of ours
                break
            how = "killed" if sign == signal.SIGKILL else how
            _signal([pid], sign)
            if _wait_until(lambda: not service.lives(), seconds):
                break
    if service.lives():
        raise ControlError(f"process {pid} of cluster '{service.name}' cannot be ended; see what it waits for.")
    _end_members(pid)
    now = service_file.read(service.name)
    if now is not None and now.pid == pid:
        service_file.remove(service.name)
    return how


def _ask_to_stop(access: Access) -> bool:
    try:
        with Client(access, answer_s=_ANSWER_S) as client:
            client.stop_cluster()
    except ControlError:
        return False
    return True


def _stop_elsewhere(service: RunningService) -> str:
    if service.access is None or not _ask_to_stop(service.access):
        raise ControlError(
            f"cluster '{service.name}' on {service.machine} does not answer; stop it there, "
            f"or delete {service_file.file_of(service.name)} if it is gone."
        )
    return "stopped"


def _end_members(session: int) -> None:
    """What the process had started goes with it by itself; whatever does not is killed."""
    if not _wait_until(lambda: not service_file.members_of(session), _LEFT_S):
        _signal(service_file.members_of(session), signal.SIGKILL)
        _wait_until(lambda: not service_file.members_of(session), _KILLED_S)


def _signal(pids: list[int], sign: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, sign)


def _wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_S)
    return True


# --- the process -----------------------------------------------------------------------------------------------------------


class _ToldToEndError(BaseException):
    """A signal came; nothing that catches ordinary errors may keep it."""


def serve(settings: ServiceSettings) -> int:
    """Hold the cluster until it is stopped; the exit code of the process."""
    folder = service_file.make_folder(settings.name)
    os.chdir(folder)
    with _alone(folder) as is_alone:
        if not is_alone:
            return _NOT_ALONE
        began_s = time.time()
        started = service_file.started_of(os.getpid()) or ""
        service = RunningService(settings.name, socket.gethostname(), os.getpid(), started, began_s)
        service_file.write(service)
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sign, _end)
        try:
            _hold(settings, service, folder)
        except _ToldToEndError:
            _log.info("ended, as a signal told it to")
        except Exception as error:  # whatever Spark raises; whoever started the cluster has to know
            _log.exception("the cluster failed")
            failed = msgspec.structs.replace(service, state="failed", problem=_one_line(error))
            service_file.write(failed)
            return 1
        service_file.remove(settings.name)
        return 0


def _hold(settings: ServiceSettings, service: RunningService, folder: Path) -> None:
    cluster = new_cluster(
        workers=settings.workers,
        master=settings.master,
        name=settings.name,
        host=settings.host or LOOPBACK,
        logs=_results_folder(settings, folder),
        snapshots=snapshots_folder(settings.name, settings.snapshots, settings.master),
        every=settings.snapshots_every,
        **({} if settings.strategy is None else {"strategy": settings.strategy}),
    )
    problem: Exception | None = None
    try:
        known = msgspec.structs.replace(service, access=cluster.access)
        service_file.write(known)
        try:
            cluster.wait_ready(READY_S)
        except ControlError:
            if cluster.is_running:
                raise
            return  # it was stopped meanwhile
        service_file.write(msgspec.structs.replace(known, state="ready"))
        while cluster.is_running:
            time.sleep(_LOOK_S)
        if cluster.failure is not None:
            raise ControlError(cluster.failure)
        _log.info("stopped")
    except _ToldToEndError:
        _log.info("told to end by a signal")
        raise
    except Exception as error:
        problem = error
        raise
    finally:
        _stop(cluster, problem)


def _stop(cluster: AnyCluster, problem: Exception | None) -> None:
    """If the cluster has failed, that is what to tell, not that it cannot be stopped in order either."""
    try:
        cluster.stop()
    except Exception:
        if problem is None:
            raise
        _log.warning("the cluster could not be stopped in order", exc_info=True)


def _results_folder(settings: ServiceSettings, folder: Path) -> Path:
    """Where results logs are kept. Those of earlier runs under the same name are there too."""
    return folder / "results" if settings.logs is None else Path(settings.logs) / settings.name


def snapshots_folder(name: str, root: str | None, master: str | None = None) -> str | None:
    """Where snapshots are kept: jobs are numbered per service, so several may not share a folder.

    A service whose workers may be on other machines takes none, unless it is told a folder that all of them see.
    """
    if root is None or (not root and master is not None and not is_local(master)):
        return None
    return f"{root.rstrip('/')}/{name}" if root else str(service_file.folder_of(name) / "snapshots")


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether no other process holds a cluster of this name; the system lets go of it when the process ends."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = True
        except BlockingIOError:
            is_alone = False
        yield is_alone


def _end(sign: int, frame: object) -> NoReturn:  # noqa: ARG001
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # once is enough: the end must not be interrupted
    raise _ToldToEndError


def _one_line(error: Exception) -> str:
    told = " ".join(str(error).split()) or type(error).__name__
    told = told if isinstance(error, DirigoError) else f"{type(error).__name__}: {told}"
    return told if len(told) <= 400 else f"{told[:400]} ..."


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    sys.exit(serve(msgspec.json.decode(sys.argv[1], type=ServiceSettings)))
