"""Ctrl-C and SIGTERM at any moment: the command says one line and is gone, and so is all that it has started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.commands import OF_PROCESSES, PYTHON_PATH, home_of_clusters, run
from dirigo.spark.service import file as service_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes as Linux tells them")

GONE_S = 30.0  # much more than it takes: how long it takes is for the matrix to tell
BEGUN_S = 120.0
MARK = "DIRIGO_TEST_MARK"
QUERY = ("nexmark", "q7", "--paced", "--events", "10000000", "--workers", "2")
# What runs in the background of a shell ignores Ctrl-C, and so would all that it starts.
COMMAND = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from dirigo.cli import main; main()"
KINDS = ("Ctrl-C", "SIGINT", "SIGTERM")
_NOISE = re.compile(r"WARNING: Using incubator modules.*|^\s*$")


@dataclass
class Command:
    """A command that runs, with a mark by which all that it starts is found, and a temporary directory of its own."""

    process: subprocess.Popen[str]
    mark: str
    folder: Path
    was_listening: bool = False  # when the signal was sent

    def marked(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
                    if state not in ("Z", "X") and self.mark.encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def is_running(self, program: str) -> bool:
        """Whether it has started a program whose command line has this in it."""
        for pid in self.marked():
            with suppress(OSError):
                if program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and pid != self.process.pid:
                    return True
        return False

    def send(self, kind: str) -> float:
        """Send a signal; returns when."""
        caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{self.process.pid}/status").read_text(), re.MULTILINE)
        assert caught is not None
        self.was_listening = bool(int(caught[1], 16) & 1 << signal.SIGTERM - 1)
        if kind == "Ctrl-C":
            os.killpg(self.process.pid, signal.SIGINT)  # as a terminal does it: to all processes in the foreground
        else:
            self.process.send_signal(signal.Signals[kind])
        return time.monotonic()

    def check_end(self, kind: str, sent_s: float) -> float:
        """It ends as it should, and leaves nothing; returns how many seconds that took."""
        out, errors = self.process.communicate(timeout=GONE_S)
        until(lambda: not self.marked(), "all processes are gone", GONE_S)
        took_s = time.monotonic() - sent_s
        sign = signal.SIGTERM if kind == "SIGTERM" else signal.SIGINT
        said = [line for line in errors.splitlines() if not _NOISE.match(line)]
        if self.process.returncode == -sign and not self.was_listening:  # Python itself had only begun
            assert out == ""
            assert "run_main" not in errors
        else:
            assert self.process.returncode == 128 + sign, (out, errors)
            assert out.split() == ["cancelled"], (out, errors)
            assert said == []
        assert sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*")) == []
        return took_s


def until(holds: Callable[[], object], what: str, patience_s: float) -> None:
    patience = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < patience, what
        time.sleep(0.05)


@contextmanager
def begun(folder: Path, *arguments: str, on_spark: bool = False) -> Iterator[Command]:
    mark = uuid.uuid4().hex
    temporary = folder / mark
    temporary.mkdir()
    home = folder / f"home-{mark}"
    environment = {**os.environ, MARK: mark, "TMPDIR": str(temporary), "DIRIGO_HOME": str(home)}
    environment |= {"PYTHONPATH": PYTHON_PATH} if on_spark else OF_PROCESSES
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )
    command = Command(process, mark, temporary)
    try:
        yield command
    finally:
        for pid in command.marked():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


# --- on plain processes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("moment_s", "kind"), [(0.1, "SIGTERM"), (0.5, "Ctrl-C"), (1.5, "SIGINT"), (3.0, "SIGTERM")])
def test_a_command_is_gone_at_any_moment(tmp_path: Path, moment_s: float, kind: str) -> None:
    with begun(tmp_path, *QUERY) as command:
        time.sleep(moment_s)
        command.check_end(kind, command.send(kind))


def test_a_start_of_a_cluster_is_given_up(tmp_path: Path) -> None:
    with begun(tmp_path, "cluster", "start", "--master", "local[slow]") as command:
        until(lambda: command.is_running("dirigo.spark.service.service"), "the process of the cluster has begun", BEGUN_S)
        command.send("SIGTERM")
        out, errors = command.process.communicate(timeout=GONE_S)
        assert command.process.returncode == 143, (out, errors)
        assert out.splitlines() == ["not started"]
        until(lambda: not command.marked(), "all processes are gone", GONE_S)


BLOCKED = """
import os, time
import dirigo as dg

def block(row):
    with open("MARK.new", "w") as mark:
        mark.write(str(os.getpid()))
    os.rename("MARK.new", "MARK")
    time.sleep(1000)

