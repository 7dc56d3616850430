"""Folders that are full, gone, no folders or not ours; and writing that fails at any call."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pa_fs
import pytest

from dirigo.runtime.snapshots import (
    DamagedSnapshot,
    Savepoint,
    SnapshotError,
    SnapshotManifest,
    SnapshotStore,
    copy_to,
    list_snapshots,
    prepare_folder,
)
from dirigo.runtime.snapshots.addresses import place_at
from dirigo.runtime.snapshots.errors import told
from dirigo.runtime.snapshots.local_place import LocalPlace
from dirigo.runtime.snapshots.object_place import ObjectPlace
from runtime.snapshots.jobs import JOB, content_of, take
from runtime.snapshots.places import FailingFiles

CALLS_MOST = 40


# --- how a folder is named ---


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("snapshots", "no absolute path"),
        ("", "is no folder for snapshots"),
        ("a\0b", "is no folder for snapshots"),
        (None, "is no folder for snapshots"),
        ("file://elsewhere/x", "no folder of this machine"),
        ("file:/x?y=1", "no folder of this machine"),
        ("nonsense://me:key@host/x?secret=1", r"'nonsense://host/x' cannot be reached: Unrecognized .*; check the URI"),
    ],
)
def test_a_folder_that_cannot_be_meant_is_refused(uri: Any, said: str) -> None:
    with pytest.raises(SnapshotError, match=said) as caught:
        place_at(uri)
    assert "key" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("form", ["{path}", "file://{path}", "file://localhost{path}", "file:{path}"])
def test_a_local_folder_is_named_in_many_ways(form: str, tmp_path: Path) -> None:
    place = place_at(form.format(path=tmp_path))
    assert isinstance(place, LocalPlace)
    assert place.path == tmp_path


def test_a_store_of_another_kind_is_reached_through_arrow() -> None:
    place = place_at("s3://key:hidden@bucket/jobs/?region=eu-west-1&endpoint_override=127.0.0.1:1")
    assert isinstance(place, ObjectPlace)
    assert (place.path, place.shown) == ("bucket/jobs", "s3://bucket/jobs/")
    assert place.within("a~1").shown == "s3://bucket/jobs/a~1"


# --- folders that cannot be used ---


def test_a_file_in_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SnapshotError, match=f"'{path}' is not a folder.*name another folder"):
            prepare_folder(str(path))
    with pytest.raises(SnapshotError, match="is not a folder"):
        list_snapshots(str(tmp_path / "file"))


def test_a_folder_that_is_gone_is_told_and_not_made_again(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path / "root"), JOB)
    uses: list[Callable[[], object]] = [
        lambda: store.write_part(1, 0, 1, [[b"x"]]),
        lambda: store.newest([]),
        lambda: list_snapshots(str(tmp_path / "root")),
    ]
    for use in uses:
        with pytest.raises(SnapshotError, match="is not there on this machine; make it, or name a folder that all workers"):
            use()
    assert not (tmp_path / "root").exists()
    store.remove()


def test_a_folder_where_nobody_may_write_is_told() -> None:
    with pytest.raises(SnapshotError, match="The folder of snapshots '/proc/snapshots' "):
        prepare_folder("/proc/snapshots")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "'there' is full .no space left on device.; free some space"),
        (errno.EDQUOT, "'there' is full"),
        (errno.EROFS, "'there' can only be read; mount it for writing"),
        (errno.EACCES, "'there' cannot be written: permission denied; give the user who runs the service access"),
        (errno.ESTALE, "'there' cannot be written: stale file handle; check that it can be reached"),
    ],
)
def test_what_the_system_says_becomes_a_sentence(code: int, said: str) -> None:
    with pytest.raises(SnapshotError, match=said) as caught, told("there", "write"):
        raise OSError(code, os.strerror(code), "/a/path")
    assert not isinstance(caught.value, DamagedSnapshot)


def test_a_sector_that_cannot_be_read_is_damage() -> None:
    with pytest.raises(DamagedSnapshot, match="'part' in 'there' cannot be read"), told("there", "read", "part"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


_FILL = """
import resource, signal, sys
from dirigo.runtime.snapshots import SnapshotStore, SnapshotError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
store = SnapshotStore(sys.argv[1], "orders~1")
store.prepare()
try:
    store.write_part(1, 0, 1, [[bytes(50_000)], [bytes(90_000)]])
except SnapshotError as error:
    print(error)
