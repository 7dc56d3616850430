"""Staged rows that outlive their worker: on disk before they are confirmed, and read again from a snapshot's position."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.sources.pushed import PushedSplit
from dirigo.runtime.ingest.decisions import Decision, Decisions
from dirigo.runtime.ingest.kept import KeptFiles
from dirigo.runtime.ingest.pusher import StagingAck, StagingHeader
from dirigo.runtime.ingest.staging import Staging, StagingError
from dirigo.runtime.results.log import files

SCHEMA = pa.schema([("n", pa.int64())])


def frame(numbers: Iterable[int]) -> bytes:
    content: bytes = pa.record_batch({"n": pa.array(numbers, pa.int64())}, schema=SCHEMA).serialize().to_pybytes()
    return content


class Reading:
    """A generation of the job: the staging of one split, and the split that reads from it."""

    def __init__(self, folder: Path, generation: int = 0, position: Any | None = None) -> None:
        self.staging = Staging(folder, SCHEMA, owner=(generation, 0))
        self.split = PushedSplit(SCHEMA, 0)
        if generation % 2:  # either comes first
            self.split.attach(self.staging)
        if position is not None:
            self.split.seek(position)
        if not generation % 2:
            self.split.attach(self.staging)

    def stage(self, attempt: str, *parts: Iterable[int]) -> str:
        for part in parts:
            self.staging.stage(attempt, [frame(part)])
        if not parts:
            self.staging.stage(attempt, [])
        self.staging.seal(attempt)
        return attempt

    def release(self, attempt: str) -> bool:
        return self.staging.release("q", 0, [attempt])

    def forget(self, position: Any) -> None:
        """A snapshot with this position was committed."""
        self.staging.forget_before(position[0])

    def read(self, rows_max: int = 1000) -> list[int]:
        found: list[int] = []
        while (piece := self.split.read(rows_max)) is not None:
            found += piece.rows.column("n").to_pylist()
        return found


def names(folder: Path, suffix: str) -> int:
    return len(list(folder.glob(f"[!.]*{suffix}")))


def test_another_worker_reads_on_from_the_position_of_a_snapshot(tmp_path: Path) -> None:
    first = Reading(tmp_path)
    assert first.split.position() == [1, 0]
    first.staging.release("q", 0, [first.stage("a", [1, 2], [3])])
    first.staging.release("q", 1, [first.stage("b", [4, 5]), first.stage("c", [6])])
    assert first.read(1000) == [1, 2, 3, 4, 5, 6]
    again = Reading(tmp_path, 1, [2, 1])
    assert again.split.position() == [2, 1]
    piece = again.split.read(1)
    assert piece is not None
    assert piece.rows.column("n").to_pylist() == [5]
    assert again.split.position() == [2, 2]
    assert again.read(1) == [6]
    assert again.split.position() == [3, 0]
    assert again.staging.queued_bytes() == 0
    from_the_beginning = Reading(tmp_path, 2)
    assert from_the_beginning.read() == [1, 2, 3, 4, 5, 6]


def test_a_micro_batch_that_was_committed_is_known_for_ever(tmp_path: Path) -> None:
    first = Reading(tmp_path)
    first.staging.release("q", 5, [first.stage("a", [1])])
    assert first.read() == [1]
    position = first.split.position()
    first.forget(position)
    assert names(tmp_path, ".arrow") == names(tmp_path, ".release") == 0
    again = Reading(tmp_path, 1, position)
    assert not again.staging.release("q", 5, [again.stage("other", [1])])
    assert again.read() == []
    assert again.staging.release("q", 6, [again.stage("new", [2])])
    assert again.read() == [2]
    with pytest.raises(StagingError, match="it goes on with release 1, and there are 2 to 2; submit the job again"):
        Reading(tmp_path, 2, [1, 0])
    with pytest.raises(StagingError, match="it goes on with release 4, and there are 2 to 2; submit the job again"):
        Reading(tmp_path, 3, [4, 0])


def test_of_many_queries_those_that_are_silent_are_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dirigo.runtime.ingest.staging._QUERIES_REMEMBERED", 2)
    first = Reading(tmp_path)
    for query, batch in (("stream", 0), ("once", 0), ("stream", 1)):
        assert first.staging.release(query, batch, [first.stage(f"{query}{batch}", [1])])
    first.read()
    first.forget(first.split.position())
    again = Reading(tmp_path, 1, first.split.position())
    assert again.staging.release("another", 0, [again.stage("a", [2])])
    assert not again.staging.release("stream", 1, [again.stage("again", [1])])


def test_a_complete_attempt_can_be_released_by_another_worker(tmp_path: Path) -> None:
    first = Reading(tmp_path)
    header = StagingHeader("j", "s", 0, "../complete", 0, last=True, reached_ms=9)
    assert first.staging.receive(header, [frame([1, 2])]) == StagingAck("../complete", 0)
    first.staging.stage("half", [frame([3])])
    first.stage("empty")
    again = Reading(tmp_path, 1)
    assert names(tmp_path, ".arrow") == 2
    assert again.staging.receive(header, [frame([1, 2])]) == StagingAck("../complete", 0)  # a copy that was long on its way
    with pytest.raises(StagingError, match="half is not staged here"):
        again.staging.release("q", 0, ["half"])
    assert again.staging.release("q", 0, ["../complete", "empty"])
    assert again.read() == [1, 2]
    assert sorted(path.parent for path in tmp_path.rglob("*.arrow")) == [tmp_path]


def test_who_was_taken_for_lost_releases_nothing_any_more(tmp_path: Path) -> None:
    first = Reading(tmp_path)
    first.stage("a", [1])
    again = Reading(tmp_path, 1)
    with pytest.raises(StagingError, match="a later generation of the job reads the split now"):
        first.staging.release("q", 0, ["a"])
    with pytest.raises(StagingError, match="a later generation of the job reads the split now"):
        Reading(tmp_path, 0)
    assert again.staging.release("q", 0, ["a"])
    assert again.read() == [1]
    first.staging.close()
    assert Reading(tmp_path, 2).read() == [1]


def test_who_stood_still_amid_a_release_does_not_write_over_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Reading(tmp_path)
    first.stage("a", [1])
    first.stage("b", [2])
    again = Reading(tmp_path, 1)
    assert again.release("b")
    looks, owners = [[(0, 0)]], KeptFiles._owners  # as it was when it looked first
    monkeypatch.setattr(KeptFiles, "_owners", lambda kept: looks.pop() if looks else owners(kept))
    with pytest.raises(StagingError, match="a later generation of the job reads the split now"):
        first.release("a")
    monkeypatch.undo()
    assert Reading(tmp_path, 2).read() == again.read() == [2]


def test_a_release_that_an_earlier_reader_finishes_late_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk was slow: it had looked whose the split is, and then another worker took the split over."""
    first = Reading(tmp_path)
    for attempt, rows in (("a", [1]), ("b", [2])):
        first.stage(attempt, rows)
    first.stage("nothing")
    link, later = os.link, list[Reading]()

    def link_late(*its: Any) -> None:
        if not later:
            later.append(Reading(tmp_path, 1))
        link(*its)

    with monkeypatch.context() as patch:
        patch.setattr("os.link", link_late)
        assert first.staging.release("q", 0, ["a", "nothing"])
    (again,) = later
    assert again.staging.release("p", 0, ["b"])
    assert not again.staging.release("q", 0, ["a", "nothing"])
    assert again.read() == Reading(tmp_path, 2).read() == [1, 2]


