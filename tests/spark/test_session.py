"""A session of our own that does not come up, or whose Java process is gone: nothing of it stays behind."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway

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
