"""What a cluster writes, the results of jobs and rows on their way, can be read by its owner alone, whatever the umask."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime.ingest.pusher import Pusher
from dirigo.runtime.transport.keys import WRITER
from runtime.clusters import LocalCluster, until


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Files are for everybody, unless somebody sees to it."""
    before = os.umask(0)
    yield
    os.umask(before)


def exposed(root: Path) -> list[str]:
    """The files under a folder that others can read: no folder on the way keeps them out."""
    found = []
    for path in root.rglob("*"):
        way = [root, *(root / part for part in path.relative_to(root).parents if part != Path())]
        is_open = all(stat.S_IMODE(folder.stat().st_mode) & 0o011 for folder in way)
        if path.is_file() and is_open and stat.S_IMODE(path.stat().st_mode) & 0o044:
            found.append(str(path))
    return found


def test_files_that_others_can_read_are_found(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "closed").mkdir(mode=0o700)
    tmp_path.chmod(0o755)
    for folder in ("open", "closed"):
        (tmp_path / folder / "file").touch()
        (tmp_path / folder / "file").chmod(0o644)
    (tmp_path / "open").chmod(0o755)
    assert exposed(tmp_path) == [str(tmp_path / "open" / "file")]


def test_only_their_owner_can_read_results_and_staged_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_umask: None
) -> None:
    logs, temporary = tmp_path / "logs", tmp_path / "temporary"
    for folder in (tmp_path, logs, temporary):  # of somebody who lets everybody look
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with LocalCluster(logs, workers=1) as cluster:
        flow = dg.Dataflow("private")
        flow.source(PushedSource({"n": "int64"}), splits=1).sink(dg.to_spark(name="out"))
        handle = cluster.submit(flow)
        until(lambda: handle.status().state == "running", "it runs")
        places = cluster.client.source_places(handle.id)
        keys = cluster.controller.access.lowered(WRITER).keys
        attempts = []
        for _ in range(2):  # one of them stays staged
            with Pusher(places, places.splits[0], keys) as pusher:
                pusher.push(pa.record_batch({"n": [1, 2, 3]}))
                attempts.append(pusher.finish())
        cluster.client.release(handle.id, "pushed", "query", 1, attempts[:1], 60.0)
        until(lambda: cluster.client.log_info(handle.id).next, "results")
        assert any(path.is_file() for path in logs.rglob("*"))
        assert any(path.suffix == ".arrow" for path in temporary.rglob("*"))
        assert exposed(logs) == []
        assert exposed(temporary) == []
