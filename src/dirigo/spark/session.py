"""Spark sessions: a quiet one inside this process, started and ended by us, and what to know about one that is not ours.

How the processes under a session of ours end: Java reads from a pipe that this process holds, and the parent of the Python
workers reads from a pipe that Java holds; each ends, with its children, when its pipe does. So nothing stays behind, not
even when this process is killed with SIGKILL. (A process that this one forked, without closing what it inherited, keeps
the pipe open and Java alive until it ends as well.)
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from dirigo.errors import DirigoError
from dirigo.runtime.folders import SUCCEEDED_WITHIN_S, OwnFolder, remove_abandoned

LOOPBACK = "127.0.0.1"
# Spark runs a task again this often, for example after a worker was killed, before it gives up the job. It is what Spark
# does on clusters: workers are started anew anyhow, and a user's query that cannot succeed should not try for long.
TASK_FAILURES_MOST = 4
_DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_LEFT_FOR_QUERIES = 1  # slots, at the least, or every query beside the workers waits forever
_SECONDS_TO_LET_JAVA_EXIT = 20
_DIED_WITHIN_S = 1.0  # Java, if its connections break although nobody has ended it here
_SECONDS_FOR_EXECUTORS_TO_COME = 30.0
_LOOK_S = 0.1
# Effective before Spark reads its own defaults, which would write warnings about the machine while it starts.
# The loggers that are off tell, with a page of Java frames each, of tasks that were killed: that is in the day's work here.
_LOG_SETTINGS = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.context.name = org.apache.spark.TaskContextImpl
logger.context.level = off
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
logger.writing.name = org.apache.spark.sql.execution.datasources.v2
logger.writing.level = off
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = off
"""


class SessionError(DirigoError):
    """A Spark session cannot be started, or cannot be used for what is wanted."""


