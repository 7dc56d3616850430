"""Rows that are brought a second time, to another worker: all of them, also those that did not fit into memory."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pytest

from dirigo.runtime.control import AttemptRef, SourcePlaces, SplitPlace
from dirigo.runtime.errors import ControlError
from dirigo.runtime.ingest.pusher import MovedError, PushError
from dirigo.spark.failures import is_spark_gone
from dirigo.spark.input import bringing
from dirigo.spark.input.bringing import Bringing, places_of


def batch(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array([number], pa.int64())})


def places(run: str, *, is_kept: bool = True, is_there: bool = True) -> SourcePlaces:
    split = SplitPlace(0, 0, 1, "tcp://127.0.0.1:1")
    return SourcePlaces("j~1", "s", b"", (split,) if is_there else (), run, is_kept)


class World:
    """Workers that fail so often, and the controller that says where the job is."""

    def __init__(self, *failures: PushError) -> None:
        self.failures = list(failures)
        self.answers: list[SourcePlaces] = []
        self.brought: list[list[int]] = []

    def connect(self) -> World:
        return self

    def source_places(self, job: str, source: str | None) -> SourcePlaces:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def close(self) -> None:
        """Nothing is open."""

    def pusher(self, *_: object, **__: object) -> World:
        self.brought.append([])
        return self

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        """Nothing is kept."""

    def push(self, rows: pa.RecordBatch) -> None:
        self.brought[-1] += rows["n"].to_pylist()
        if self.failures and len(self.brought[-1]) == 3 + len(self.brought):
            raise self.failures.pop(0)

    def finish(self, *_: object) -> AttemptRef:
        return AttemptRef(0, 1, 0, "a", 10)

    newest_ms = oldest_ms = None


@pytest.mark.parametrize("memory_bytes", [0, 16, 1 << 20])
def test_what_was_brought_before_a_loss_is_brought_again(
    memory_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(MovedError("gone"), PushError("silent"))
    world.answers = [places("2", is_there=False), places("2"), places("3")]
    monkeypatch.setattr(bringing, "Pusher", world.pusher)
    monkeypatch.setattr(bringing, "_MEMORY_BYTES", memory_bytes)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ref: Any = Bringing(places("1"), None, world.connect).bring(0, map(batch, range(10))).ref  # type: ignore[arg-type]
    assert ref.rows == 10
    assert world.brought == [list(range(4)), list(range(5)), list(range(10))]
    assert not list(tmp_path.iterdir())


def test_a_long_task_may_meet_a_second_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own time to come back."""
    world = World(MovedError("gone"), MovedError("gone again"))
    world.answers = [places("2"), places("3")]
    monkeypatch.setattr(bringing, "Pusher", world.pusher)
    monkeypatch.setattr(bringing, "COMES_BACK_S", 0.5)

    def slowly(number: int) -> pa.RecordBatch:
        if number == 4:  # behind the first loss
            time.sleep(0.5)
        return batch(number)

    ref: Any = Bringing(places("1"), None, world.connect).bring(0, map(slowly, range(10))).ref  # type: ignore[arg-type]
    assert ref.rows == 10
    assert len(world.brought) == 3


def test_an_error_that_is_none_of_a_loss_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    for its in (places("1"), places("1", is_kept=False)):
        world = World(PushError("the disk is full"))
        world.answers = [its]
        monkeypatch.setattr(bringing, "Pusher", world.pusher)
        with pytest.raises(PushError, match="the disk is full"):
            Bringing(its, None, world.connect).bring(0, map(batch, range(10)))  # type: ignore[arg-type]
        assert len(world.brought) == 1


def test_the_wait_for_a_job_has_a_bound() -> None:
    world = World()
    world.answers = [places("1", is_there=False)]
    with pytest.raises(ControlError, match="job 'j' has not come back within 0 s"):
        places_of(world.connect, "j", None, 0.2)


def test_it_is_told_when_spark_is_gone() -> None:
    assert is_spark_gone(ConnectionRefusedError(111, "Connection refused"))
    assert is_spark_gone(RuntimeError("Error while sending or receiving."))
    assert not is_spark_gone(PushError("A worker cannot stage rows: No space left on device."))
