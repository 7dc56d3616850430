"""The results of jobs with snapshots at the server: what readers see over commits, rollbacks and crashes."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import zmq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dirigo.runtime.control import GetLog, Manifest, ReadLog
from dirigo.runtime.results.log import LogError
from dirigo.runtime.results.poster import Posted
from dirigo.runtime.results.server import LogServer
from dirigo.runtime.transport.authenticator import Refusals
from dirigo.runtime.transport.keys import KeyPair

SCHEMA = pa.schema([("n", pa.int64())])
SINKS = {"a": 2, "b": 1}
CHANNELS = [("a", 0), ("a", 1), ("b", 0)]
_KEYS = KeyPair.new()


def rows(*numbers: int) -> bytes:
    frame: bytes = pa.record_batch({"n": pa.array(numbers, pa.int64())}, schema=SCHEMA).serialize().to_pybytes()
    return frame


class Served:
    """A server whose threads the test plays."""

    def __init__(self, folder: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.cuts: dict[int, dict[str, int]] = {}
        self.ended: list[str | None] = []
        self.server = LogServer(
            context,
            _KEYS,
            "door",
            "127.0.0.1",
            folder,
            Refusals("results"),
            lambda _, error: self.ended.append(error),
            lambda _: None,
            on_cut=lambda _, snapshot, cuts: self.cuts.update({snapshot: cuts}),
            retain_bytes=1 << 30,
            retain_s=1e6,
        )
        self.server.set_members([(0, 0)])
        self._number = 0

    def begin(self, job: str) -> None:
        schema = SCHEMA.serialize().to_pybytes()
        sinks = {sink: (count, schema) for sink, count in SINKS.items()}
        self.server.add(job, "job", Manifest(1, 1, sinks, {}), holds_back=True)

    def post(self, run: str, channel: tuple[str, int], frame: bytes = b"", count: int = -1, snapshot: int = 0) -> None:
        self._number += 1
        self.server._append(Posted(0, 0, self._number, run, *channel, count, snapshot), frame)

    def sync(self, job: str) -> None:
        self.server._syncing._look_after(job)

    def visible(self, job: str, sink: str) -> list[int]:
        info = self.server._info(GetLog(job, sink))
        frames: list[bytes] = []
        while len(frames) < info.next:
            frames += self.server._read(ReadLog(job, sink, len(frames), 1 << 20, 0.0))
        return [n for frame in frames for n in pa.ipc.read_record_batch(pa.py_buffer(frame), SCHEMA).column("n").to_pylist()]

    def kill(self) -> None:
        """The process is gone: nothing is written any more, and the system closes what it had open."""
        for shelf in self.server._shelves.values():
            for log in shelf.logs.values():
                log.close()
        self.server.socket.close(0)
        self.server._shown.close()
        os.close(self.server._folder_lock)


@pytest.fixture(scope="module")
def context() -> Any:
    with zmq.Context() as made:
        yield made


@pytest.fixture
def served(tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]) -> Any:
    made = Served(tmp_path, context)
    made.begin("job~1")
    yield made
    made.kill()


@dataclass
class Model:
    """What the job has done, and what readers must see of it."""

    posted: dict[tuple[str, int], list[int | str]] = field(default_factory=lambda: {each: [] for each in CHANNELS})
    covered: dict[tuple[str, int], list[int | str]] = field(default_factory=lambda: {each: [] for each in CHANNELS})
    ended: set[tuple[str, int]] = field(default_factory=set)
    ended_then: set[tuple[str, int]] = field(default_factory=set)  # with the committed snapshot
    ordered: int = 0
    committed: int = 0
    cuts: dict[str, int] | None = None
    generation: int = 0
    rows: int = 0

    @property
    def run(self) -> str:
        return "job~1" if not self.generation else f"job~1.{self.generation}"

    def commit(self, snapshot: int, cuts: dict[str, int]) -> None:
        self.committed, self.cuts = snapshot, cuts
        for channel, items in self.posted.items():
            marker = f"cut {snapshot}"
            place = items.index(marker) if marker in items else len(items)
            if marker not in items:
                assert channel in self.ended
                self.ended_then.add(channel)
            self.covered[channel] += [item for item in items[:place] if isinstance(item, int)]
            del items[: place + 1]

    def roll_back(self) -> dict[str, set[int]]:
        self.posted = {each: [] for each in CHANNELS}
        self.ended = set(self.ended_then)
        self.generation += 1
        return {sink: {number for name, number in self.ended if name == sink} for sink in SINKS}


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.sampled_from(CHANNELS)),
        st.tuples(st.just("rows"), st.sampled_from(CHANNELS)),
        st.tuples(st.just("cut"), st.sampled_from(CHANNELS)),
        st.tuples(st.sampled_from(["cut all", "snapshot", "snapshot", "snapshot, not shown"]), st.none()),
        st.tuples(st.just("end"), st.sampled_from(CHANNELS)),
        st.tuples(st.sampled_from(["order", "sync", "commit", "commit and sync", "roll back", "kill"]), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=50, deadline=None)
@example(operations=[("order", None), ("cut", ("a", 0)), ("rows", ("a", 0))], outcome="finished")  # behind a cut at the end
@given(operations=OPERATIONS, outcome=st.sampled_from(["finished", "failed", "killed"]))
def test_readers_see_each_row_once_and_nothing_that_is_taken_back(
    operations: list[tuple[str, Any]], outcome: str, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        served = Served(Path(place), context)
        served.begin("job~1")
        model = Model()
        seen: dict[str, list[int]] = {sink: [] for sink in SINKS}

        def cut(channel: tuple[str, int]) -> None:
            has_come = channel in model.ended or f"cut {model.ordered}" in model.posted[channel]
            if model.ordered > model.committed and not has_come:
                model.posted[channel].append(f"cut {model.ordered}")
                served.post(model.run, channel, count=0, snapshot=model.ordered)

        def commit() -> None:
            found = {number: cuts for number, cuts in served.cuts.items() if number > model.committed}
            all_ended = len(model.ended) == len(CHANNELS) and served.server.has_ended("job~1")
            if found or all_ended:
                number = max(found, default=model.ordered + 1)
                cuts = served.server.cuts("job~1", number)
                assert cuts == found.get(number, cuts)
                assert cuts is not None
                model.ordered = max(model.ordered, number)
                model.commit(number, cuts)
                served.server.commit("job~1", number)

        for kind, channel in operations:
            match kind:
                case "rows" if channel not in model.ended:
                    model.rows += 1
                    model.posted[channel].append(model.rows)
                    served.post(model.run, channel, rows(model.rows), 1)
                case "cut":
                    cut(channel)
                case "cut all":
                    for each in CHANNELS:
                        cut(each)
                case "snapshot" | "snapshot, not shown":
                    model.ordered += 1
                    for each in CHANNELS:
                        cut(each)
                    served.sync("job~1")
                    commit()
                    if kind == "snapshot":
                        served.sync("job~1")
                case "end" if channel not in model.ended:
                    model.ended.add(channel)
                    served.post(model.run, channel)
                case "order":
                    model.ordered += 1
                case "sync":
                    served.sync("job~1")
                case "commit":
                    commit()
                case "commit and sync":
                    commit()
                    served.sync("job~1")
                case "roll back":
                    late = model.run
                    ended = model.roll_back()
                    served.server.roll_back("job~1", model.cuts, model.run, ended)
                    served.cuts.clear()
                    for each in CHANNELS:
                        served.post(late, each, rows(-1), 1)  # of an earlier generation
                case "kill":
                    served.kill()
                    served = Served(Path(place), context)
                    ended = model.roll_back()
                    served.server.resume("job~1", model.cuts, model.run, ended)
            assert len(model.ended) == len(CHANNELS) or not served.server.has_ended("job~1")
            check(served, model, seen, exactly=kind in ("kill", "snapshot", "commit and sync"), job="job~1")
        assert not [error for error in served.ended if error is not None]
        if outcome == "finished":
            for each in CHANNELS:
                if each not in model.ended:
                    model.ended.add(each)
                    served.post(model.run, each)
            for each, items in model.posted.items():
                model.covered[each] += [item for item in items if isinstance(item, int)]
            served.sync("job~1")
            assert served.server.has_ended("job~1")
            served.server.close_job("job~1", None)
        elif outcome == "failed":
            served.server.close_job("job~1", "a bug")
        if outcome != "killed":
            served.sync("job~1")
            check(served, model, seen, exactly=True, job="job~1")
        served.kill()
        again = Served(Path(place), context)
        again.server._thread = again.server._sync_thread = Idle()  # type: ignore[assignment]
        again.server.start()
        check(again, model, seen, exactly=outcome != "killed", job="job~1")
        for sink in SINKS if outcome != "killed" else ():
            assert again.server._info(GetLog("job~1", sink)).ended == (outcome == "finished")
        again.kill()


class Idle:
    """A thread that does nothing."""

    def start(self) -> None:
        pass


def check(served: Served, model: Model, seen: dict[str, list[int]], *, exactly: bool, job: str) -> None:
    for sink in SINKS:
        got = served.visible(job, sink)
        assert got[: len(seen[sink])] == seen[sink]  # an offset means the same for ever
        assert len(set(got)) == len(got)
        seen[sink] = got
        for channel, covered in model.covered.items():
            if channel[0] == sink:
                its = [n for n in got if n in set(covered)]
                assert its == covered[: len(its)]
                assert not exactly or len(its) == len(covered)
        assert set(got) <= {n for channel, covered in model.covered.items() if channel[0] == sink for n in covered}


def everywhere(served: Served, snapshot: int, run: str = "job~1") -> None:
    for channel in CHANNELS:
        served.post(run, channel, count=0, snapshot=snapshot)


def test_a_cut_on_a_full_disk_fails_its_job_and_what_was_committed_stays(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.post("job~1", ("a", 0), rows(1), 1)
    everywhere(served, 1)
    served.sync("job~1")
    served.server.commit("job~1", 1)
    served.sync("job~1")
    served.post("job~1", ("a", 0), rows(2), 1)
    everywhere(served, 2)

    def no_room(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", no_room)
        served.sync("job~1")
    assert list(served.cuts) == [1]
    (error,) = served.ended
    assert error is not None
    assert "the results cannot be kept" in error
    assert "no space left on device" in error
    served.sync("job~1")
    assert served.visible("job~1", "a") == [1]
    assert served.server._info(GetLog("job~1", "a")).failed == error


def test_what_was_committed_becomes_visible_although_the_job_fails_right_after(served: Served) -> None:
    served.post("job~1", ("a", 0), rows(1), 1)
    everywhere(served, 1)
    served.sync("job~1")
    served.server.commit("job~1", 1)
    served.server.close_job("job~1", "a bug")
    info = served.server._info(GetLog("job~1", "a"))
    assert (info.next, info.failed) == (0, None)  # a reader waits for it
    assert not served.server._is_over(ReadLog("job~1", "a", 0, 1, 1.0))
    served.sync("job~1")
    info = served.server._info(GetLog("job~1", "a"))
    assert (info.next, info.failed) == (1, "a bug")


@pytest.mark.parametrize("cuts", [None, {"a": 0, "b": 0}, {"a": 9, "b": 0}, {"a": 1}])
def test_a_job_does_not_go_back_behind_what_readers_saw(served: Served, cuts: dict[str, int] | None) -> None:
    served.post("job~1", ("a", 0), rows(1), 1)
    everywhere(served, 1)
    served.sync("job~1")
    served.server.commit("job~1", 1)
    with pytest.raises(LogError, match=r"The results of job 'job~1', sink '[ab]', cannot go back to offset"):
        served.server.roll_back("job~1", cuts, "job~1.1", {})
    served.sync("job~1")
    assert served.visible("job~1", "a") == [1]


def test_a_generation_that_begins_has_not_ended(served: Served) -> None:
    for round_number in (1, 2):
        run = "job~1" if round_number == 1 else "job~1.1"
        for channel in CHANNELS:
            served.post(run, channel)
        assert not served.server.has_ended("job~1")
        served.sync("job~1")
        assert served.server.has_ended("job~1")
        assert served.server.cuts("job~1", 7) == {"a": 0, "b": 0}
        assert served.ended == [None] * round_number
        served.server.roll_back("job~1", None, f"job~1.{round_number}", {})
        served.sync("job~1")
        assert not served.server.has_ended("job~1")
        assert served.server.cuts("job~1", 7) is None


def test_what_readers_saw_of_a_job_that_went_on_stays_when_its_service_is_killed_again(
    tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    first = Served(tmp_path, context)
    first.begin("job~1")
    first.post("job~1", ("a", 0), rows(1), 1)
    everywhere(first, 1)
    first.sync("job~1")
    first.kill()  # its controller has committed the snapshot, and nobody was told
    second = Served(tmp_path, context)
    second.server.resume("job~1", first.cuts[1], "job~1.1", {})
    assert second.visible("job~1", "a") == [1]
    second.kill()
    third = Served(tmp_path, context)
    third.server._thread = third.server._sync_thread = Idle()  # type: ignore[assignment]
    third.server.start()
    assert third.visible("job~1", "a") == [1]
    third.kill()


def test_a_marker_that_cannot_be_is_refused(served: Served) -> None:
    everywhere(served, 2)
    served.post("job~1", ("a", 0), count=0, snapshot=2)
    (error,) = served.ended
    assert error is not None
    assert "snapshot 2 is not behind the last one of partition 0" in error


def test_a_job_without_snapshots_takes_no_markers(served: Served) -> None:
    sinks = {"a": (1, SCHEMA.serialize().to_pybytes())}
    served.server.add("plain~2", "plain", Manifest(1, 1, sinks, {}))
    served.post("plain~2", ("a", 0), rows(1), 1)
    assert served.visible("plain~2", "a") == [1]
    served.post("plain~2", ("a", 0), count=0, snapshot=1)
    (error,) = served.ended
    assert error is not None
    assert "the job has no snapshots" in error


def test_only_a_job_that_was_running_is_gone_on_with(served: Served, tmp_path: Path) -> None:
    served.server.close_job("job~1", "it was cancelled")
    served.sync("job~1")
    for job in ("job~1", "none~2"):
        with pytest.raises(LogError, match=r"no results of job '.*' that can be gone on with; submit it again"):
            served.server.resume(job, None, f"{job}.1", {})
        with pytest.raises(LogError, match=r"no results of job '.*' that can be gone on with; submit it again"):
            served.server.roll_back(job, None, f"{job}.1", {})
    note = msgspec.json.decode((tmp_path / "job~1" / "~job.json").read_bytes())
    assert note["failed"] == "it was cancelled"


def test_a_job_whose_snapshot_does_not_fit_its_logs_is_not_gone_on_with(
    tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    first = Served(tmp_path, context)
    first.begin("job~1")
    first.kill()
    again = Served(tmp_path, context)
    with pytest.raises(LogError, match="cannot be resumed \\(sink 'b' is not in the snapshot\\)"):
        again.server.resume("job~1", {"a": 0}, "job~1.1", {})
    again.server._thread = again.server._sync_thread = Idle()  # type: ignore[assignment]
    again.server.start()
    assert again.server._info(GetLog("job~1", "a")).failed == "the cluster ended before the job did"
    again.kill()
