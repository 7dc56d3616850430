"""What the service stands on goes: it says so in one sentence, its jobs fail, and nobody waits for ever."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.commands import home_of_clusters, refused, run, until
from dirigo.runtime import control
from dirigo.runtime.client.client import Client
from dirigo.runtime.errors import ControlError, JobFailed
from dirigo.spark import hosting
from dirigo.spark.hosting import WorkerHost
from dirigo.spark.service import file as service_file
from dirigo.spark.service.service import ServiceSettings
from runtime.clusters import PATIENCE_S, counting
from runtime.clusters import until as wait_until
from runtime.pretenders import PretendedCluster

GONE = "Spark does not answer any more."


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PretendedCluster]:
    with ExitStack() as stack:
        yield stack.enter_context(PretendedCluster(tmp_path / "logs", 1))


# --- the controller --------------------------------------------------------------------------------------------------------


def test_all_jobs_fail_with_the_reason_and_no_other_is_taken(cluster: PretendedCluster) -> None:
    worker = cluster.join(0)
    running = cluster.client.submit(counting("running", rows=10)[0])
    worker.take(control.Install)
    worker.say(control.Installed(running.id))
    worker.take(control.Start)
    waiting = cluster.client.submit(counting("waiting", rows=10)[0])
    cluster.controller.mark_failed(GONE)
    for handle in (running, waiting):
        with pytest.raises(JobFailed, match=rf"failed: {GONE}$"):
            handle.wait(PATIENCE_S)
    with pytest.raises(ControlError, match=rf"cannot go on, so start another one: {GONE}$"):
        cluster.client.submit(counting("late", rows=10)[0])
    assert cluster.client.status().workers  # it still answers, and says what has become of its jobs


def test_who_waits_is_told_when_the_controllers_thread_ends(
    cluster: PretendedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no room")

    controller = cluster.controller
    handle = cluster.client.submit(counting("waiting", rows=10)[0])
    with Client(controller.access, why_silent=lambda: controller.failure) as client:
        monkeypatch.setattr(controller._authenticator, "answer", broken)  # when the new connection is let in, for one
        with pytest.raises(ControlError, match=r"the thread 'controller' .* ended by an error: MemoryError: no room$"):
            client.job_status(handle.id, wait_s=PATIENCE_S)
    assert not controller.is_running
    assert controller.failure is not None


# --- Spark -----------------------------------------------------------------------------------------------------------------


class DeadContext:
    """What is left of a classic session whose Java process was killed."""

    _jsc = object()

    def addJobTag(self, tag: str) -> None:  # noqa: N802
        raise ConnectionRefusedError(111, "Connection refused")


class DeadSession:
    """One whose calls all fail in the way that calls to a dead Java process do."""

    sparkContext = DeadContext()  # noqa: N815


def test_a_host_says_so_when_java_is_gone() -> None:
    told: list[str] = []
    host = WorkerHost(DeadSession(), print, told.append)
    host.start(0, None)
    wait_until(lambda: not host.is_running(0), "the slot gives up")
    assert told == ["Spark does not answer any more: its process was ended, or cannot be reached."]
    assert host.gave_up(0)
    assert len(host.failures(0)) == 2  # a single broken connection is no proof
    host.stop_all()


def test_a_host_says_so_when_its_own_thread_ends_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def broken(text: str) -> Any:
        raise RuntimeError("cannot understand it")

    monkeypatch.setattr(hosting, "understand", broken)
    host = WorkerHost(DeadSession(), print, told.append)
    host.start(0, None)
    wait_until(lambda: told, "it is told")
    assert told[0].endswith("of the service ended by an error: RuntimeError: cannot understand it")
    host.stop_all()


# --- the process in the background -----------------------------------------------------------------------------------------


def test_the_process_ends_with_an_error_and_commands_say_why(tmp_path: Path) -> None:
    with home_of_clusters(tmp_path):
        began = time.monotonic()
        settings = msgspec.json.encode(ServiceSettings("dirigo", 1, "local[doomed]")).decode()
        ended = subprocess.run(
            [sys.executable, "-m", "dirigo.spark.service.service", settings],
            check=False,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        assert ended.returncode == 1, (ended.stderr, time.monotonic() - began)
        found = service_file.read("dirigo")
        assert found is not None
        assert (found.state, found.problem) == ("failed", GONE)
        told = refused("jobs")
        assert told.startswith(
            "error: no cluster 'dirigo' runs; start one with 'dirigo cluster start' (the last one ended: "
        )
        assert "(the last one ended: Spark does not answer any more; see " in told
        run("cluster", "start", "--workers", "1")
        until(lambda: service_file.living() == ["dirigo"], "another one runs")
