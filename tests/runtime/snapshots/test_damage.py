"""A bit that flips anywhere is found, and the snapshot before it is used. And a file of another version is no damage."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from dirigo.runtime.snapshots import DamagedSnapshot, SnapshotError, SnapshotManifest, SnapshotStore, StoredJob
from runtime.snapshots.jobs import JOB, content_of, take

BEFORE = {"count/0": b"before", "sum/0": b"as well"}


def restored(root: Path) -> SnapshotManifest | None:
    """As a controller does it: what is damaged inside is passed over."""
    store = SnapshotStore(str(root), JOB)
    damaged: set[int] = set()
    while True:
        manifest = store.newest([], damaged)
        if manifest is None:
            return None
        try:
            content_of(store, manifest)
        except DamagedSnapshot:
            assert store.verify(manifest) != []
            damaged.add(manifest.number)
        else:
            return manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = SnapshotStore(str(tmp_path), JOB)
    store.prepare()
    take(store, 1, {place: [content] for place, content in BEFORE.items()})
    take(store, 2, {"count/0": [b"after"], "sum/0": [b"x" * 70]})
    return tmp_path / JOB


@pytest.mark.parametrize("name", ["manifest-2.msgpack", "part-2-0-w1.bin"])
def test_every_flipped_byte_is_found(folder: Path, name: str) -> None:
    file = folder / name
    whole = file.read_bytes()
    for index in range(len(whole)):
        broken = bytearray(whole)
        broken[index] ^= 1 << index % 8
        file.write_bytes(broken)
        found = restored(folder.parent)
        assert found is not None
        assert found.number == 1
    file.write_bytes(whole)
    found = restored(folder.parent)
    assert found is not None
    assert found.number == 2


@pytest.mark.parametrize("name", ["manifest-2.msgpack", "part-2-0-w1.bin"])
def test_every_lost_end_is_found(folder: Path, name: str) -> None:
    file = folder / name
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        found = restored(folder.parent)
        assert found is not None
        assert found.number == 1


def test_a_flipped_byte_in_what_is_known_of_the_job_is_found(folder: Path) -> None:
    store = SnapshotStore(str(folder.parent), JOB)
    store.write_job(StoredJob(job=JOB, name="orders", began_s=1.0, content=b"content"))
    whole = (folder / "job.msgpack").read_bytes()
    for index in range(len(whole)):
        broken = bytearray(whole)
        broken[index] ^= 4
        (folder / "job.msgpack").write_bytes(broken)
        with pytest.raises(DamagedSnapshot):
            store.read_job()


def test_a_manifest_of_another_snapshot_is_found(folder: Path) -> None:
    (folder / "manifest-3.msgpack").write_bytes((folder / "manifest-2.msgpack").read_bytes())
    complaints: list[str] = []
    found = SnapshotStore(str(folder.parent), JOB).newest(complaints)
    assert found is not None
    assert found.number == 2
    assert "is the manifest of snapshot 2" in complaints[0]


def test_a_file_of_somebody_else_with_the_right_checksum_is_found(folder: Path) -> None:
    content = (1).to_bytes(4, "little") + b"\xc1 no msgpack"
    (folder / "manifest-2.msgpack").write_bytes(b"dirigo-m" + zlib.crc32(content).to_bytes(4, "little") + content)
    found = restored(folder.parent)
    assert found is not None
    assert found.number == 1


def test_another_version_is_refused_and_not_passed_over(folder: Path) -> None:
    content = (2).to_bytes(4, "little") + b"of the future"
    (folder / "manifest-2.msgpack").write_bytes(b"dirigo-m" + zlib.crc32(content).to_bytes(4, "little") + content)
    store = SnapshotStore(str(folder.parent), JOB)
    with pytest.raises(SnapshotError, match="format 2 and this version of Dirigo reads format 1; use the version"):
        store.newest([])
    infos = store.manifests()
    assert [info.is_whole for info in infos] == [True, False]
    assert "format 2" in infos[1].problem


def test_a_part_of_another_version_is_refused(folder: Path) -> None:
    file = folder / "part-2-0-w1.bin"
    version = (2).to_bytes(4, "little")
    header = b"dirigo-p" + version + zlib.crc32(b"dirigo-p" + version).to_bytes(4, "little")
    file.write_bytes(header + file.read_bytes()[16:])
    store = SnapshotStore(str(folder.parent), JOB)
    manifest = store.newest([])
    assert manifest is not None
    with pytest.raises(SnapshotError, match="format 2"):
        content_of(store, manifest)
