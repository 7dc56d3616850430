"""States are read from a savepoint or a folder of snapshots, without a cluster; what cannot be read says why."""

from __future__ import annotations

import shutil
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest

import dirigo as dg
from dirigo.runtime.snapshots.errors import DamagedSnapshot, SnapshotError
from dirigo.runtime.snapshots.savepoint import copy_to
from dirigo.runtime.snapshots.store import SnapshotStore
from dirigo.runtime.stored_states import StoredStates
from dirigo.spark.results.state_reader import state_schema
from runtime.clusters import SCHEMA, LocalCluster, until
from runtime.state_reads.test_state_reads import trickle


@dataclass
class Folders:
    """What a job has left."""

    job: str
    snapshots: Path
    savepoint: Path

    @property
    def of_job(self) -> Path:
        return self.snapshots / self.job


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Copies of the folders of a job with much state, whose cluster is gone."""
    folder = tmp_path_factory.mktemp("left")
    root, copied, savepoint = folder / "snapshots", folder / "copied", folder / "savepoint"
    flow = dg.Dataflow("left")
    source = flow.source(dg.from_generator(trickle, SCHEMA, None, block=50, time="ts", name="numbers"), splits=1)
    source.deduplicate("n", name="seen").key_by("key").aggregate(rows=dg.count()).sink(dg.to_nothing())
    with LocalCluster(folder / "logs", workers=1, snapshots=root, every_s=0.2) as cluster:
        job = cluster.submit(flow)
        until(lambda: (last := job.status().snapshot) is not None and last.total_bytes > 100_000, "there is much state")
        place = cluster.client.find_snapshot("left")
        store = SnapshotStore(str(root), place.job)
        copy_to(store, store.manifest(place.number), str(savepoint))
        until(lambda: copied_whole(root, copied, place.job), "a copy is whole")
        job.cancel()
    return Folders(place.job, copied, savepoint)


def copied_whole(root: Path, copied: Path, job: str) -> bool:
    """The job goes on meanwhile, so files may go."""
    shutil.rmtree(copied, ignore_errors=True)
    try:
        shutil.copytree(root, copied)
        return SnapshotStore(str(copied), job).newest([]) is not None
    except shutil.Error:
        return False


@pytest.fixture
def mine(left: Folders, tmp_path: Path) -> Folders:
    """Copies that a test may spoil."""
    shutil.copytree(left.snapshots, tmp_path / "snapshots")
    shutil.copytree(left.savepoint, tmp_path / "savepoint")
    return Folders(left.job, tmp_path / "snapshots", tmp_path / "savepoint")


def check(states: StoredStates) -> None:
    seen = sorted(states.table("seen")["n"].to_pylist())
    assert len(seen) > 1000
    assert seen == list(range(len(seen)))
    counts = {row["key"]: row["rows"] for row in states.table("aggregate").to_pylist()}
    assert counts == {key: len(range(key, len(seen), 13)) for key in range(13)}


def test_both_are_read_without_a_cluster(left: Folders) -> None:
    check(StoredStates.in_savepoint(str(left.savepoint)))
    check(StoredStates.in_snapshots(str(left.snapshots), "left"))
    states = StoredStates.in_snapshots(str(left.snapshots), left.job)
    assert states.operators == ["seen", "aggregate"]
    metadata = states.table("seen").schema.metadata
    assert metadata[b"dirigo.job"].decode() == left.job
    assert int(metadata[b"dirigo.snapshot"]) == states.number


def test_what_is_not_there_is_named(left: Folders) -> None:
    root = str(left.snapshots)
    with pytest.raises(SnapshotError, match=r"no snapshots of job 'else' in this folder; it has those of: left~1\."):
        StoredStates.in_snapshots(root, "else")
    with pytest.raises(SnapshotError, match=r"Snapshot 1000 of job 'left~1' is not there any more; read the last one\."):
        StoredStates.in_snapshots(root, "left", 1000)
    with pytest.raises(SnapshotError, match=r"^Snapshot 1000 of job 'left~1' is not there any more; read the last one\.$"):
        state_schema(None, {"state": "seen", "job": "left", "snapshots": root, "snapshot": "1000"})
    with pytest.raises(SnapshotError, match="is not there on this machine"):
        StoredStates.in_snapshots(str(left.snapshots / "none"), "left")
    with pytest.raises(SnapshotError, match="holds no finished savepoint; name the folder of one"):
        StoredStates.in_savepoint(str(left.savepoint / "none"))


def test_the_flow_of_a_job_that_is_over_is_gone(mine: Folders) -> None:
    (mine.of_job / "job.msgpack").unlink()
    with pytest.raises(SnapshotError, match=r"The flow of job 'left~1' is not in .* any more, because the job is over"):
        StoredStates.in_snapshots(str(mine.snapshots), "left")


def test_a_damaged_state_is_no_snapshot_that_was_removed(mine: Folders) -> None:
    for part in mine.savepoint.glob("part-*"):
        content = bytearray(part.read_bytes())
        content[64:] = bytes(len(content) - 64)
        part.write_bytes(content)
    with pytest.raises(DamagedSnapshot, match="is damaged: a checksum is not what it was"):
        StoredStates.in_savepoint(str(mine.savepoint)).table("aggregate")
    for part in mine.of_job.glob("part-*"):
        content = bytearray(part.read_bytes())
        content[64:] = bytes(len(content) - 64)
        part.write_bytes(content)
    states = StoredStates.in_snapshots(str(mine.snapshots), "left")
    with pytest.raises(DamagedSnapshot, match="is damaged: a checksum is not what it was"):
        states.table("aggregate")


def test_a_snapshot_that_goes_while_it_is_read_is_told_from_damage(mine: Folders) -> None:
    states = StoredStates.in_snapshots(str(mine.snapshots), "left")
    for file in mine.of_job.iterdir():
        file.unlink()
    with pytest.raises(SnapshotError, match=rf"Snapshot {states.number} of job 'left~1' is not there any more"):
        states.table("aggregate")


def test_another_version_says_so(mine: Folders) -> None:
    (manifest,) = mine.savepoint.glob("manifest-*")
    content = manifest.read_bytes()
    version = struct.pack("<I", 99)
    manifest.write_bytes(content[:8] + struct.pack("<I", zlib.crc32(version + content[16:])) + version + content[16:])
    with pytest.raises(SnapshotError, match="is in format 99 and this version of Dirigo reads format 1; use the version"):
        StoredStates.in_savepoint(str(mine.savepoint))


def test_a_state_that_cannot_be_restored_names_its_operator(left: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise AttributeError("there is no such class")

    states = StoredStates.in_savepoint(str(left.savepoint))
    monkeypatch.setattr("dirigo.runtime.stored_states.decode", fail)
    sentence = (
        r"of operator 'seen' in snapshot \d+ of job 'left~1' cannot be shown: AttributeError: there is no such class\."
    )
    with pytest.raises(SnapshotError, match=sentence):
        states.table("seen")


def test_a_flow_whose_code_is_not_here(left: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: bytes) -> None:
        raise ModuleNotFoundError("No module named 'prices'")

    monkeypatch.setattr("dirigo.runtime.stored_states.unship", fail)
    with pytest.raises(SnapshotError, match=r"cannot be read here \(ModuleNotFoundError: .*\); use the version of Dirigo"):
        StoredStates.in_savepoint(str(left.savepoint))
