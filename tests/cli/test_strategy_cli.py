"""``--strategy``, as a user meets it: names, classes of the user's own, and what is none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import ENDLESS, SHOWN, home_of_clusters, refused, run, until, written
from dirigo.spark.service import file as service_file

MINE = """
import dirigo as dg

class LastFirst(dg.Strategy):
    def __init__(self):
        self.kept = []

    def enqueue(self, context, message):
        self.kept.append(message)

    def get_next_message(self, context):
        return self.kept.pop() if self.kept else None

class Wrong(LastFirst):
    def get_next_message(self, context):
        return "nothing" if self.kept else None

def not_a_class():
    return LastFirst()
"""
TIMED = ENDLESS.replace('dg.Dataflow("ticks")', 'dg.Dataflow("ticks", slo=dg.SLO(latency="1ms"))').replace("1h", "100ms")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the user is, with a strategy beside the flows."""
    (tmp_path / "here").mkdir()
    written(tmp_path / "here", MINE, "own_strategies.py")
    written(tmp_path / "here", "1 / 0", "broken_strategies.py")
    written(tmp_path / "here", SHOWN)
    monkeypatch.chdir(tmp_path / "here")
    with home_of_clusters(tmp_path / "home"):
        yield tmp_path / "here"


@pytest.mark.parametrize(
    "command",
    [
        ("nexmark", "q1", "--host", "sim"),
        ("nexmark", "q1"),
        ("run", "flows.py"),
        ("submit", "flows.py", "--wait"),
        ("cluster", "start"),
        ("slo", "calibrate", "flows.py"),
    ],
)
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("best", "error: there is no strategy 'best'; choose fifo, edf, reject_send, "),
        ("broken_strategies:Mine", "error: the strategy 'broken_strategies:Mine' cannot be imported: ZeroDivisionError"),
        (
            "own_strategies:not_a_class",
            "error: own_strategies:not_a_class is not a strategy; derive a class from dg.Strategy.",
        ),
    ],
)
def test_what_is_no_strategy_gives_one_line(command: tuple[str, ...], name: str, sentence: str) -> None:
    assert refused(*command, "--strategy", name).startswith(sentence)
    assert service_file.living() == []


def test_a_class_in_this_folder_schedules_a_simulation(folder: Path) -> None:
    run("nexmark", "q8", "--host", "sim", "--workers", "2", "--events", "5000", "--json", "fifo.json")
    mine = ("--strategy", "own_strategies:LastFirst")
    out, _ = run("nexmark", "q8", "--host", "sim", "--workers", "2", "--events", "5000", "--json", "mine.json", *mine)
    assert "scheduled by own_strategies:LastFirst" in out
    (expected,), (found,) = (json.loads((folder / name).read_text())["queries"] for name in ("fifo.json", "mine.json"))
    assert found["rows"] == expected["rows"] > 0


def test_a_class_in_this_folder_schedules_a_run_at_workers_that_do_not_have_it(folder: Path) -> None:
    out, _ = run("run", "flows.py", "--workers", "1", "--strategy", "own_strategies:LastFirst", "--json", "run.json")
    assert "scheduled by own_strategies:LastFirst" in out
    (job,) = json.loads((folder / "run.json").read_text())["jobs"]
    assert (job["strategy"], job["state"]) == ("own_strategies:LastFirst", "finished")


def test_one_that_answers_nonsense_fails_the_run_by_its_name() -> None:
    _, errors = run("run", "flows.py", "--workers", "1", "--strategy", "own_strategies:Wrong", code=1)
    assert "Wrong.get_next_message returned 'nothing', which is no message that it keeps" in errors


def test_jobs_have_the_strategy_of_the_cluster_or_their_own_and_tell_why_they_are_late(folder: Path) -> None:
    run("cluster", "start", "--workers", "1", "--strategy", "own_strategies:LastFirst")
    written(folder, TIMED, "ticks.py")
    run("submit", "ticks.py", "--name", "plain")
    written(folder, TIMED.replace("OUT", "urgent"), "ticks.py")
    run("submit", "ticks.py", "--name", "urgent", "--strategy", "edf")
    until(lambda: "late results" in run("jobs", "urgent")[0], "results of the job are late")
    details, _ = run("jobs", "urgent", "--json", "urgent.json")
    assert re.search(r"^urgent~2  (running|paused) for .*, scheduled by edf$", details, flags=re.MULTILINE)
    assert re.search(r"objective +1ms for 99 % of the results: \d+\.\d % were in time", details)
    assert re.search(r"late results +[\d,]+: \d+ % [a-z]+", details)
    (job,) = json.loads((folder / "urgent.json").read_text())["jobs"]
    assert (job["strategy"], job["latency_objective_ms"], job["target"]) == ("edf", 1, 0.99)
    assert job["metrics"]["satisfaction"]["late_results"] > 0
    assert "latencies" not in job["metrics"]
    listed, _ = run("jobs")
    assert re.search(r"^urgent~2 .* edf +$", listed, flags=re.MULTILINE)
    assert re.search(r"^plain~1 .* own_strategies:La", listed, flags=re.MULTILINE)
    seen, _ = run("top", "--once")
    assert re.search(r"^scheduled by .*edf: urgent~2", seen, flags=re.MULTILINE)
    assert re.search(r"^urgent~2 late: \d+ % [a-z]+", seen, flags=re.MULTILINE)
    assert max(map(len, [*details.splitlines(), *listed.splitlines(), *seen.splitlines()])) <= 80
    assert "there is no job 'nobody'" in refused("jobs", "nobody")
