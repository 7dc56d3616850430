"""What processes that were killed have left in the temporary directory is removed by the next one, and nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dirigo.runtime import folders
from dirigo.runtime.folders import OwnFolder, remove_abandoned
from runtime.clusters import LocalCluster, until

OWNER = """
import sys
from dirigo.runtime.folders import OwnFolder
folder = OwnFolder("worker-x")
(folder.path / "rows").write_text("staged")
print(folder.path.parent, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory for this test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def start_owner(place: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], Path]]]:
    """Starts processes that have a folder, and tells which."""
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_folders_of_killed_processes_are_removed_and_those_of_living_ones_stay(
    place: Path, start_owner: Callable[[], tuple[subprocess.Popen[str], Path]]
) -> None:
    killed, left = start_owner()
    _, kept = start_owner()
    killed.kill()
    killed.wait()
    mine = OwnFolder("logs")
    seen: list[str] = []
    remove_abandoned(first=lambda files: seen.append((files / "rows").read_text()))
    assert not left.exists()
    assert (kept / "files" / "rows").read_text() == "staged"
    assert mine.path.is_dir()
    assert seen == ["staged"]
    mine.remove()
    mine.remove()
    assert sorted(place.iterdir()) == [kept]


def test_kinds_can_be_chosen_or_left_out(place: Path, start_owner: Callable[[], tuple[subprocess.Popen[str], Path]]) -> None:
    process, left = start_owner()
    process.kill()
    process.wait()
    remove_abandoned("spark")
    remove_abandoned(but="worker-x")
    assert left.exists()
    remove_abandoned("worker-x")
    assert not left.exists()


def test_what_a_process_has_left_stays_for_a_while_for_the_one_that_takes_its_place(
    place: Path, start_owner: Callable[[], tuple[subprocess.Popen[str], Path]]
) -> None:
    process, left = start_owner()
    process.kill()
    process.wait()
    remove_abandoned(gone_for_s=30.0)
    assert left.exists()
    os.utime(left / ".owner", (0, time.time() - 31.0))
    remove_abandoned(gone_for_s=30.0)
    assert not left.exists()


def test_a_process_that_is_about_to_end_is_waited_for(
    place: Path, start_owner: Callable[[], tuple[subprocess.Popen[str], Path]]
) -> None:
    ending, left = start_owner()
    threading.Timer(0.2, ending.kill).start()
    remove_abandoned("worker-x", patience_s=60)
    assert not left.exists()


def test_what_could_not_be_removed_is_removed_by_the_next_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = OwnFolder("spark")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if somebody wrote to it all the time
        folder.remove()
    assert folder.path.exists()
    remove_abandoned()
    assert list(place.iterdir()) == []


def test_what_is_not_ours_is_never_touched(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = place / "precious"
    (precious / "files").mkdir(parents=True)
    (precious / ".owner").write_text("1")
    (place / "dirigo-link").symlink_to(precious)  # a link to a folder that looks like one of ours
    without = place / "dirigo-home"
    without.mkdir()
    (without / "access.json").write_text("{}")
    trick = place / "dirigo-trick"
    trick.mkdir()
    (trick / ".owner").symlink_to(precious / ".owner")
    pipe = place / "dirigo-pipe"
    pipe.mkdir()
    os.mkfifo(pipe / ".owner")
    of_another = place / "dirigo-other"
    of_another.mkdir()
    (of_another / ".owner").touch()
    before = sorted(place.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 12345)
        remove_abandoned()
    assert sorted(place.rglob("*")) == before
    remove_abandoned()
    assert sorted(place.rglob("*")) == [path for path in before if path not in (of_another, of_another / ".owner")]


def test_links_inside_a_folder_that_is_removed_are_not_followed(
    place: Path, start_owner: Callable[[], tuple[subprocess.Popen[str], Path]]
) -> None:
    precious = place / "precious"
    precious.mkdir()
    (precious / "file").touch()
    process, left = start_owner()
    (left / "files" / "link").symlink_to(precious)
    process.kill()
    process.wait()
    remove_abandoned()
    assert sorted(place.rglob("*")) == [precious, precious / "file"]


def test_a_folder_that_somebody_removes_while_it_is_made_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = folders._is_locked_by
    times: list[Path] = []

    def late(lock: int, base: Path) -> bool:
        """The first time, a process that starts comes between the making of the lock and its locking."""
        times.append(base)
        if len(times) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(folders, "_is_locked_by", real)
                remove_abandoned()
            assert not base.exists()
        return real(lock, base)

    monkeypatch.setattr(folders, "_is_locked_by", late)
    with OwnFolder("logs") as path:
        assert len(times) == 2
        assert list(place.iterdir()) == [path.parent]
    assert list(place.iterdir()) == []


def test_a_killed_worker_leaves_nothing_when_its_successor_runs(place: Path, tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "logs", 2) as cluster:

        def there() -> list[Path]:
            return sorted(place.glob("dirigo-worker-*"))

        before = until(lambda: len(there()) == 2 and there(), "each has a folder")
        cluster.kill(1)
        until(lambda: cluster.worker(1).incarnation > 2, "another process takes its place")
        until(lambda: len(there()) == 2 and there() != before, "the folder of the killed one is gone")
    assert [path for path in place.iterdir() if path.name.startswith("dirigo-")] == []