class OwnSession:
    """A session of our own: inside this process, or with `master` on a cluster. `stop` leaves no process behind."""

    def __init__(
        self, workers: int, master: str | None = None, settings: Mapping[str, str] | None = None, name: str = "dirigo"
    ) -> None:
        """`workers` tasks that never end are to run in it; `settings` of Spark come on top of ours."""
        # As many slots beside the workers as there are cores: a slot that nobody uses costs nothing.
        self._master = master or f"local[{workers + max(2, os.cpu_count() or 1)},{TASK_FAILURES_MOST}]"
        self._settings = dict(settings or {})
        self._name = name
        self._spark: Any = None
        self._java: subprocess.Popen[bytes] | None = None
        self._folder: OwnFolder | None = None

    def start(self) -> Any:
        """Start Spark; the session."""
        pyspark = _pyspark()
        if pyspark.SparkContext._active_spark_context is not None:
            raise SessionError("A Spark session is already running in this process: use that one, or stop it first.")
        if "SPARK_REMOTE" in os.environ or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
            raise SessionError(
                "This process uses Spark Connect, so no Spark starts in it: pass your session, or unset SPARK_REMOTE."
            )
        java_was_running = pyspark.SparkContext._gateway is not None
        remove_abandoned(gone_for_s=SUCCEEDED_WITHIN_S)
        self._folder = OwnFolder("spark")
        started: list[subprocess.Popen[bytes]] = []
        try:
            with (
                _python_of_workers(self._master),
                _temporary_files_in(self._folder.path),
                _handler_of_ctrl_c_kept(),
                _java_noted(started),
            ):
                self._spark = self._build(pyspark, self._folder.path)
            gateway = pyspark.SparkContext._gateway
            self._java = None if java_was_running else gateway.proc
        except BaseException as error:
            for java in started:
                _kill_java(java)  # before the folder is removed, to which it writes
            self.stop()
            if isinstance(error, pyspark.errors.PySparkRuntimeError):
                raise SessionError(
                    "Spark could not be started: install Java 17 or later and let JAVA_HOME name its folder."
                ) from error
            raise
        return self._spark

    def stop(self) -> None:
        """Stop the session and end Java, if we started it. Stopping twice does nothing more."""
        spark, self._spark = self._spark, None
        java, self._java = self._java, None
        folder, self._folder = self._folder, None
        try:
            if spark is not None:
                _stop(spark, java)
        finally:
            if java is not None:
                _end_java(java)
            if folder is not None:
                folder.remove()

    def __enter__(self) -> Any:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _build(self, pyspark: Any, folder: Path) -> Any:
        log_settings = folder / "log4j2.properties"
        log_settings.write_text(_LOG_SETTINGS, encoding="utf-8")
        passing = folder / "passing"
        passing.mkdir()
        settings = {
            # Not the extra options, which are left for the ones who start the session.
            _DEFAULT_JAVA_OPTIONS: " ".join(
                (
                    f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
                    f"-Dderby.system.home={folder}",
                    f"-Djava.io.tmpdir={passing}",
                )
            ),
            "spark.local.dir": str(folder / "scratch"),
            "spark.speculation": "false",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        if not is_local(self._master):
            settings["spark.task.maxFailures"] = str(TASK_FAILURES_MOST)
        if is_local(self._master) or _is_loopback(_host_in(self._master)):
            settings |= {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
        more = dict(self._settings)
        if theirs := more.pop(_DEFAULT_JAVA_OPTIONS, ""):
            settings[_DEFAULT_JAVA_OPTIONS] += f" {theirs}"
        settings |= more
        builder = pyspark.sql.SparkSession.builder.master(self._master).appName(self._name)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


# --- sessions that need not be ours -------------------------------------------------------------------------------------


def is_connect(spark: Any) -> bool:
    """Whether a session is one of Spark Connect, behind a server, and not a classic one, with Java beside this process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(master: str) -> bool:
    """Whether a Spark master stands for this machine alone."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def is_loopback_master(master: str) -> bool:
    """Whether a Spark master listens to processes of this machine alone."""
    return _is_loopback(_host_in(master))


def slots_of(spark: Any) -> int | None:
    """How many tasks the session can run at the same time now; None if it does not tell, or if it grows with the demand."""
    if is_connect(spark) or _is_set(spark, "spark.dynamicAllocation.enabled"):
        return None
    context = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def workers_most(spark: Any) -> int | None:
    """How many workers a session will ever have room for, with a query beside them; None if executors may yet come."""
    if is_connect(spark) or not is_local(spark.sparkContext.master):
        return None
    slots = slots_of(spark)
    return None if slots is None else slots - _LEFT_FOR_QUERIES


def check_session(spark: Any, workers: int, *, wait_s: float = _SECONDS_FOR_EXECUTORS_TO_COME) -> None:
    """Refuse a session on which this many workers could not live; executors of a cluster may still be on their way."""
    if _is_set(spark, "spark.speculation"):
        raise SessionError("Spark must not run workers twice: start the session with spark.speculation=false.")
    needed = workers + _LEFT_FOR_QUERIES
    until = time.monotonic() + (0 if is_connect(spark) or is_local(spark.sparkContext.master) else wait_s)
    while (slots := slots_of(spark)) is not None and slots < needed:
        if time.monotonic() >= until:
            raise SessionError(
                f"The Spark session runs {slots} tasks at a time, but {workers} workers, which never end, and a query beside"
                f" them need {needed}: give it more cores, or ask for fewer workers."
            )
        time.sleep(_LOOK_S)


def use_this_python(spark: Any) -> None:
    """On this machine, have tasks run in the Python that runs this; a session takes whatever `python3` is otherwise."""
    if not is_connect(spark) and is_local(spark.sparkContext.master) and "PYSPARK_PYTHON" not in os.environ:
        spark.sparkContext.pythonExec = sys.executable


def driver_host(spark: Any) -> str:
    """The address by which tasks of the session reach this process.

    On a classic session it is the one by which Spark's own executors reach it; over Connect, the address from which this
    machine talks to the server, which need not be right if the executors are in another network.
    """
    if is_connect(spark):
        host = str(spark.client.host).strip("[]")
        return LOOPBACK if _is_loopback(host) else _address_towards(host)
    if is_local(spark.sparkContext.master):
        return LOOPBACK
    return str(spark.conf.get("spark.driver.host"))


def _is_set(spark: Any, setting: str) -> bool:
    return str(spark.conf.get(setting, "false")).lower() == "true"


def _host_in(master: str) -> str:
    """The first host in a master like spark://one:7077,two:7077; empty if there is none."""
    return master.partition("://")[2].partition(",")[0].rpartition(":")[0].strip("[]")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _address_towards(host: str) -> str:
    """The address of this machine on its way to `host`. No packet is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise SessionError(
            f"No way leads to the Spark server at {host!r}: give the address by which executors reach this process."
        ) from error


# --- starting and ending ----------------------------------------------------------------------------------------------


@contextmanager
def _python_of_workers(master: str) -> Iterator[None]:
    """On this machine, tasks run in the Python that runs this; Spark asks the environment for it, both here and in Java."""
    before = os.environ.get("PYSPARK_PYTHON")
    if is_local(master) or (before is None and _is_loopback(_host_in(master))):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYSPARK_PYTHON", None)
        else:
            os.environ["PYSPARK_PYTHON"] = before


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """What PySpark lays down while it starts Java, and cannot remove when it is killed then."""
    before = tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def _handler_of_ctrl_c_kept() -> Iterator[None]:
    """PySpark makes Ctrl-C cancel all jobs, hence kill all workers; who presses it wants an orderly end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _java_noted(started: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Notes the process that PySpark starts. PySpark tells of it only at the end, and an interrupt may come before."""
    from pyspark import java_gateway

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            started.append(self)
            super().__init__(*arguments, **named)

    before = java_gateway.Popen
    java_gateway.Popen = Noted
    try:
        yield
    finally:
        java_gateway.Popen = before


def _kill_java(java: subprocess.Popen[bytes]) -> None:
    """Ends a Java process whose Spark did not come up, and lets another one be started in this process."""
    if getattr(java, "pid", None) is None:
        return  # it was not even forked
    java.kill()
    java.wait()
    _forget_session()
    _forget_gateway(java)
    if java.stdin is not None:
        java.stdin.close()


def _end_java(java: subprocess.Popen[bytes]) -> None:
    """Ends the Java process behind Spark, which would otherwise stay until Python itself ends."""
    _forget_gateway(java)
    assert java.stdin is not None
    java.stdin.close()  # the Java side ends when this pipe does
    try:
        java.wait(_SECONDS_TO_LET_JAVA_EXIT)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def _stop(spark: Any, java: subprocess.Popen[bytes] | None) -> None:
    """Stop a session. Its Java process may be dead, or die meanwhile: a signal to a command may go to Java as well."""
    if java is None or java.poll() is None:
        try:
            spark.stop()
        except Exception:
            if java is None or not _dies(java):
                raise
        else:
            return
    _forget_session()


def _dies(java: subprocess.Popen[bytes]) -> bool:
    with suppress(subprocess.TimeoutExpired):
        java.wait(_DIED_WITHIN_S)
    return java.returncode is not None


def _forget_gateway(java: subprocess.Popen[bytes]) -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None and gateway.proc is java:
        gateway.shutdown()
        SparkContext._gateway = None
        SparkContext._jvm = None


def _forget_session() -> None:
    """Have PySpark forget a session whose Java process is dead, or no other could be started in this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    if (context := SparkContext._active_spark_context) is not None:
        context._jsc = None  # there is nobody to tell
        context.stop()
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SQLContext._instantiatedContext = None


def _pyspark() -> Any:
    try:
        import pyspark
        import pyspark.errors
        import pyspark.sql
    except ImportError as error:
        raise SessionError("This needs PySpark, which is not installed: run `pip install pyspark`.") from error
    return pyspark
