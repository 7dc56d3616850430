"""Commands that speak with a cluster in the background, as a user meets them: jobs, what there is, and the live view."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cli.commands import ENDLESS, FAILING, SHOWN, begun, ended, home_of_clusters, refused, renamed, run, until, written
from dirigo.runtime.client.client import Client
from dirigo.spark.service import file as service_file
from dirigo.spark.service.file import RunningService

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A cluster that all tests here share."""
    with home_of_clusters(tmp_path_factory.mktemp("home")):
        out, _ = run("cluster", "start", "--workers", "2")
        assert "cluster 'dirigo' runs: 2 workers, process" in out
        found = service_file.read("dirigo")
        assert found is not None
        yield found


def state_of(job: str) -> str:
    found = service_file.read("dirigo")
    assert found is not None
    assert found.access is not None
    with Client(found.access) as client:
        return client.job_status(job).state


# --- a cluster -------------------------------------------------------------------------------------------------------------


def test_other_clusters_are_named(cluster: RunningService) -> None:
    assert "or name one that runs with --cluster: dirigo." in refused("jobs", "--cluster", "other")
    assert "or name one that runs with --name: dirigo." in refused("cluster", "stop", "--name", "other")


def test_only_its_owner_can_read_the_keys(cluster: RunningService) -> None:
    file = service_file.file_of("dirigo")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert cluster.access is not None
    assert cluster.access.controller.startswith("tcp://127.0.0.1:")
    assert cluster.access.keys.secret not in repr(cluster)
    log = (file.parent / "cluster.log").read_text()
    assert cluster.access.keys.secret not in log


