"""A log that holds back: what readers see, what is taken back, and what a crash leaves."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.runtime.results.log import LogError, ResultLog, StoredLog, manifest
from dirigo.runtime.results.log.files import open_file
from runtime.log.logs import SCHEMA, crash, frame_of, read_all


def begin(folder: Path, **limits: Any) -> ResultLog:
    return ResultLog(folder, SCHEMA, holds_back=True, **limits)


def show(log: ResultLog, to: int) -> None:
    log.sync()
    manifest.mark_visible(log.folder, to)
    log.show(to)


def frames(*numbers: int) -> list[bytes]:
    return [frame_of([number]) for number in numbers]


def test_readers_see_what_was_shown_and_nothing_else(tmp_path: Path) -> None:
    log = begin(tmp_path)
    for frame in frames(0, 1, 2):
        log.append(frame, 1)
    assert (log.visible, log.next) == (0, 3)
    assert log.read(0, 1 << 20) == []
    show(log, 2)
    for reader in (log, StoredLog(tmp_path)):
        assert read_all(reader, 0, 1 << 20) == frames(0, 1)
        assert read_all(reader, 1, 1) == frames(1)
    assert StoredLog(tmp_path).next == 2


def test_what_is_visible_is_not_taken_back(tmp_path: Path) -> None:
    log = begin(tmp_path)
    for frame in frames(0, 1, 2):
        log.append(frame, 1)
    show(log, 2)
    for offset in (1, 4):
        with pytest.raises(
            LogError, match=rf"cannot go back to offset {offset}: readers see what lies before 2, and it ends"
        ):
            log.truncate(offset)
    assert (log.visible, log.next) == (2, 3)


def test_a_log_ends_where_it_is_visible(tmp_path: Path) -> None:
    log = begin(tmp_path)
    for frame in frames(0, 1, 2):
        log.append(frame, 1)
    show(log, 2)
    log.truncate(2)
    log.end()
    crash(log)
    again = ResultLog(tmp_path)
    assert (again.visible, again.next, again.ended) == (2, 2, True)
    assert read_all(again, 0, 1 << 20) == frames(0, 1)
    with pytest.raises(LogError, match="shows what lies before offset 2, and the snapshot was at 1"):
        ResultLog(tmp_path, cut=1)


def test_retention_leaves_what_nobody_could_read_yet(tmp_path: Path) -> None:
    size = len(frame_of([0])) + 36
    log = begin(tmp_path, retain_bytes=4 * size, segment_bytes=size, retain_s=1e9)
    for number in range(20):
        log.append(frame_of([number]), 1)
    assert (log.first, log.next) == (0, 20)
    show(log, 10)
    log.expire()
    assert log.first > 0
    assert read_all(log, log.first, 1 << 20) == frames(*range(log.first, 10))
    first = log.first
    log.truncate(10)
    log.expire()
    assert log.first == first  # what is taken back does not count
    show(log, 10)


def test_a_cut_behind_what_was_noted_as_visible_is_kept(tmp_path: Path) -> None:
    """The service was killed after a snapshot was committed, and before the log noted it."""
    log = begin(tmp_path)
    for frame in frames(0, 1, 2):
        log.append(frame, 1)
    log.sync()
    crash(log)
    again = ResultLog(tmp_path, cut=2)
    assert read_all(again, 0, 1 << 20) == frames(0, 1)
    assert again.append(frame_of([7]), 1) == 2
    crash(again)
    assert ResultLog(tmp_path).next == 0  # nobody noted it, and nobody goes on


def test_rows_of_a_snapshot_that_are_lost_are_told(tmp_path: Path) -> None:
    log = begin(tmp_path)
    for frame in frames(0, 1, 2):
        log.append(frame, 1)
    log.sync()
    crash(log)
    (file,) = tmp_path.glob("*.frames")
    os.truncate(file, file.stat().st_size - 5)
    again = ResultLog(tmp_path, cut=3)
    assert again.append(frame_of([3]), 1) == 3
    show(again, 4)
    assert again.read(0, 1 << 20) == frames(0, 1)
    with pytest.raises(LogError, match="Record 2 of the results"):
        again.read(2, 1 << 20)
    assert again.read(3, 1 << 20) == frames(3)


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_crash_amid_taking_back_leaves_what_the_snapshot_covers(
    tmp_path: Path, steps: int, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(frame_of([0])) + 36
    log = begin(tmp_path, segment_bytes=2 * size)
    for number in range(9):
        log.append(frame_of([number]), 1)
    show(log, 3)
    left = [steps]

    def counted(step: Any) -> Any:
        def take(*arguments: Any, **options: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return step(*arguments, **options)

        return take

    with monkeypatch.context() as patch:
        patch.setattr("os.ftruncate", counted(os.ftruncate))
        patch.setattr("pathlib.Path.unlink", counted(Path.unlink))
        patch.setattr("dirigo.runtime.results.log.files.open_file", counted(open_file))
        try:
            log.truncate(4)
        except Killed:
            pass
        else:
            assert steps >= 5
    crash(log)
    again = ResultLog(tmp_path, cut=4 if goes_on else None, segment_bytes=2 * size)
    kept = 4 if goes_on else 3
    assert (again.visible, again.next) == (kept, kept)
    assert read_all(again, 0, 1 << 20) == frames(*range(kept))
    assert [again.append(frame_of([number]), 1) for number in (50, 51, 52)] == [kept, kept + 1, kept + 2]
    show(again, kept + 3)
    assert read_all(StoredLog(tmp_path), 0, 1 << 20) == [*frames(*range(kept)), *frames(50, 51, 52)]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("show"), st.floats(0, 1)),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
        st.tuples(st.just("crash"), st.none() | st.floats(0, 1)),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(OPERATIONS, st.integers(1, 4))
def test_a_log_is_as_its_model_after_anything(operations: list[tuple[str, Any]], per_segment: int) -> None:
    size = len(frame_of([0])) + 36
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "log"
        log = begin(folder, segment_bytes=per_segment * size)
        model: list[int] = []
        visible = count = 0
        for kind, how in operations:
            cut = visible if how is None or kind == "append" else visible + round(how * (len(model) - visible))
            if kind == "append":
                for _ in range(how):
                    assert log.append(frame_of([count]), 1) == len(model)
                    model.append(count)
                    count += 1
            elif kind == "show":
                visible = cut
                show(log, visible)
            elif kind == "truncate":
                log.truncate(cut)
                del model[cut:]
            else:
                crash(log)
                log = ResultLog(folder, cut=None if how is None else cut, segment_bytes=per_segment * size)
                del model[cut:]
                visible = cut
                manifest.mark_visible(folder, visible)
            assert (log.visible, log.next, log.rows) == (visible, len(model), len(model))
            assert read_all(log, 0, 3 * size) == frames(*model[:visible])
        assert read_all(StoredLog(folder), 0, 1 << 20) == frames(*model[:visible])
        log.close()
