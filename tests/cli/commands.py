"""Helpers of the tests of commands that need a cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dirigo.cli import app
from dirigo.spark.service import file as service_file
from dirigo.spark.service import service

PATIENCE_S = 90.0  # a test that waits longer has found a hang
PYTHON_PATH = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
OF_PROCESSES = {"DIRIGO_CLUSTER_CLASS": "cli.process_cluster:ProcessCluster", "PYTHONPATH": PYTHON_PATH}

ENDLESS = """
import time
import dirigo as dg

def ticks(first, count):
    time.sleep(0.002)
    return [{"n": n, "ts": int(time.time() * 1000)} for n in range(first, first + count)]

flow = dg.Dataflow("ticks")
rows = flow.source(dg.from_generator(ticks, {"n": int, "ts": int}, block=20, time="ts"))
rows.key_by("n").window(dg.Tumbling("1h")).aggregate(count=dg.count()).sink(dg.to_json_lines("OUT", mode="overwrite"))
"""
SHOWN = """
import dirigo as dg

flow = dg.Dataflow("shown")
flow.source(dg.from_iterable([{"a": n} for n in range(5)])).filter(dg.col("a") > 2).sink(dg.to_console())
"""
FAILING = """
import dirigo as dg

def inverse(row):
    return {"a": 6 // (row["a"] - 3)}

flow = dg.Dataflow("failing")
flow.source(dg.from_iterable([{"a": n} for n in range(5)])).map(inverse, schema={"a": int}).sink(dg.to_memory())
"""


def run(*arguments: object, code: int = 0) -> tuple[str, str]:
    """What a command says on both outputs."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout, result.stderr


def refused(*arguments: object) -> str:
    """The one line with which a command refuses."""
    out, errors = run(*arguments, code=2)
    assert out == ""
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    return line


# Whatever runs in the background of a shell ignores Ctrl-C, and so would all that it starts.
_INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from dirigo.cli import main; main()"
)


def begun(*arguments: object) -> subprocess.Popen[str]:
    """A command in a process and a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTIBLE, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    """All that it said; nothing that it started is there any more."""
    try:
        out, _ = process.communicate(timeout=PATIENCE_S)
        until(lambda: not service_file.members_of(process.pid), "all processes of the command have ended")
    finally:
        for pid in service_file.members_of(process.pid):
            os.kill(pid, signal.SIGKILL)
    return out


def until(holds: Callable[[], object], what: str) -> None:
    patience = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < patience, what
        time.sleep(0.05)


def renamed(text: str, name: str, *, variable: str = "other") -> str:
    """A second dataflow for the same file."""
    return re.sub(r"\bflow\b", variable, re.sub(r'Dataflow\("\w+"\)', f'Dataflow("{name}")', text))


def written(folder: Path, text: str, name: str = "flows.py") -> Path:
    """A file of dataflows, whose results go to a folder beside it."""
    file = folder / name
    file.write_text(text.replace("OUT", str(folder / "out")))
    return file


@contextmanager
def home_of_clusters(place: Path) -> Iterator[Path]:
    """Clusters of plain processes, in a place of their own; none of them stays behind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIRIGO_HOME", str(place))
        for name, value in OF_PROCESSES.items():
            patch.setenv(name, value)
        try:
            yield place
        finally:
            for name in service_file.living():
                found = service_file.read(name)
                if found is not None and found.is_here:
                    service.stop(found)