flow = dg.Dataflow("blocked")
flow.source(dg.from_iterable([{"a": 1}])).map(block, schema={"a": int}).sink(dg.to_nothing())
"""


def test_the_log_of_a_service_tells_of_a_signal_before_it_waits_for_anybody(tmp_path: Path) -> None:
    mark, file = tmp_path / "mark", tmp_path / "blocked.py"
    file.write_text(BLOCKED.replace("MARK", str(mark)))
    with home_of_clusters(tmp_path / "home"):
        run("cluster", "start", "--workers", "1")
        run("submit", file)
        until(mark.exists, "the function runs", BEGUN_S)
        service = service_file.read("dirigo")
        assert service is not None
        os.kill(service.pid, signal.SIGTERM)
        log = service_file.log_file_of("dirigo")
        until(lambda: "told to end by a signal" in log.read_text(), "the log tells", BEGUN_S)
        os.kill(int(mark.read_text()), signal.SIGKILL)  # its worker is still there, as the function keeps it
        until(lambda: not service.lives(), "it has ended", GONE_S)


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, lambda *_: None)  # as a library may do
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open(sys.argv[-1] + ".begun", "w").close()
while True:
    time.sleep(1)
"""


def test_not_even_code_that_handles_the_signal_itself_keeps_a_command(tmp_path: Path) -> None:
    file = tmp_path / "stubborn.py"
    file.write_text(STUBBORN)
    with begun(tmp_path, "run", str(file)) as command:
        until((tmp_path / "stubborn.py.begun").exists, "it runs", BEGUN_S)
        command.check_end("Ctrl-C", command.send("Ctrl-C"))


FAILING_END = """
import time, warnings
from dirigo.cli.signals import run_main

def command():
    try:
        print("begun", flush=True)
        time.sleep(600)
    finally:
        warnings.warn("Unable to cleanly shutdown Spark JVM process.", RuntimeWarning)  # as PySpark does
        raise ConnectionError("the other one has heard the signal too, and is gone")

run_main(command)
"""


def ended_by_sigterm(program: str) -> tuple[int, str, str]:
    """How a program ends that says when it has begun, and what else it says."""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            out, errors = process.communicate(timeout=GONE_S)
        finally:
            process.kill()
    return process.returncode, out, errors


def test_an_end_that_fails_is_told_in_one_line_too() -> None:
    assert ended_by_sigterm(FAILING_END) == (143, "cancelled\n", "")


IN_A_FORK = """
import logging, time
from dirigo.cli.signals import run_main

def command():
    logging._acquireLock()  # as its hooks around a fork do; an interrupt that comes in them is swallowed
    print("begun", flush=True)
    while True:
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            pass

run_main(command)
"""


def test_a_signal_that_comes_during_a_fork_ends_a_command_too() -> None:
    assert ended_by_sigterm(IN_A_FORK) == (143, "cancelled\n", "")


EARLY = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    def find_spec(name, path=None, target=None):
        if name == "dirigo.cli.signals":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting)
from dirigo.cli import main
main()
"""


def test_ctrl_c_tells_no_tale_while_not_even_the_handlers_of_signals_are_loaded() -> None:
    ended = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=False, timeout=GONE_S)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


FORKING = """
import os, signal, time
child = os.fork()
if child == 0:
    time.sleep(600)
time.sleep(0.5)
os.kill(child, signal.SIGTERM)
os.waitpid(child, 0)
time.sleep(4)
"""


def test_a_signal_to_a_process_that_user_code_forked_does_not_end_the_command(tmp_path: Path) -> None:
    file = tmp_path / "forking.py"
    file.write_text(FORKING)
    with begun(tmp_path, "run", str(file)) as command:
        _, errors = command.process.communicate(timeout=BEGUN_S)
        assert command.process.returncode == 2
        assert "there is no dataflow in" in errors


# --- on Spark --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("program", "kind"), [("java", "SIGTERM"), ("pyspark.daemon", "Ctrl-C")])
def test_a_command_is_gone_while_spark_or_its_workers_start(tmp_path: Path, program: str, kind: str) -> None:
    with begun(tmp_path, *QUERY, on_spark=True) as command:
        until(lambda: command.is_running(program), f"{program} runs", BEGUN_S)
        command.check_end(kind, command.send(kind))


@pytest.mark.acceptance
@pytest.mark.parametrize("from_s", range(0, 30, 5))
@pytest.mark.parametrize("kind", KINDS)
def test_a_command_is_gone_at_every_half_second_of_its_first_thirty(tmp_path: Path, kind: str, from_s: int) -> None:
    def took(half_seconds: int) -> float:
        with begun(tmp_path, *QUERY, on_spark=True) as command:
            time.sleep(half_seconds / 2)
            return command.check_end(kind, command.send(kind))

    with ThreadPoolExecutor(2) as pool:
        seconds = list(pool.map(took, range(2 * from_s + 1, 2 * from_s + 11)))
    told = f"{kind} at {from_s} to {from_s + 5} s: gone after {max(seconds):.1f} s at most"
    print(f"{told}, {sorted(seconds)[len(seconds) // 2]:.1f} s in the middle")  # noqa: T201
