"""Savepoints: copies that need nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from dirigo.runtime.snapshots import DamagedSnapshot, Savepoint, SnapshotError, SnapshotStore, StoredJob, copy_to, savepoint
from runtime.snapshots.jobs import JOB, manifest_of, take


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    store = SnapshotStore(str(tmp_path / "root"), JOB)
    store.prepare()
    return store


@pytest.mark.parametrize("file_bytes", [4 << 30, 8])
def test_a_savepoint_outlives_the_job(
    store: SnapshotStore, tmp_path: Path, file_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savepoint, "_FILE_BYTES", file_bytes)
    job = StoredJob(job=JOB, name="orders", began_s=1.0, content=b"content")
    store.write_job(job)
    old = take(store, 1, {"idle/0": [b"unchanged"], "other/0": [b"not needed"]}).actors["idle/0"].body
    refs = store.write_part(2, 1, 1, [[b"one"], [b"two"]])
    bodies = {"idle/0": old, "count/0": refs[0], "count/1": refs[1], "ended/0": None}
    manifest = manifest_of(2, bodies, generation=1)
    target = (tmp_path / "my savepoint" / "a").as_uri()
    copied = copy_to(store, manifest, target)
    store.remove()
    found = Savepoint.open(target)
    assert found.manifest == copied
    assert found.job == job
    assert {place: bytes(found.read(ref)) for place, ref in found.manifest.bodies()} == {
        "idle/0": b"unchanged",
        "count/0": b"one",
        "count/1": b"two",
    }
    assert (found.manifest.number, found.manifest.sources, found.manifest.logs) == (2, manifest.sources, manifest.logs)
    assert found.verify() == []
    assert len([name for name in found.place.files() if name.startswith("part")]) == (1 if file_bytes > 8 else 2)


def test_a_folder_that_holds_something_is_refused(store: SnapshotStore, tmp_path: Path) -> None:
    manifest = take(store, 1, {"count/0": [b"x"]})
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    with pytest.raises(SnapshotError, match="is not empty"):
        copy_to(store, manifest, str(tmp_path / "taken"))
    with pytest.raises(SnapshotError, match="is not empty"):
        copy_to(store, manifest, str(tmp_path / "root"))
    assert (tmp_path / "taken" / "notes.txt").read_text() == "mine"


def test_a_copy_that_fails_leaves_nothing(store: SnapshotStore, tmp_path: Path) -> None:
    manifest = take(store, 1, {"count/0": [b"x" * 100], "count/1": [b"y"]})
    part = tmp_path / "root" / JOB / "part-1-0-w1.bin"
    part.write_bytes(part.read_bytes().replace(b"y", b"z"))
    with pytest.raises(DamagedSnapshot, match="damaged"):
        copy_to(store, manifest, str(tmp_path / "copy"))
    assert list((tmp_path / "copy").iterdir()) == []


def test_what_is_no_savepoint_is_refused(store: SnapshotStore, tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="no finished savepoint"):
        Savepoint.open(str(tmp_path))
    for number in (1, 2):
        take(store, number, {"count/0": [b"x"]})
    with pytest.raises(SnapshotError, match="many snapshots"):
        Savepoint.open(str(tmp_path / "root" / JOB))
    manifest = store.newest([])
    assert manifest is not None
    copy_to(store, manifest, str(tmp_path / "copy"))
    (tmp_path / "copy" / "part-2-0-w0.bin").unlink()
    with pytest.raises(DamagedSnapshot, match="cannot be used"):
        Savepoint.open(str(tmp_path / "copy"))
