"""A session of our own that does not come up, or whose Java process is gone: nothing of it stays behind."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway

from dirigo.runtime.folders import OwnFolder
from dirigo.spark import session
from dirigo.spark.session import OwnSession


def test_an_interrupted_start_leaves_no_java_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java goes on for a while, and would make its folders anew after ours was removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started: list[subprocess.Popen[bytes]] = []

    def build(self: OwnSession, pyspark: Any, folder: Path) -> Any:
        writing = f"while true; do mkdir -p {folder}/scratch/block; done"
        started.append(java_gateway.Popen(["sh", "-c", writing], stdin=subprocess.PIPE))
        while not (folder / "scratch").exists():
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(OwnSession, "_build", build)
    try:
        with pytest.raises(KeyboardInterrupt):
            OwnSession(1).start()
        assert started[0].returncode is not None
        assert list(tmp_path.iterdir()) == []
    finally:
        started[0].kill()
        started[0].communicate()


class DyingSession:
    """One whose Java process dies in the middle of its end, as when a signal goes to both."""

    def __init__(self, java: subprocess.Popen[bytes]) -> None:
        self._java = java

    def stop(self) -> None:
        self._java.kill()
        raise ConnectionResetError("Answer from Java side is empty")


def test_a_session_is_stopped_although_java_dies_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = OwnSession(1)
    own._folder = OwnFolder("spark")
    own._java = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)
    own._spark = DyingSession(own._java)
    own.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_cannot_be_stopped_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(session, "_DIED_WITHIN_S", 0.05)
    own = OwnSession(1)
    own._folder = OwnFolder("spark")
    own._java = subprocess.Popen(["cat"], stdin=subprocess.PIPE)  # it ends in order, when it is told to
    own._spark = DyingSession(other := subprocess.Popen(["cat"], stdin=subprocess.PIPE))
    with pytest.raises(ConnectionResetError):
        own.stop()
    other.communicate()
    assert list(tmp_path.iterdir()) == []
