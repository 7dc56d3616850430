"""``dirigo experiment``, with experiments that pretend."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cli.commands import OF_PROCESSES, ended, refused, run, until
from dirigo.runtime.errors import ControlError
from dirigo.spark.service import file as service_file
from dirigo_lab.experiments.registry import EXPERIMENTS
from experiments import pretended

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(EXPERIMENTS):
        monkeypatch.delitem(EXPERIMENTS, name)
    for name, experiment in pretended.ALL.items():
        monkeypatch.setitem(EXPERIMENTS, name, experiment)


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_experiments_are_listed_with_their_scales() -> None:
    out, _ = run("experiment", "--list")
    lines = {words[0]: line for line in out.splitlines() if (words := line.split())}
    assert lines["pretended"].rstrip().endswith("paper, machine")
    assert lines["failing"].rstrip().endswith("paper")
    assert "Nothing <but> numbers" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "name an experiment, or 'all'; 'dirigo experiment --list' shows them"),
        (
            ("pretend",),
            "did you mean 'pretended'? All of them: pretended, failing, endless, vanishing, borrowing, on-spark.",
        ),
        (("all", "pretend"), "there is no experiment 'pretend'; did you mean 'pretended'?"),
        (("pretended", "--scale", "mars"), "there is no scale 'mars'; use paper or machine"),
        (("pretended", "--seeds", "0"), "0 seeds are no run; ask for 1 or more"),
        (("pretended", "--costs", "no/such.json"), "the costs in no/such.json cannot be read (No such file or directory)"),
        (("on-spark",), "on-spark runs on Spark only; use --scale machine"),
        (("failing", "--scale", "machine"), "failing runs in the simulator only; use --scale paper"),
    ],
)
def test_bad_input_gives_one_line(arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused("experiment", *arguments)


def test_an_experiment_is_run_kept_told_and_drawn_and_one_that_fails_is_named(tmp_path: Path) -> None:
    out, figures = tmp_path / "out", tmp_path / "figures.json"
    told, _ = run("experiment", "failing", "pretended", "--quick", "--seeds", 2, "--out", out, "--json", figures, code=1)
    text = squeezed(told)
    # Both seeds fail, at the same time: either may be the first to be heard of.
    named = r"failing \(strategy fifo, workers 2, load 0\.5; seed [01]\) failed: ZeroDivisionError: 1 by nothing"
    assert re.search(named, text)
    assert "pretended: Nothing <but> numbers (in the simulator, 2 seeds)" in text
    assert re.search(r"reject_send is faster .* holds", text)
    assert re.search(r"bulk is fast .* does not hold", text)
    assert "1 of 2 claims hold" in text
    page = (out / "pretended" / "index.html").read_text(encoding="utf-8")
    assert "does not hold" in page
    assert (out / "pretended" / "pretended.png").read_bytes().startswith(b"\x89PNG")
    assert "1 of 2 claims hold." in (out / "index.html").read_text(encoding="utf-8")
    assert "failing" not in page
    assert pq.read_metadata(out / "pretended" / "latencies.parquet").num_rows == 4 * 2 * 600
    report = json.loads(figures.read_text())
    assert list(report) == ["pretended"]
    assert (report["pretended"]["scale"], report["pretended"]["seeds"]) == ("paper", 2)
    assert [claim["holds"] for claim in report["pretended"]["claims"]] == [True, False]
    assert len(report["pretended"]["rows"]) == 4 * 3
    assert report["pretended"]["rows"][0]["values"]["satisfaction"]["median"] > 0.1


def test_on_the_machine_all_leaves_out_what_cannot_run_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_cluster(workers: int) -> None:
        raise ControlError(f"no {workers} workers here")

    monkeypatch.setattr("dirigo.cli.own_cluster.new_cluster", no_cluster)
    told, errors = run("experiment", "all", "--scale", "machine", "--out", tmp_path, code=2)
    assert told.splitlines()[0] == "failing is left out: it does not run on Spark"
    assert told.count("left out") == 1
    assert errors.splitlines() == ["error: no 3 workers here"]


# The registry of the command's process has the experiments that pretend.
_COMMAND = """
import signal
from dirigo.cli import main
from dirigo_lab.experiments.registry import EXPERIMENTS
from experiments.pretended import ALL

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    EXPERIMENTS.update(ALL)
    main()
"""
_WITHOUT_SPARK = "import dirigo_lab.commands.experiment as e, contextlib; e.session_for = contextlib.nullcontext\n"


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes as Linux tells them")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_when_it_is_ended(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "command.py"
    script.write_text(_WITHOUT_SPARK + _COMMAND)
    command: Any = subprocess.Popen(
        [sys.executable, str(script), "experiment", "endless", "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[1]), OF_PROCESSES["PYTHONPATH"]))},
    )
    # Itself, the tracker of multiprocessing, and one process or more that run.
    until(lambda: len(service_file.members_of(command.pid)) >= 3, "runs have begun")
    if how is signal.SIGINT:
        os.killpg(command.pid, how)  # as a terminal does it: to all of them
    else:
        command.send_signal(how)
    out = ended(command)
    if how is signal.SIGINT:
        assert command.returncode == 130
        assert "cancelled" in out
        assert "Traceback" not in out, out


def test_every_option_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    section = page.split("## `dirigo experiment`")[1].split("\n## ")[0]
    options = set(re.findall(r"--[a-z]+", run("experiment", "--help")[0])) - {"--help"}
    assert {"--scale", "--seeds", "--quick", "--costs", "--out", "--list", "--json"} <= options
    assert {option for option in options if f"`{option}" not in section} == set()