def test_who_releases_the_same_once_more_is_told_that_it_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Reading(tmp_path)
    first.stage("a", [1])
    first.stage("b", [2])
    link, later = os.link, list[Reading]()

    def link_late(*its: Any) -> None:
        if not later:
            later.append(Reading(tmp_path, 1))
        link(*its)

    with monkeypatch.context() as patch:
        patch.setattr("os.link", link_late)
        assert first.release("a")
    (again,) = later
    assert not again.release("a")
    assert again.staging.release("q", 1, ["b"])
    assert again.read() == Reading(tmp_path, 2).read() == [1, 2]


def test_who_takes_a_split_over_too_late_does_not_take_it_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Reading(tmp_path)
    replace, later, looks = files.replace_file, list[Reading](), [0]

    def replace_late(path: Path, content: bytes) -> None:
        if looks:
            looks.clear()
            later.append(Reading(tmp_path, 2))
        replace(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("dirigo.runtime.ingest.kept.replace_file", replace_late)
        with pytest.raises(StagingError, match="a later generation of the job reads the split now"):
            Reading(tmp_path, 1)
    (again,) = later
    again.stage("a", [1])
    assert again.release("a")
    assert again.read() == [1]


def test_a_file_that_is_removed_while_it_is_sealed_is_not_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Reading(tmp_path)
    first.staging.stage("a", [frame([1])])
    opened, later = Path.open, list[Reading]()

    def open_early(path: Path, mode: str = "r", *its: Any) -> Any:
        file = opened(path, mode, *its)
        if mode == "r+b" and not later:
            later.append(Reading(tmp_path, 1))
        return file

    monkeypatch.setattr(Path, "open", open_early)
    with pytest.raises(StagingError, match="a later generation of the job reads the split now"):
        first.staging.seal("a")


@pytest.mark.parametrize("suffix", [".covered", ".release"])
def test_a_split_is_taken_over_while_its_earlier_reader_removes_what_is_covered(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Reading(tmp_path)
    positions = []
    for number in range(4):
        first.staging.release("q", number, [first.stage(str(number), [number])])
        assert first.read() == [number]
        positions.append(first.split.position())
    first.forget(positions[0])
    read, waits = Path.read_bytes, [True]

    def read_late(path: Path) -> bytes:
        if path.suffix == suffix and waits:
            waits.clear()
            first.forget(positions[2])
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_late)
    again = Reading(tmp_path, 1, positions[2])
    assert not waits
    assert again.read() == [3]
    assert not again.staging.release("q", 3, [again.stage("again", [3])])


def test_a_split_is_taken_over_while_its_earlier_reader_drops_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Reading(tmp_path)
    first.stage("a", [1])
    first.stage("nothing")
    opened, waits = Path.open, [True]

    def open_late(path: Path, mode: str = "r", *its: Any) -> Any:
        if waits and mode == "rb":
            waits.clear()
            first.staging.drop(["a", "nothing"])
        return opened(path, mode, *its)

    monkeypatch.setattr(Path, "open", open_late)
    again = Reading(tmp_path, 1)
    assert not waits
    assert again.read() == []


def test_the_folder_of_a_job_that_is_over_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match="No such file or directory"):
        Reading(tmp_path / "gone" / "rows" / "s-0")
    assert not list(tmp_path.iterdir())


