"""Spark clusters and Connect servers of the installed PySpark, as processes that end with a `with` statement."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pyspark

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# For few small queries, compiling costs more than it saves.
QUICK_START = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.icu.caseMappings.enabled": "false",
}
LONGEST_S = 180.0  # for whatever a test waits; far more than it needs
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@contextmanager
def cluster(folder: Path, workers: int = 2, cores: int = 2) -> Iterator[str]:
    """A standalone cluster; its master's address."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        log = folder / "master.log"
        what = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        running.enter_context(_process(log, "org.apache.spark.deploy.master.Master", *what))
        wait_for(lambda: _is_listening(port), "the master", log)
        logs = [folder / f"worker-{number}.log" for number in range(workers)]
        for number, its_log in enumerate(logs):
            what = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", str(cores), "--memory", "1g"]
            what += ["--work-dir", str(folder / f"work-{number}"), master]
            running.enter_context(_process(its_log, "org.apache.spark.deploy.worker.Worker", *what))
        for its_log in logs:
            wait_for(partial(_says, its_log, "Successfully registered with master"), "a worker", its_log)
        yield master


@contextmanager
def connect_server(folder: Path, slots: int = 5) -> Iterator[str]:
    """A Spark Connect server that runs tasks itself; its address."""
    port = free_port()
    settings = {
        **QUICK_START,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    what = ["org.apache.spark.deploy.SparkSubmit", "--master", f"local[{slots},10]"]
    for name, value in settings.items():
        what += ["--conf", f"{name}={value}"]
    what += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = folder / "connect.log"
    with _process(log, *what) as pid:
        wait_for(lambda: _is_listening(port) or not is_alive(pid), "the Connect server", log)
        assert is_alive(pid), log.read_text(errors="replace")[-3000:]
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _process(log: Path, *what: str) -> Iterator[int]:
    """A Java process of Spark, in a process group of its own; ended at the end."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with log.open("wb") as told:
        process = subprocess.Popen(
            [str(_SPARK_CLASS), *what],
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(
    is_so: Callable[[], object], what: str, log: Path | None = None, tell: Callable[[], object] | None = None
) -> None:
    """Until something is so; bounded. If it never is, what the log has, and what ``tell`` returns, is told."""
    until = time.monotonic() + LONGEST_S
    while not is_so():
        if time.monotonic() > until:
            told = "" if log is None else log.read_text(errors="replace")[-3000:]
            told += "" if tell is None else f"{tell()}"
            raise AssertionError(f"waited {LONGEST_S:g} s for {what} in vain\n{told}")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _says(log: Path, words: str) -> bool:
    return words in log.read_text(errors="replace")


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent to notice does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> set[int]:
    """All processes below this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def java_below(pid: int) -> list[int]:
    """The Java processes among them; any of them may end while it is looked at."""
    found = []
    for below in descendants(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{below}/comm").read_text().strip() == "java":
                found.append(below)
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