def test_who_has_the_keys_of_a_reader_may_look_and_nothing_else(
    cluster: RunningService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the reader's file under a home of one's own is all that is needed."""
    run("submit", written(tmp_path, ENDLESS), "--name", "looked-at")
    file = service_file.readers_file_of("dirigo")
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert cluster.access is not None
    assert cluster.access.keys.secret not in text
    monkeypatch.setenv("DIRIGO_HOME", str(tmp_path / "another"))
    service_file.make_folder("dirigo")
    service_file.readers_file_of("dirigo").write_text(text)
    assert "cluster 'dirigo' is ready" in run("cluster", "status")[0]
    assert "looked-at" in run("jobs")[0]
    assert "looked-at" in run("top", "--once")[0]
    for what, command in {
        "cancel a job": ("cancel", "looked-at"),
        "end the sources of a job": ("drain", "looked-at"),
        "submit a job": ("submit", tmp_path / "flows.py", "--name", "another"),
        "stop the cluster": ("cluster", "stop"),
    }.items():
        assert f"a reader may not {what}; connect with the keys of a client." in refused(*command)
    monkeypatch.undo()
    assert state_of("looked-at") in ("starting", "running")
    run("cancel", "looked-at")


def test_a_second_cluster_of_the_name_is_refused(cluster: RunningService) -> None:
    assert f"a cluster 'dirigo' runs already, as process {cluster.pid}" in refused("cluster", "start")


def test_the_status_of_a_cluster(cluster: RunningService, tmp_path: Path) -> None:
    out, _ = run("cluster", "status", "--json", tmp_path / "status.json")
    assert f"cluster 'dirigo' is ready: process {cluster.pid}" in out
    figures = json.loads((tmp_path / "status.json").read_text())
    assert figures["pid"] == cluster.pid
    assert [worker["state"] for worker in figures["workers"]] == ["ready", "ready"]
    assert all(str(worker["pid"]) in out for worker in figures["workers"])
    assert "secret" not in (tmp_path / "status.json").read_text()


def test_a_cluster_of_another_machine_is_asked_not_looked_for(cluster: RunningService) -> None:
    """A home folder may be shared: there, the number of a process says nothing."""
    assert service_file.read("shared") is None
    service_file.make_folder("shared")
    service_file.write(msgspec.structs.replace(cluster, name="shared", machine="elsewhere", pid=1))
    run("jobs", "--cluster", "shared")
    assert "runs already, as process 1 on elsewhere" in refused("cluster", "start", "--name", "shared")
    service_file.remove("shared")


# --- jobs ------------------------------------------------------------------------------------------------------------------


def test_a_job_is_submitted_watched_and_drained(cluster: RunningService, tmp_path: Path) -> None:
    out, _ = run("submit", written(tmp_path, ENDLESS), "--name", "drained", "--budget", "1 MB")
    (job,) = re.findall(r"submitted as (drained~\d+)", out)
    assert "a job 'drained' is running already" in refused("submit", tmp_path / "flows.py", "--name", "drained")
    until(lambda: state_of(job) == "running", "the job runs")
    out, _ = run("top", "--once", "--json", tmp_path / "top.json")
    (line,) = [line for line in out.splitlines() if line.startswith(job)]
    assert "running" in line or "paused" in line
    assert any(each["id"] == job for each in json.loads((tmp_path / "top.json").read_text())["jobs"])
    assert f"job {job} reads no more" in run("drain", "drained")[0]
    until(lambda: state_of(job) == "finished", "the job has finished")
    run("jobs", "--json", tmp_path / "jobs.json")
    (figures,) = [each for each in json.loads((tmp_path / "jobs.json").read_text())["jobs"] if each["id"] == job]
    lines = [line for part in (tmp_path / "out").iterdir() for line in part.read_text().splitlines()]
    assert figures["metrics"]["rows_in"] == figures["metrics"]["rows_out"] == len(lines) > 0


def test_a_job_is_cancelled_by_its_id(cluster: RunningService, tmp_path: Path) -> None:
    out, _ = run("submit", written(tmp_path, ENDLESS), "--name", "cancelled")
    (job,) = re.findall(r"submitted as (cancelled~\d+)", out)
    assert f"job {job} is cancelled" in run("cancel", job)[0]
    until(lambda: state_of(job) == "cancelled", "the job is over")
    assert "job 'cancelled' is over: it is cancelled." in refused("cancel", job)
    assert "there is no job 'nobody' in this cluster" in refused("drain", "nobody")


def test_who_cancels_a_job_that_does_not_stop_is_told(cluster: RunningService, tmp_path: Path) -> None:
    text = """
import time
import dirigo as dg

flow = dg.Dataflow("blocked")
source = dg.from_generator(lambda first, count: time.sleep(1000), {"n": int}, 10, name="reader")
flow.source(source, splits=1).sink(dg.to_nothing())
"""
    run("submit", written(tmp_path, text))
    until(lambda: state_of("blocked") == "running", "the job has begun")
    time.sleep(0.5)
    out, _ = run("cancel", "blocked")
    assert re.search(r"worker \d still executes its code; if that does not stop within 5 s, the worker is ended", out)
    assert cluster.access is not None
    with Client(cluster.access) as client:
        until(lambda: any(each.incarnation > 2 for each in client.status().workers), "it is ended and started again")
        until(lambda: all(each.state == "ready" for each in client.status().workers), "all workers are there")


def test_rows_come_to_whoever_waits(cluster: RunningService, tmp_path: Path) -> None:
    out, _ = run("submit", written(tmp_path, SHOWN), "--wait")
    assert out.startswith("a=3\na=4\n")
    assert re.search(r"shown +finished +5 +2 ", out)


def test_a_job_that_fails_tells_where(cluster: RunningService, tmp_path: Path) -> None:
    file = written(tmp_path, FAILING)
    out, errors = run("submit", file, "--follow", code=1)
    assert "failed" in out
    assert errors.startswith("error: job 'failing' failed: operator 'map' cannot handle the row")
    assert f'{file}", line 5, in inverse' in errors
    assert "operator 'map' cannot handle the row" in run("jobs")[0]


def test_where_a_job_failed_is_told_later_too(cluster: RunningService, tmp_path: Path) -> None:
    file = written(tmp_path, FAILING)
    run("submit", file, "--follow", "--name", "told-later", code=1)
    out, _ = run("jobs", "told-later", "--json", tmp_path / "jobs.json")
    assert "raised at" in out
    assert "in inverse" in out
    (figures,) = json.loads((tmp_path / "jobs.json").read_text())["jobs"]
    assert f'{file}", line 5, in inverse' in figures["traceback"]
    assert "ZeroDivisionError" in figures["traceback"]


def test_a_cluster_is_resized(cluster: RunningService, tmp_path: Path) -> None:
    out, _ = run("cluster", "resize", "3", "--json", tmp_path / "resized.json")
    assert "cluster 'dirigo' is to have 3 workers, and had 2" in out
    figures = json.loads((tmp_path / "resized.json").read_text())
    assert (figures["wanted"], figures["before"]) == (3, 2)
    assert cluster.access is not None
    with Client(cluster.access) as client:
        until(lambda: [each.state for each in client.status().workers] == ["ready"] * 3, "three workers are there")
        run("cluster", "resize", "2")
        until(lambda: len(client.status().workers) == 2, "the third one has left")
    assert "a pool has 1 to 1000 workers, not 0." in refused("cluster", "resize", "0")
    assert "or name one that runs with --name: dirigo." in refused("cluster", "resize", "2", "--name", "other")


@pytest.mark.parametrize(
    ("call", "what"),
    [("1 // 0", "ZeroDivisionError: "), ("sys.exit(0)", "SystemExit: 0"), ("sys.exit()", "SystemExit")],
)
def test_a_callback_that_fails_tells_where(cluster: RunningService, tmp_path: Path, call: str, what: str) -> None:
    text = SHOWN.replace("dg.to_console()", f"dg.to_callback(lambda row: {call})").replace("shown", "calling")
    file = written(tmp_path, "import sys\n" + text)
    _, errors = run("submit", file, "--wait", code=1)
    assert errors.startswith(f"error: job 'calling' failed: sink 'to_callback' failed: {what}")
    assert f'{file}", line 6, in <lambda>' in errors


@pytest.mark.parametrize("arguments", [("jobs",), ("submit", "--wait")])
@pytest.mark.parametrize(("redirection", "reason"), [(">/dev/full", "no space left on device"), (">&-", "it is closed")])
def test_an_output_that_cannot_be_written_is_told_in_one_sentence(
    cluster: RunningService, tmp_path: Path, arguments: tuple[str, ...], redirection: str, reason: str
) -> None:
    file = [str(written(tmp_path, SHOWN))] if "submit" in arguments else []
    command = shlex.join([sys.executable, "-c", "from dirigo.cli import main; main()", *arguments, *file])
    done = subprocess.run(f"{command} {redirection}", shell=True, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    if not file and redirection == ">&-":  # nobody wants to hear it
        assert (done.returncode, done.stderr) == (0, "")
        return
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert reason in line


def test_whoever_waits_can_go_and_the_job_goes_on(cluster: RunningService, tmp_path: Path) -> None:
    process = begun("submit", written(tmp_path, ENDLESS), "--name", "nobodys", "--wait")
    until(lambda: "nobodys" in run("jobs")[0], "the job is there")
    process.send_signal(signal.SIGINT)
    said = ended(process)
    jobs = re.findall(r"job (nobodys~\d+) goes on; end it with 'dirigo cancel nobodys~\d+'", said)
    assert len(jobs) == 1, said
    assert process.returncode == 130
    run("cancel", jobs[0])


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        (SHOWN, (), "rows of sink 'to_console' come to whoever submits the job, who must wait for them; add --wait"),
        (ENDLESS, ("--budget", "much"), "--budget: 'much' is no amount of memory; write it like 64MB or 1GiB."),
        (ENDLESS, ("--budget", "0"), "--budget: '0' lets nothing run"),
        (ENDLESS, ("--flow", "[none]"), "there is no dataflow '[none]' in"),
        (ENDLESS, ("--name", "a/b"), "a/b"),
        (SHOWN + renamed(SHOWN, "shown"), (), "choose with --flow: shown, shown."),
        ("import nothing_of_that_name\n", (), "line 1: ModuleNotFoundError: No module named 'nothing_of_that_name'."),
        ("flow = (\n", (), "line 1: SyntaxError"),
    ],
)
def test_what_cannot_be_submitted_gives_one_line(
    cluster: RunningService, tmp_path: Path, text: str, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refused("submit", written(tmp_path, text), *arguments)


def test_top_is_live_until_q_is_pressed(cluster: RunningService) -> None:
    keyboard, terminal = pty.openpty()
    command = [sys.executable, "-c", "from dirigo.cli import main; main()", "top"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
        seen, is_pressed, patience = b"", False, time.monotonic() + 60
        while process.poll() is None and time.monotonic() < patience:
            if select.select([keyboard], [], [], 0.1)[0]:
                seen += os.read(keyboard, 65536)
            if seen.count(b"workers ready") >= 2 and not is_pressed:
                is_pressed = bool(os.write(keyboard, b"xq"))
        process.kill()
        code = process.wait()
    os.close(terminal)
    os.close(keyboard)
    assert code == 0, seen
    assert b"2 of 2 workers ready" in seen
    assert b"\x1b[?1049l" in seen  # the screen is as it was before


# --- the documentation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["run", "cluster start", "cluster status", "cluster stop", "submit", "jobs", "cancel", "drain", "snapshots", "top"],
)
def test_help_has_an_example_and_every_option_is_documented(command: str) -> None:
    out, _ = run(*command.split(), "--help")
    assert f"dirigo {command}" in out.partition("Example")[2]
    section = PAGE.read_text().split(f"## `dirigo {command}`")[1].split("\n## ")[0]
    options = set(re.findall(r"--[a-z]+", out.partition("Options")[2])) - {"--help"}
    assert {option for option in options if f"`{option}" not in section} == set()
