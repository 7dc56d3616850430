"""Flink as a peer: a job manager and two task managers, each a process, of which one that has the job is killed.

Flink is no dependency of ours: it comes with Python's `apache-flink`, in an environment of its own, with all its jars. The
job is SQL, so nothing of it runs in Python: a count and the last bytes of each key, over all rows of the key so far. A
checkpoint is taken every second, and shows the results up to it, as a snapshot of ours does. Small states are on the heap,
larger ones in RocksDB with checkpoints of what has changed. Flink is told to look often whether a task manager is there, and
to begin again at once; each task manager has room for the whole job, so nothing waits for the new one.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dirigo_lab.bench.recovery.keyed_rows import StateShape
from dirigo_lab.bench.recovery.peers.row_files import NUMBER_DIGITS
from dirigo_lab.bench.recovery.peers.started import StartedGroup

HOW_TO_GET_IT = (
    "Flink is left out: `python3.11 -m venv FOLDER && FOLDER/bin/pip install apache-flink`, then `--flink FOLDER`"
)
TASK_MANAGERS = 2
_SLOTS = 2  # of each; the job needs as many
_INCREMENTAL_FROM_BYTES = 50_000_000  # above, a checkpoint of the heap takes longer than one of what has changed
_SUBMITTED_IN_S = 180.0
_ASKED_IN_S = 20.0
_OPENED = ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util", "util.concurrent", "util.concurrent.atomic")
_SUBMIT = """
import json, sys
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment
settings, statements = json.loads(sys.argv[1])
configuration = Configuration()
for name, value in settings.items():
    configuration.set_string(name, value)
chosen = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
environment = TableEnvironment.create(chosen)
for statement in statements:
    environment.execute_sql(statement)
