"""Writing snapshots into a local folder, finding the last one that is whole, and removing what nobody needs."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dirigo.runtime.snapshots import (
    BlobRef,
    DamagedSnapshot,
    SnapshotError,
    SnapshotStore,
    StoredJob,
    list_snapshots,
    prepare_folder,
    stored_jobs,
)
from runtime.snapshots.jobs import JOB, content_of, manifest_of, take


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    store = SnapshotStore(str(tmp_path), JOB)
    store.prepare()
    return store


def names(store: SnapshotStore) -> set[str]:
    return set(store.place.files())


def test_what_was_written_is_read(store: SnapshotStore) -> None:
    large = np.arange(100_000, dtype=np.int64)
    blobs: list[list[bytes | bytearray | memoryview]] = [[b"one", bytearray(b"two")], [], [large.data], [b"x" * 64]]
    refs = store.write_part(1, 0, 7, blobs)
    assert {ref.file for ref in refs} == {"part-1-0-w7.bin"}
    assert [bytes(store.read(ref)) for ref in refs] == [b"onetwo", b"", large.tobytes(), b"x" * 64]
    assert all(ref.offset % 64 == 0 for ref in refs)
    assert not store.read(refs[0]).readonly


def test_a_worker_with_nothing_to_write_makes_no_file(store: SnapshotStore) -> None:
    assert store.write_part(1, 0, 1, []) == []
    assert names(store) == set()


def test_the_newest_manifest_is_found(store: SnapshotStore) -> None:
    complaints: list[str] = []
    assert store.newest(complaints) is None
    for number in (1, 2, 10):
        take(store, number, {"count/0": [b"state", str(number).encode()], "ended/0": []})
    found = store.newest(complaints)
    assert found is not None
    assert (found.number, found.sources, found.logs) == (10, {"read/0": b"position", "socket/0": None}, {"sink/0": 100})
    assert content_of(store, found) == {"count/0": b"state10", "ended/0": b""}
    assert [info.number for info in store.manifests()] == [1, 2, 10]
    assert complaints == []


def test_damage_makes_it_fall_back_with_a_sentence_each(store: SnapshotStore, tmp_path: Path) -> None:
    for number in (1, 2, 3, 4):
        take(store, number, {"count/0": [b"state" * number]})
    folder = tmp_path / JOB
    (folder / "manifest-4.msgpack").write_bytes(b"dirigo-m and then nonsense")
    (folder / "part-3-0-w1.bin").unlink()
    with (folder / "part-2-0-w1.bin").open("r+b") as file:
        file.truncate(64)
    complaints: list[str] = []
    found = store.newest(complaints)
    assert found is not None
    assert found.number == 1
    assert [complaint.split(" of ")[0] for complaint in complaints] == ["Snapshot 4", "Snapshot 3", "Snapshot 2"]
    assert "its checksum" in complaints[0]
    assert "'part-3-0-w1.bin' is missing" in complaints[1]
    assert [info.is_whole for info in store.manifests()] == [True, False, False, False]
    assert store.newest(complaints, damaged={1}) is None


def test_a_missing_part_is_damage_where_it_is_read(store: SnapshotStore, tmp_path: Path) -> None:
    manifest = take(store, 1, {"count/0": [b"state"]})
    (tmp_path / JOB / "part-1-0-w1.bin").unlink()
    with pytest.raises(DamagedSnapshot, match="is missing"):
        content_of(store, manifest)
    assert len(store.verify(manifest)) == 1


def test_a_reference_to_elsewhere_is_refused(store: SnapshotStore, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(100))
    with pytest.raises(DamagedSnapshot, match="where none can be"):
        store.read(BlobRef("../secret", 64, 10, 0))
    refs = store.write_part(1, 0, 1, [[b"x"]])
    with pytest.raises(DamagedSnapshot, match="too short"):
        store.read(BlobRef(refs[0].file, 64, 1 << 60, 0))


def test_retention_keeps_what_the_last_ones_refer_to(store: SnapshotStore) -> None:
    first = take(store, 1, {"idle/0": [b"unchanged"], "count/0": [b"1"]})
    for number in range(2, 7):
        refs = store.write_part(number, 0, 1, [[str(number).encode()]])
        body = first.actors["idle/0"].body
        store.write_manifest(manifest_of(number, {"idle/0": body, "count/0": refs[0]}))
    store.write_part(7, 0, 1, [[b"under way"]])
    store.retain(last=3)
    assert names(store) == {
        *(f"manifest-{number}.msgpack" for number in (4, 5, 6)),
        *(f"part-{number}-0-w1.bin" for number in (1, 4, 5, 6, 7)),
    }
    newest = store.newest([])
    assert newest is not None
    assert content_of(store, newest) == {"idle/0": b"unchanged", "count/0": b"6"}
    assert store.manifests()[-1].alive_bytes == 192 + 128
    with pytest.raises(SnapshotError, match="keep 1 or more"):
        store.retain(last=0)


def test_retention_keeps_what_is_held(store: SnapshotStore) -> None:
    for number in range(1, 7):
        take(store, number, {"count/0": [str(number).encode()]})
    store.retain(last=2, held={2, 5, 17})
    assert [each.number for each in store.manifests()] == [2, 5, 6]
    assert content_of(store, store.manifest(2)) == {"count/0": b"2"}
    store.retain(last=2)
    assert names(store) == {*(f"manifest-{n}.msgpack" for n in (5, 6)), *(f"part-{n}-0-w1.bin" for n in (5, 6))}


def test_what_an_actor_has_left_at_its_end_waits_for_the_next_snapshot(store: SnapshotStore) -> None:
    take(store, 1, {"sink/0": [b"one"]})
    (end,) = store.write_part(0, 0, 1, [[b"the end"]])  # while the manifest of snapshot 1 was on its way
    store.retain(3)
    store.write_manifest(manifest_of(2, {"sink/0": end}))
    found = store.newest([])
    assert found is not None
    assert content_of(store, found) == {"sink/0": b"the end"}
    take(store, 3, {"sink/0": [b"of another generation, which went on from snapshot 1"]}, generation=1)
    store.retain(1)
    assert names(store) == {"manifest-3.msgpack", "part-3-1-w1.bin"}


def test_retention_counts_whole_snapshots_only(store: SnapshotStore, tmp_path: Path) -> None:
    for number in range(1, 6):
        take(store, number, {"count/0": [str(number).encode()]})
    (tmp_path / JOB / "manifest-5.msgpack").write_bytes(b"")
    (tmp_path / JOB / "manifest-3.msgpack").write_bytes(b"")
    store.retain(last=2)
    assert {name for name in names(store) if name.startswith("part")} == {f"part-{n}-0-w1.bin" for n in (2, 4, 5)}
    assert {name for name in names(store) if name.startswith("man")} == {f"manifest-{n}.msgpack" for n in (2, 4, 5)}


def test_what_an_abandoned_snapshot_left_goes_with_the_next(store: SnapshotStore, tmp_path: Path) -> None:
    take(store, 1, {"count/0": [b"1"]})
    store.write_part(2, 0, 1, [[b"abandoned"]])
    (tmp_path / JOB / ".part-2-0-w2.bin-99.unfinished").write_bytes(b"of a worker that was killed")
    store.retain()
    assert len(names(store)) == 4
    take(store, 3, {"count/0": [b"3"]}, generation=1)
    store.write_part(2, 2, 1, [[b"of a later generation"]])
    store.retain(last=1)
    assert names(store) == {"manifest-3.msgpack", "part-3-1-w1.bin", "part-2-2-w1.bin"}


def test_what_is_kept_for_little_is_worth_rewriting(store: SnapshotStore) -> None:
    old = store.write_part(1, 0, 1, [[bytes(1000)], [bytes(5000)]])
    new = store.write_part(2, 0, 1, [[bytes(1000)]])
    manifest = manifest_of(2, {"small/0": old[0], "own/0": new[0], "ended/0": None})
    assert store.worth_rewriting(manifest) == {"small/0"}
    assert store.worth_rewriting(manifest_of(2, {"large/0": old[1], "own/0": new[0]})) == set()


def test_the_job_is_found_again(store: SnapshotStore, tmp_path: Path) -> None:
    assert store.read_job() is None
    job = StoredJob(job=JOB, name="orders", began_s=3.0, content=b"how to begin")
    store.write_job(job)
    assert store.read_job() == job
    assert stored_jobs(str(tmp_path)) == [JOB]


def test_all_jobs_are_listed(tmp_path: Path) -> None:
    prepare_folder(tmp_path.as_uri() + "/deep/down")
    root = str(tmp_path / "deep/down")
    for job in (".a/b~1", "ü %~2"):
        store = SnapshotStore(root, job)
        store.prepare()
        take(store, 4, {"count/0": [b"x"]})
    (info, other) = list_snapshots(root)
    assert {info.job, other.job} == {".a/b~1", "ü %~2"}
    assert (info.number, info.name, info.is_whole, info.age_s(1010.0)) == (4, "orders", True, 5.5)
    for listed in stored_jobs(root):
        SnapshotStore(root, listed).remove()
    assert list_snapshots(root) == []


def test_files_are_for_their_owner_alone(store: SnapshotStore, tmp_path: Path) -> None:
    take(store, 1, {"count/0": [b"x"]})
    assert stat.S_IMODE((tmp_path / JOB).stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / JOB).iterdir()} == {0o600}


def test_a_manifest_of_another_job_is_refused(store: SnapshotStore) -> None:
    with pytest.raises(SnapshotError, match="does not belong"):
        store.write_manifest(manifest_of(1, {}, job="another~1"))


def test_two_generations_never_write_the_same_file(store: SnapshotStore) -> None:
    new = take(store, 3, {"count/0": [b"new"]}, generation=1)
    store.write_part(3, 0, 1, [[b"a frozen worker woke up"]])
    assert content_of(store, new) == {"count/0": b"new"}
    store.retain()
    assert "part-3-0-w1.bin" not in names(store)


def test_a_folder_is_removed_though_a_worker_still_writes_into_it(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = store.place.path / "rows" / "spark-0"  # type: ignore[attr-defined]
    late = late_files(rows, monkeypatch, 1)
    store.write_job(StoredJob(job=JOB, name="job", began_s=1.0, content=b"code"))
    store.remove()
    assert late == [1]
    assert store.place.files() == {}
    assert not rows.exists()


def test_a_folder_is_removed_though_a_worker_removes_files_in_it(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_job(StoredJob(job=JOB, name="job", began_s=1.0, content=b"code"))
    take(store, 1, {"count/0": [b"state"]})
    remove, gone = shutil.rmtree, list[Path]()

    def remove_partly(path: Path) -> None:
        if not gone:
            gone.append(path)
            raise FileNotFoundError(2, "No such file or directory", "000000000001.release")
        remove(path)

    monkeypatch.setattr("shutil.rmtree", remove_partly)
    store.remove()
    assert gone == [store.place.path]  # type: ignore[attr-defined]
    assert not gone[0].exists()


def test_a_job_that_is_over_is_not_begun_again_though_its_folder_cannot_be_removed(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr("shutil.rmtree", fail)
    store.write_job(StoredJob(job=JOB, name="job", began_s=1.0, content=b"code"))
    with pytest.raises(SnapshotError, match="not empty"):
        store.remove()
    assert store.read_job() is None


def late_files(folder: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """A file comes into a folder each time it is to be removed; returns which have come."""
    folder.mkdir(parents=True)
    rmdir, come = os.rmdir, list[int]()

    def late(path: Any, *its: Any, **more: Any) -> None:
        if str(path).endswith(folder.name) and len(come) < most:
            come.append(len(come) + 1)
            (folder / f"{len(come)}.arrow").touch()
        rmdir(path, *its, **more)

    monkeypatch.setattr("os.rmdir", late)
    return come