def test_a_file_that_another_reader_removed_is_not_sealed(tmp_path: Path) -> None:
    first = Reading(tmp_path)
    first.staging.stage("a", [frame([1])])
    Reading(tmp_path, 1)
    first.staging.stage("a", [frame([2])])
    with pytest.raises(StagingError, match="a later generation of the job reads the split now"):
        first.staging.seal("a")
    assert Reading(tmp_path, 2).staging.queued_bytes() == 0


def test_rows_are_on_disk_before_they_are_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    sync = os.fsync

    def noted(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr("os.fsync", noted)
    folder = tmp_path / "rows" / "s-0"
    Decisions(tmp_path / "rows" / "decisions")
    assert {tmp_path.name, "rows"} <= synced  # where folders have their names
    synced.clear()
    first = Reading(folder)
    assert "rows" in synced
    first.stage("a", [1])
    (file,) = folder.glob("*.arrow")
    assert {file.name, folder.name} <= synced
    synced.clear()
    first.staging.release("q", 0, ["a"])
    assert folder.name in synced
    assert any(name.startswith("..000000000001.release") for name in synced)


@pytest.mark.parametrize("what", ["seal", "release"])
@pytest.mark.parametrize("room_for", [0, 1])  # a file, and the folder
def test_on_a_full_disk_nothing_is_confirmed_and_the_next_try_works(
    tmp_path: Path, what: str, room_for: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Reading(tmp_path)
    first.stage("before", [1])
    room = [room_for]

    def no_room(_: int) -> None:
        if room[0]:
            room[0] -= 1
            return
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", no_room)
        work = first.stage if what == "seal" else first.release
        with pytest.raises(StagingError, match="No space left on device"):
            work("before" if what == "release" else "a")
    assert first.read() == []
    assert first.staging.release("q", 0, ["before"])
    assert first.read() == [1]
    assert Reading(tmp_path, 1).read() == [1]


class Killed(BaseException):
    """The process is gone."""


class Job:
    """One split of a job whose worker is killed, the snapshots of its controller, and Spark, which asks until it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps_left: int | None = None  # changes of the folder until the worker is killed
        self.generation = -1
        self.released: list[int] = []
        self.committed: tuple[Any, list[int]] = (None, [])
        self.batch = self.attempts = 0
        self.begin()

    def begin(self) -> None:
        """The next generation, from the last snapshot that was committed."""
        self.steps_left = None
        self.generation += 1
        self.reading = Reading(self.folder, self.generation, self.committed[0])
        self.read = list(self.committed[1])
        self.taken: tuple[Any, list[int]] | None = None

    def counted(self, step: Any) -> Any:
        def take(*arguments: Any, **options: Any) -> Any:
            if self.steps_left == 0:
                raise Killed
            if self.steps_left is not None:
                self.steps_left -= 1
            return step(*arguments, **options)

        return take

    def do(self, kind: str, how: Any) -> None:
        match kind:
            case "batch":
                self.bring(self.batch, how)
            case "again":
                if self.batch:
                    assert not self.bring(self.batch - 1, [[0]])
            case "read":
                piece = self.reading.split.read(how)
                self.read += [] if piece is None else piece.rows.column("n").to_pylist()
            case "snapshot":
                self.taken = (self.reading.split.position(), list(self.read))
            case "commit":
                if self.taken is not None:
                    self.committed, self.taken = self.taken, None
                    self.reading.forget(self.committed[0])
            case "kill":
                self.steps_left = how

    def bring(self, number: int, parts: list[list[int]]) -> bool:
        names = []
        for part in parts:
            self.attempts += 1
            names.append(self.reading.stage(str(self.attempts), part))
        return self.reading.staging.release("q", number, names)


PARTS = st.lists(st.integers(0, 3), max_size=3)  # how many rows
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), PARTS),
        st.tuples(st.just("read"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["snapshot", "commit", "again"]), st.none()),
        st.tuples(st.just("kill"), st.integers(0, 9)),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(operations=OPERATIONS)
def test_each_row_is_read_once_however_often_the_worker_is_killed(operations: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        job = Job(Path(place) / "staged")
        for name in ("os.link", "os.fsync"):
            patch.setattr(name, job.counted(getattr(os, name.removeprefix("os."))))
        for name in ("unlink", "replace"):
            patch.setattr(Path, name, job.counted(getattr(Path, name)))
        rows = 0
        for kind, how in operations:
            operation = how
            if kind == "batch":
                operation = [list(range(rows + sum(how[:part]), rows + sum(how[: part + 1]))) for part in range(len(how))]
                rows += sum(how)
            try:
                job.do(kind, operation)
            except Killed:
                job.begin()
                if kind == "batch":
                    job.do(kind, operation)  # whether it was released or not
            if kind == "batch":
                job.batch += 1
                job.released += [n for part in operation for n in part]
        job.begin()
        job.read += job.reading.read(2)
        assert job.read == job.released
        job.reading.forget(job.reading.split.position())
        assert names(job.folder, ".release") == 0


def test_a_decision_stands_whoever_asks_and_whatever_dies(tmp_path: Path) -> None:
    decisions = Decisions(tmp_path / "decided")
    first = decisions.decide("s", "q", 0, [(0, "a"), (1, "b")])
    assert first == Decision("s", "q", 0, ((0, "a"), (1, "b")))
    again = Decisions(tmp_path / "decided")
    assert again.all() == [first]
    assert again.decide("s", "q", 0, [(0, "other")]) == first
    second = again.decide("s", "q", 1, [(1, "c")])
    assert second is not None
    assert again.decide("s", "q", 0, [(0, "late")]) is None
    other = again.decide("t", "q", 0, [(0, "d")])
    assert len(Decisions(tmp_path / "decided").all()) == 2
    again.forget(second)
    assert Decisions(tmp_path / "decided").all() == [other]
    assert again.decide("s", "q", 1, [(0, "new")]) == Decision("s", "q", 1, ((0, "new"),))


def test_of_many_decisions_the_oldest_is_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dirigo.runtime.ingest.decisions._QUERIES_REMEMBERED", 6)
    decisions = Decisions(tmp_path)
    for query in range(6):
        decisions.decide("s", str(query), 0, [(0, "a")])
        time.sleep(0.01)  # for a file system whose clock is coarse
    decisions.decide("s", "0", 1, [(0, "b")])
    again = Decisions(tmp_path)
    for query in range(6, 11):
        again.decide("s", str(query), 0, [(0, "a")])
    assert [each.query for each in again.all()] == ["0", "6", "7", "8", "9", "10"]
    assert {each.query for each in Decisions(tmp_path).all()} == {"0", "6", "7", "8", "9", "10"}