"""


class FlinkPeer:
    """A standalone cluster on this machine, of which a task manager that was killed is started anew."""

    name = "Flink"
    killed = "a task manager"
    newest_only = False

    def __init__(self, environment: Path) -> None:
        self._python = environment / "bin" / "python"
        self._flink = find_flink(environment)
        self._folder = Path()
        self._address = ""
        self._manager: StartedGroup | None = None
        self._workers: dict[str, StartedGroup] = {}
        self._heap_mb = 0
        self._begun = 0

    def start(self, folder: Path, rows: Path, told: Path, shape: StateShape) -> None:
        self._folder = folder
        rpc_port, rest_port = _free_ports()
        self._address = f"http://127.0.0.1:{rest_port}"
        is_large = shape.total_bytes > _INCREMENTAL_FROM_BYTES
        self._heap_mb = 512 if is_large else 512 + 4 * shape.total_bytes // 1_000_000
        settings = _settings(folder, rpc_port, rest_port, self._heap_mb, is_large=is_large)
        (folder / "conf").mkdir()
        (folder / "conf" / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
        self._manager = self._java("runtime.entrypoint.StandaloneSessionClusterEntrypoint", 600)
        for _ in range(TASK_MANAGERS):
            self._begin_worker()
        end = time.monotonic() + _SUBMITTED_IN_S
        while not self.is_whole():
            if time.monotonic() > end:
                raise TimeoutError(f"Flink's task managers are not there after {_SUBMITTED_IN_S:g} s")
            time.sleep(0.2)
        self._submit(settings, _statements(rows, told, shape))

    def _submit(self, settings: dict[str, str], statements: list[str]) -> None:
        command = [str(self._python), "-c", _SUBMIT, json.dumps([settings, statements])]
        submitted = StartedGroup(command, self._folder / "submitted.log", {"FLINK_CONF_DIR": str(self._folder / "conf")})
        try:
            code = submitted.wait(_SUBMITTED_IN_S)
            if code:
                raise RuntimeError(f"Flink does not take the job: {submitted.last_words()}")
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"Flink has not taken the job after {_SUBMITTED_IN_S:g} s") from None
        finally:
            submitted.kill()

    def _begin_worker(self) -> None:
        name = f"worker-{self._begun}"
        self._begun += 1
        identity = f"taskmanager.resource-id={name}"
        self._workers[name] = self._java("runtime.taskexecutor.TaskManagerRunner", self._heap_mb + 128, identity)

    def _java(self, entry: str, heap_mb: int, *settings: str) -> StartedGroup:
        java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in os.environ else "java"
        opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
        command = [java, *opened, f"-Xmx{heap_mb}m", f"-Djava.io.tmpdir={self._folder}", "-cp", f"{self._flink}/lib/*"]
        command += [f"org.apache.flink.{entry}", "--configDir", str(self._folder / "conf")]
        command += [part for setting in settings for part in ("-D", setting)]
        return StartedGroup(command, self._folder / "flink.log", {"FLINK_CONF_DIR": str(self._folder / "conf")})

    def kill(self, number: int) -> float:  # noqa: ARG002 - it has to be one that has the job
        busy = [each["id"] for each in self._registered() if each["freeSlots"] < each["slotsNumber"]]
        if not busy:
            raise RuntimeError("no task manager of Flink has the job")
        killed_ms = self._workers.pop(busy[0]).kill()
        self._begin_worker()
        return killed_ms

    def is_whole(self) -> bool:
        assert self._manager is not None
        self._manager.check("Flink's job manager")
        for worker in self._workers.values():
            worker.check("a task manager of Flink")
        return len(self._registered()) == TASK_MANAGERS

    def _registered(self) -> list[dict[str, Any]]:
        """The task managers that live and that the job manager knows."""
        try:
            with urllib.request.urlopen(f"{self._address}/taskmanagers", timeout=_ASKED_IN_S) as answer:
                known = json.load(answer)["taskmanagers"]
        except (OSError, ValueError, KeyError):  # it does not listen yet
            return []
        return [each for each in known if each["id"] in self._workers]

    def close(self) -> None:
        with ExitStack() as all_of_them:
            for process in (self._manager, *self._workers.values()):
                if process is not None:
                    all_of_them.callback(process.kill)


def find_flink(environment: Path) -> Path:
    """Where its jars are. Raises ValueError with a sentence if they are not there."""
    found = sorted(environment.glob("lib/python*/site-packages/pyflink/lib/flink-dist*.jar"))
    if not found or not (environment / "bin" / "python").exists():
        raise ValueError(f"there is no Flink in {environment}: `pip install apache-flink` into an environment there")
    return found[0].parent.parent


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _settings(folder: Path, rpc_port: int, rest_port: int, heap_mb: int, *, is_large: bool) -> dict[str, str]:
    for name in ("scratch", "checkpoints"):
        (folder / name).mkdir()
    here = "127.0.0.1"
    return {
        "jobmanager.rpc.address": here,
        "jobmanager.rpc.port": str(rpc_port),
        "jobmanager.bind-host": here,
        "jobmanager.memory.process.size": "1g",
        "rest.address": here,
        "rest.bind-address": here,
        "rest.port": str(rest_port),
        "taskmanager.host": here,
        "taskmanager.bind-host": here,
        "taskmanager.numberOfTaskSlots": str(_SLOTS),
        "taskmanager.cpu.cores": "2.0",
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.task.heap.size": f"{heap_mb}m",
        "taskmanager.memory.framework.off-heap.size": "128m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.network.min": "64m",
        "taskmanager.memory.network.max": "64m",
        "taskmanager.memory.managed.size": "1024m" if is_large else "64m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
        "io.tmp.dirs": str(folder / "scratch"),
        "heartbeat.interval": "250",
        "heartbeat.timeout": "10000",  # of one whose connection still stands; a process that is gone is noticed by that
        "heartbeat.rpc-failure-threshold": "2",
        "cluster.evenly-spread-out-slots": "true",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": "50 ms",
        "execution.target": "remote",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{folder / 'checkpoints'}",
        "execution.checkpointing.incremental": "true" if is_large else "false",
        "state.backend.type": "rocksdb" if is_large else "hashmap",
        "parallelism.default": str(_SLOTS),
    }


def _statements(rows: Path, told: Path, shape: StateShape) -> list[str]:
    filler = f"REPEAT('Z', {shape.bytes_per_key - NUMBER_DIGITS})"
    return [
        f"""
        CREATE TABLE arriving (number BIGINT, key_of_row BIGINT, due_ms BIGINT)
        WITH ('connector' = 'filesystem', 'path' = 'file://{rows}', 'format' = 'csv', 'source.monitor-interval' = '100 ms')
        """,
        # A file is closed soon, and has its name with the next checkpoint.
        f"""
        CREATE TABLE told (number BIGINT, due_ms BIGINT, times BIGINT, kept_number BIGINT, kept_bytes INT)
        WITH ('connector' = 'filesystem', 'path' = 'file://{told}', 'format' = 'csv',
              'sink.rolling-policy.rollover-interval' = '50 ms', 'sink.rolling-policy.check-interval' = '50 ms')
        """,
        f"""
        INSERT INTO told
        SELECT number, due_ms, times, CAST(SUBSTRING(kept FROM 1 FOR {NUMBER_DIGITS}) AS BIGINT), CHAR_LENGTH(kept)
        FROM (
            SELECT number, due_ms, COUNT(*) OVER each_key AS times, LAST_VALUE(content) OVER each_key AS kept
            FROM (
                SELECT *, LPAD(CAST(number AS STRING), {NUMBER_DIGITS}, '0') || {filler} AS content, PROCTIME() AS came
                FROM arriving
            )
            WINDOW each_key AS (PARTITION BY key_of_row ORDER BY came ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        )
        """,
    ]