"""


def test_a_disk_that_is_full_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _FILL, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "is full (file too large); free some space, or name another folder." in found.stdout
    assert list((tmp_path / JOB).iterdir()) == []


# --- failing at any call ---


class Failing:
    """Counts calls, and fails at one of them."""

    def __init__(self) -> None:
        self.fails_at = -1
        self.calls = 0

    def before(self, name: str) -> None:
        self.calls += 1
        if self.calls == self.fails_at:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    def start(self, fails_at: int) -> None:
        self.calls, self.fails_at = 0, fails_at

    def watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.before(name)
            return real(*arguments, **options)

        return call


@pytest.fixture(params=["local", "elsewhere"])
def failing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Failing, SnapshotStore]]:
    failing = Failing()
    store = SnapshotStore(str(tmp_path), JOB)
    if request.param == "local":
        for name in ("open", "fsync", "fdopen"):
            monkeypatch.setattr(os, name, failing.watched(name, getattr(os, name)))
        for name in ("replace", "unlink"):
            monkeypatch.setattr(Path, name, failing.watched(name, getattr(Path, name)))
    else:
        handler = FailingFiles(pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem()), failing.before)
        store.place = ObjectPlace(pa_fs.PyFileSystem(handler), JOB, "elsewhere://orders")
    store.prepare()
    yield failing, store
    failing.start(-1)


def newest_of(store: SnapshotStore) -> SnapshotManifest:
    found = store.newest([])
    assert found is not None
    return found


def test_whatever_fails_the_last_whole_snapshot_is_found(failing: tuple[Failing, SnapshotStore]) -> None:
    fails, store = failing
    take(store, 1, {"count/0": [b"1"], "count/1": [b"one"]})
    committed, failures, number = 1, 0, 1
    for fails_at in range(1, CALLS_MOST):
        number += 1
        fails.start(fails_at)
        has_failed = False
        try:
            take(store, number, {"count/0": [str(number).encode()], "count/1": [b"one"]})
            store.retain(last=2)
        except SnapshotError as error:
            assert "is full" in str(error)  # noqa: PT017  # most of the rounds raise nothing
            has_failed = True
        fails.start(-1)
        failures += has_failed
        found = newest_of(store)
        # What failed may have come into being all the same, as when the folder could not be synced: never by halves.
        assert committed <= found.number <= number
        assert has_failed or found.number == number
        assert content_of(store, found) == {"count/0": str(found.number).encode(), "count/1": b"one"}
        committed = found.number
    assert 5 < failures < CALLS_MOST - 5
    store.retain(last=1)
    assert set(store.place.files()) == {f"manifest-{number}.msgpack", f"part-{number}-0-w1.bin"}


def test_an_object_store_does_all_that_a_folder_does(tmp_path: Path) -> None:
    files = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    place = ObjectPlace(files, "jobs", "elsewhere://jobs")
    place.make()
    assert place.files() == {}
    assert ObjectPlace(files, "nowhere", "elsewhere://nowhere").files() == {}
    place.write("a", [b"some", bytearray(b""), memoryview(b"thing")])
    assert (bytes(place.read("a")), bytes(place.read("a", 4, 3)), bytes(place.read("a", 9))) == (b"something", b"thi", b"")
    with pytest.raises(DamagedSnapshot, match="too short"):
        place.read("a", 4, 30)
    with pytest.raises(DamagedSnapshot, match="missing"):
        place.read("b")
    place.within("deeper").make()
    assert (place.files(), place.folders()) == ({"a": 9}, ["deeper"])
    place.remove_files(["a", "b"])
    assert place.files() == {}
    place.remove()
    place.remove()
    assert list(tmp_path.iterdir()) == []


def test_writing_that_breaks_off_leaves_nothing_elsewhere(tmp_path: Path) -> None:
    place = ObjectPlace(pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem()), "jobs", "elsewhere://jobs")
    place.make()

    def buffers() -> Iterator[bytes]:
        yield b"some"
        raise OSError(errno.EPIPE, "broken")

    with pytest.raises(SnapshotError, match="check that it can be reached"):
        place.write("a", buffers())
    assert place.files() == {}


def test_a_savepoint_is_made_from_an_object_store(tmp_path: Path) -> None:
    store = SnapshotStore(str(tmp_path / "root"), JOB)
    store.place = ObjectPlace(pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem()), "root", "elsewhere://root")
    store.prepare()
    manifest = take(store, 1, {"count/0": [b"x"]})
    copy_to(store, manifest, str(tmp_path / "copy"))
    found = Savepoint.open(str(tmp_path / "copy"))
    assert [bytes(found.read(ref)) for _, ref in found.manifest.bodies()] == [b"x"]
