"""Workers on Spark run beside queries, come back alone when they are killed, and leave nothing behind at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dirigo.spark import hosting
from dirigo.spark.hosting import HostingError, WorkerHost
from dirigo.spark.session import OwnSession, SessionError, check_session, driver_host, is_connect, slots_of
from spark import driver_program
from spark.standalone import descendants, is_alive, kill, wait_for
from spark.standing import Stand, standing

TESTS = Path(__file__).parent.parent


@pytest.fixture(params=["classic", pytest.param("connect", marks=pytest.mark.acceptance)])
def session(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_session")


@pytest.fixture
def host(session: Any, stand: Stand) -> Iterator[WorkerHost]:
    """A host for standing workers, which leaves neither a thread nor a process."""
    host = WorkerHost(session, standing())
    yield host
    host.stop_all(grace_s=0.0)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("dirigo-")] == []
    wait_for(lambda: not running_slots(stand), "the end of all workers")


def running_slots(stand: Stand) -> list[int]:
    """The processes that are still in a worker; one that Spark keeps for its next Python task is not."""
    return [pid for slot in range(3) if not stand.has_gone(slot) for pid in stand.runs(slot)[-1:] if is_alive(pid)]


# --- life of a slot -------------------------------------------------------------------------------------------------


def test_workers_run_at_the_same_time_beside_a_query_and_a_killed_one_comes_back_alone(
    session: Any, host: WorkerHost, stand: Stand
) -> None:
    for slot in range(3):
        host.start(slot, stand.payload(slot))
    first = [stand.wait_for_run(slot) for slot in range(3)]
    assert len(set(first)) == 3
    assert session.range(1000).selectExpr("sum(id)").collect()[0][0] == 499_500
    kill(first[1])
    assert stand.wait_for_run(1, number=2) != first[1]
    assert [stand.runs(0), stand.runs(2)] == [[first[0]], [first[2]]]
    assert is_alive(first[0])
    assert is_alive(first[2])
    assert host.failures(1) == []  # Spark did it


def test_workers_outlive_the_daemon_that_spark_forks_them_from(session: Any, host: WorkerHost, stand: Stand) -> None:
    for slot in range(2):
        host.start(slot, stand.payload(slot))
    first = [stand.wait_for_run(slot) for slot in range(2)]
    daemon = parent(first[0])
    os.kill(daemon, signal.SIGTERM)  # as Spark does when it could not connect to it, say because a query was cancelled
    wait_for(lambda: not is_alive(daemon), "the end of the daemon")
    assert session.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3  # by a new one
    assert [stand.runs(0), stand.runs(1)] == [[first[0]], [first[1]]]
    assert all(map(is_alive, first))
    host.interrupt(0)
    stand.wait_for_run(0, number=2)
    wait_for(lambda: not is_alive(first[0]), "the end of the interrupted process")
    assert stand.runs(1) == [first[1]]


def test_an_interrupted_worker_is_killed_and_started_again(host: WorkerHost, stand: Stand) -> None:
    host.start(0, stand.payload(0))
    first = stand.wait_for_run(0)
    host.interrupt(0)
    stand.wait_for_run(0, number=2)
    wait_for(lambda: not is_alive(first), "the end of the interrupted process")
    assert host.failure(0) == "Its Spark job was cancelled."
    assert host.is_running(0)


def test_a_worker_that_raises_is_started_again_and_one_that_returns_is_not(host: WorkerHost, stand: Stand) -> None:
    host.start(0, stand.payload(0))
    stand.wait_for_run(0)
    stand.tell("fail", 0)
    stand.wait_for_run(0, number=2)
    assert host.failure(0) == "ValueError: slot 0 was told to fail"
    stand.tell("go", 0)
    wait_for(lambda: not host.is_running(0), "the end of the slot")
    assert stand.has_gone(0)
    assert len(stand.runs(0)) == 2
    assert not host.gave_up(0)


def test_a_stopped_slot_may_go_by_itself_and_be_started_again(host: WorkerHost, stand: Stand) -> None:
    host.start(0, stand.payload(0))
    host.start(1, stand.payload(1))
    stand.wait_for_run(0)
    beside = stand.wait_for_run(1)
    with pytest.raises(HostingError, match="slot 0 is in use: stop it"):
        host.start(0, stand.payload(0))
    host.stop(0)
    host.start(0, stand.payload(2))  # while the first one is still there
    stand.wait_for_run(2)
    stand.tell("go", 0)
    wait_for(lambda: stand.has_gone(0), "the one that was told to go")
    assert len(stand.runs(0)) == 1
    assert stand.runs(1) == [beside]
    assert host.is_running(0)


def test_a_slot_that_was_just_started_can_be_stopped(host: WorkerHost, stand: Stand) -> None:
    for slot in range(3):
        host.start(slot, stand.payload(slot))
    host.stop_all(grace_s=0.0)
    assert not any(host.is_running(slot) for slot in range(3))


# --- failures -------------------------------------------------------------------------------------------------------


def test_a_worker_that_cannot_be_imported_is_not_tried_again(classic_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("only_here")
    exec("def work(payload): pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    host = WorkerHost(classic_session, module.work)
    host.start(0, None)
    wait_for(lambda: not host.is_running(0), "the slot to give up")
    assert host.gave_up(0)
    (sentence,) = host.failures(0)
    assert sentence == (
        "The Python of Spark's executors cannot import 'only_here': install only_here there, the same version as here."
    )
    host.stop_all()


def test_a_worker_that_fails_all_the_time_is_tried_less_often(classic_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "_LONGEST_PAUSE_S", 0.01)
    host = WorkerHost(classic_session, failing())
    host.start(0, "payload")
    wait_for(lambda: len(host.failures(0)) == 6, "six failures")
    assert host.failures(0) == ["RuntimeError: no use for payload"] * 6
    assert host.is_running(0)  # it waits before it is tried again
    assert not host.gave_up(0)
    host.stop_all()


def failing() -> Callable[[Any], None]:
    def fail(payload: Any) -> None:
        raise RuntimeError(f"no use for {payload}")

    return fail


def test_what_was_never_started_cannot_be_stopped(classic_session: Any) -> None:
    host = WorkerHost(classic_session, standing())
    with pytest.raises(HostingError, match="no worker slot 7"):
        host.stop(7)
    assert host.failure(7) is None
    assert not host.is_running(7)
    host.stop_all()


def test_spark_shows_nothing_of_the_payload(classic_session: Any) -> None:
    host = WorkerHost(classic_session, failing_with_a_secret())
    secret = "neither in plans nor in settings"
    host.start(0, secret)
    wait_for(lambda: host.failures(0), "the worker to tell what it got")
    host.stop_all()
    assert host.failures(0)[0] == f"RuntimeError: {len(secret)}"
    shown = classic_session._jsparkSession.sharedState().statusStore().executionsList()
    plans = "".join(shown.apply(number).physicalPlanDescription() for number in range(shown.size()))
    assert "MapInArrow" in plans
    assert secret not in plans
    assert secret not in str(classic_session.sparkContext.getConf().getAll())


def failing_with_a_secret() -> Callable[[Any], None]:
    def fail(payload: Any) -> None:
        raise RuntimeError(len(payload))

    return fail


# --- what we know about a session -----------------------------------------------------------------------------------


def test_sessions_without_room_or_with_speculation_are_refused(classic_session: Any) -> None:
    slots = 3 + max(2, os.cpu_count() or 1)
    assert slots_of(classic_session) == slots
    assert driver_host(classic_session) == "127.0.0.1"
    assert not is_connect(classic_session)
    check_session(classic_session, slots - 1)
    with pytest.raises(
        SessionError, match=f"runs {slots} tasks at a time, but {slots} workers.* need {slots + 1}: give it more"
    ):
        check_session(classic_session, slots)
    speculative = classic_session.newSession()
    speculative.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    speculative.conf.set("spark.speculation", "true")
    with pytest.raises(SessionError, match=r"start the session with spark\.speculation=false"):
        check_session(speculative, 1)


def test_a_connect_session_does_not_tell_its_slots(connect_session: Any) -> None:
    assert is_connect(connect_session)
    assert slots_of(connect_session) is None
    assert driver_host(connect_session) == "127.0.0.1"
    check_session(connect_session, 1000)


def test_a_second_session_in_a_process_is_refused(classic_session: Any) -> None:
    with pytest.raises(SessionError, match="already running in this process"):
        OwnSession(1).start()


# --- drivers that end in other ways ---------------------------------------------------------------------------------


@contextmanager
def driver(stand: Stand, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver with workers in a process of its own, ready."""
    log = stand.folder / "driver.log"
    with log.open("wb") as told:
        process = subprocess.Popen(
            [sys.executable, driver_program.__file__, str(stand.folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=told,
            stderr=told,
            # A killed driver cannot clean up its folder for temporary files.
            env={**os.environ, "PYTHONPATH": str(TESTS), "TMPDIR": str(stand.folder)},
        )
    try:
        wait_for(lambda: (stand.folder / "ready").exists() or process.poll() is not None, "a driver with workers", log)
        assert process.poll() is None, log.read_text()[-3000:]
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.acceptance
def test_ctrl_c_lets_the_workers_go_in_order(stand: Stand) -> None:
    with driver(stand) as process:
        family = descendants(process.pid)
        assert len(family) >= 1 + 1 + driver_program.WORKERS  # Java, the parent of the Python processes, and these
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert process.returncode == 0
        assert (stand.folder / "interrupted").exists()
        assert [stand.has_gone(slot) for slot in range(driver_program.WORKERS)] == [True] * driver_program.WORKERS
        assert (stand.folder / "failures").read_text() == str([[]] * driver_program.WORKERS)
        wait_for(lambda: not any(map(is_alive, family)), "the end of all processes")


def test_workers_go_with_a_session_that_is_stopped_though_its_process_stays(stand: Stand) -> None:
    with driver(stand) as process:
        assert process.stdin is not None
        process.stdin.write(b"stop\n")
        process.stdin.flush()
        wait_for(lambda: not stand.alive(), "the end of the workers")
        assert process.poll() is None
        assert not any(stand.has_gone(slot) for slot in range(driver_program.WORKERS))


def test_a_killed_driver_takes_all_processes_with_it(stand: Stand) -> None:
    with driver(stand) as process:
        family = descendants(process.pid)
        kill(process.pid)
        wait_for(lambda: not any(map(is_alive, family)), "the end of all processes")
        assert not any(stand.has_gone(slot) for slot in range(driver_program.WORKERS))


@pytest.mark.acceptance
def test_a_standalone_cluster_replaces_a_lost_executor_and_survives_its_driver(stand: Stand, standalone_master: str) -> None:
    with driver(stand, standalone_master) as process:
        (first,) = stand.runs(0)
        (beside,) = stand.runs(1)
        executor = parent(parent(first))
        same_executor = parent(parent(beside)) == executor
        kill(executor)
        again = stand.wait_for_run(0, number=2)
        wait_for(lambda: not is_alive(first), "the end of the worker of the lost executor")
        if same_executor:
            beside = stand.wait_for_run(1, number=2)
        assert len(stand.runs(1)) == 1 + same_executor
        family = descendants(process.pid) | {again, beside, parent(parent(again)), parent(parent(beside))}
        kill(process.pid)
        wait_for(lambda: not any(map(is_alive, family)), "the end of the driver's processes and executors")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
