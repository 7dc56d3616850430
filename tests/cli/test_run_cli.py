"""``dirigo run``, as a user meets it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import ENDLESS, FAILING, SHOWN, begun, ended, home_of_clusters, refused, renamed, run, until, written


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with home_of_clusters(tmp_path / "home") as place:
        yield place


def test_all_flows_of_a_file_run_to_their_end(tmp_path: Path) -> None:
    second = renamed(SHOWN, "again")
    out, errors = run("run", written(tmp_path, SHOWN + second), "--workers", "1", "--json", tmp_path / "run.json")
    assert sorted(re.findall(r"^a=\d$", out, flags=re.MULTILINE)) == ["a=3", "a=3", "a=4", "a=4"]
    figures = json.loads((tmp_path / "run.json").read_text())["jobs"]
    assert [(job["name"], job["state"], job["metrics"]["rows_out"]) for job in figures] == [
        ("shown", "finished", 2),
        ("again", "finished", 2),
    ]
    assert errors == ""


def test_when_a_job_fails_the_others_are_cancelled(tmp_path: Path) -> None:
    endless = renamed(ENDLESS, "ticks")
    out, errors = run("run", written(tmp_path, endless + FAILING), "--workers", "1", code=1)
    assert re.search(r"ticks +cancelled ", out)
    assert re.search(r"failing +failed ", out)
    assert errors.startswith("error: job 'failing' failed: operator 'map' cannot handle the row")
    assert "in inverse" in errors


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_leaves_nothing(tmp_path: Path, sign: signal.Signals) -> None:
    process = begun("run", written(tmp_path, ENDLESS), "--workers", "1")
    until(lambda: (tmp_path / "out").exists(), "the job was submitted")
    process.send_signal(sign)
    assert "cancelled" in ended(process)
    assert process.returncode == 128 + sign


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (SHOWN + renamed(SHOWN, "shown"), "2 dataflows have the name 'shown'"),
        ("import dirigo as dg\nflow = dg.Dataflow('open')\n", "dataflow 'open' has no sink"),
        ("a = 1\n", "there is no dataflow in"),
    ],
)
def test_what_cannot_run_gives_one_line_before_anything_starts(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in refused("run", written(tmp_path, text))
