"""``dirigo cluster start`` and ``stop``, as a user meets them: what fails, what is left, and all commands once on Spark."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import ENDLESS, SHOWN, begun, ended, home_of_clusters, refused, run, until, written
from dirigo.spark.service import file as service_file
from dirigo.spark.service import service
from dirigo.spark.service.file import RunningService


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with home_of_clusters(tmp_path / "home") as place:
        yield place


# --- no cluster ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [("jobs",), ("cancel", "a"), ("drain", "a"), ("top", "--once"), ("cluster", "status"), ("cluster", "stop")],
)
def test_without_a_cluster_one_line_says_how_to_start_one(arguments: tuple[str, ...]) -> None:
    assert refused(*arguments) == "error: no cluster 'dirigo' runs; start one with 'dirigo cluster start'."


def test_a_job_cannot_be_submitted_to_nobody(tmp_path: Path) -> None:
    line = refused("submit", written(tmp_path, ENDLESS), "--cluster", "big")
    assert line == "error: no cluster 'big' runs; start one with 'dirigo cluster start --name big'."


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--workers", "0"), "a cluster of 0 workers does nothing; ask for 1 or more"),
        (("--name", "../up"), "'../up' is no name for a cluster"),
        (("--master", "spark://far:7077"), "workers at spark://far:7077 must reach this machine; say with --host"),
    ],
)
def test_what_cannot_be_started_gives_one_line(arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused("cluster", "start", *arguments)
    assert service_file.living() == []


@pytest.mark.parametrize(
    ("master", "sentence"),
    [
        ("local[nowhere]", "the cluster did not start: there is no Spark at '[red]nowhere[/]'; see its address. (log: "),
        ("local[broken]", "the cluster did not start: ValueError: a sentence and a [red]second[/] line (log: "),
        ("local[sudden]", "the cluster did not start: its process ended with exit code 7; see "),
    ],
)
def test_a_start_that_fails_says_why_and_where_the_log_is(home: Path, master: str, sentence: str) -> None:
    line = refused("cluster", "start", "--master", master)
    assert sentence in line
    assert str(home / "clusters" / "dirigo" / "cluster.log") in line
    assert (home / "clusters" / "dirigo" / "cluster.log").exists()
    assert "no cluster 'dirigo' runs" in refused("jobs")


def test_a_start_that_is_interrupted_leaves_nothing(home: Path) -> None:
    process = begun("cluster", "start", "--master", "local[slow]")
    until(lambda: service_file.read("dirigo"), "the process has begun")
    started = service_file.read("dirigo")
    assert started is not None
    process.send_signal(signal.SIGINT)
    assert "not started" in ended(process)
    assert process.returncode == 130
    assert service_file.members_of(started.pid) == []
    assert service_file.living() == []


# --- files that tell of no cluster ----------------------------------------------------------------------------------------


def test_a_file_of_a_dead_process_is_replaced(home: Path) -> None:
    service_file.make_folder("dirigo")
    # Our own number, but of a process that began at another time: it must be neither believed nor signalled.
    service_file.write(RunningService("dirigo", os.uname().nodename, os.getpid(), "1", 0.0, "ready"))
    line = refused("cluster", "stop")
    assert "no cluster 'dirigo' runs" in line
    assert f"(process {os.getpid()} of the last one is gone: see {home}" in line
    assert "runs: 1 workers" in run("cluster", "start", "--workers", "1")[0]
    found = service_file.read("dirigo")
    assert found is not None
    assert found.pid != os.getpid()
    assert "cluster 'dirigo' is stopped" in run("cluster", "stop")[0]


def test_a_damaged_file_gives_one_line(home: Path) -> None:
    service_file.make_folder("dirigo")
    service_file.file_of("dirigo").write_text("{")
    assert "access.json is damaged; delete it" in refused("jobs")


def test_a_process_that_does_not_want_to_end_is_killed_with_all_it_started(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_TOLD_S", 0.3)
    monkeypatch.setattr(service, "_LEFT_S", 0.3)
    stubborn = "trap '' TERM; sleep 600 & echo ready; wait; sleep 600"
    with subprocess.Popen(["sh", "-c", stubborn], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        started = service_file.started_of(process.pid)
        assert started is not None
        service_file.make_folder("dirigo")
        service_file.write(RunningService("dirigo", os.uname().nodename, process.pid, started, 0.0, "ready"))
        assert len(service_file.members_of(process.pid)) == 2
        assert "cluster 'dirigo' is killed" in run("cluster", "stop")[0]
        assert service_file.members_of(process.pid) == []
    assert service_file.read("dirigo") is None


# --- Spark -----------------------------------------------------------------------------------------------------------------


def test_all_of_it_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIRIGO_CLUSTER_CLASS")
    out, _ = run("cluster", "start", "--name", "spark", "--workers", "2", "--logs", tmp_path / "logs")
    assert "cluster 'spark' runs: 2 workers" in out
    assert "dirigo submit FILE.py --cluster spark" in out
    found = service_file.read("spark")
    assert found is not None
    at = ("--cluster", "spark")
    run("submit", written(tmp_path, ENDLESS), *at)
    until(lambda: "running" in run("jobs", *at)[0], "the job runs")
    assert "ticks~1" in run("top", "--once", *at)[0]
    run("cancel", "ticks", *at)
    run("submit", tmp_path / "flows.py", "--name", "second", *at)
    until(lambda: "running" in run("jobs", *at)[0], "the second job runs")
    run("drain", "second~2", *at)
    until(lambda: "finished" in run("jobs", *at)[0], "the second job has finished")
    assert run("submit", written(tmp_path, SHOWN, "shown.py"), "--wait", *at)[0].startswith("a=3\na=4\n")
    assert len(service_file.members_of(found.pid)) > 2  # Java, and Python below it
    assert "cluster 'spark' is stopped" in run("cluster", "stop", "--name", "spark")[0]
    assert service_file.members_of(found.pid) == []
    assert service_file.living() == []
