"""The results log against a plain list: what was appended is read, from any offset, in any pieces, after any crash."""

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dirigo.runtime.results.log import LogError, ResultLog, StoredLog
from dirigo.runtime.results.log.record import HEADER_BYTES
from runtime.log.logs import SCHEMA, crash, frame_of, read_all

DAY_S = 86_400.0


def numbers_in(frames: Sequence[bytes], schema: pa.Schema) -> list[int]:
    return [n for frame in frames for n in pa.ipc.read_record_batch(frame, schema).column("number").to_pylist()]


# --- plain cases -----------------------------------------------------------------------------------------------------------


def test_batches_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = ResultLog(tmp_path / "log", SCHEMA)
    assert [log.append(frame_of(range(n)), n) for n in (3, 0, 5)] == [0, 1, 2]
    assert (log.first, log.next, log.ended, log.rows) == (0, 3, False, 8)
    assert numbers_in(log.read(0, 1 << 20), log.schema) == [0, 1, 2, 0, 1, 2, 3, 4]
    assert log.read(3, 1 << 20) == []
    log.close()


def test_buffers_and_views_are_frames_too(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA)
    frame = frame_of([1, 2])
    log.append(memoryview(frame), 2)
    log.append(memoryview(pa.py_buffer(frame)), 2)
    assert log.read(0, 1 << 20) == [frame, frame]
    log.close()


def test_a_frame_larger_than_a_segment_and_than_what_may_be_read_is_read_alone(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA, segment_bytes=100)
    frames = [frame_of([n] * 1000) for n in range(3)]
    for frame in frames:
        log.append(frame, 1000)
    assert log.read(0, 1) == frames[:1]
    assert log.read(1, 1 << 20) == frames[1:]
    log.close()


def test_the_end_survives_and_nothing_follows_it(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA)
    log.append(b"frame", 1)
    log.end()
    log.end()
    with pytest.raises(LogError, match="has ended; begin another one"):
        log.append(b"more", 1)
    crash(log)
    again = ResultLog(tmp_path)
    assert again.ended
    assert StoredLog(tmp_path).ended
    assert again.read(0, 1000) == [b"frame"]
    with pytest.raises(LogError, match="has ended"):
        again.append(b"more", 1)
    again.close()


def test_the_schema_and_the_id_are_stored(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("ms"), nullable=False), pa.field("tags", pa.list_(pa.string()))])
    log = ResultLog(tmp_path, schema)
    crash(log)
    for again in (ResultLog(tmp_path), ResultLog(tmp_path, schema)):
        assert again.schema.equals(schema)
        assert again.id == log.id
        again.close()
    with pytest.raises(LogError, match="has other columns"):
        ResultLog(tmp_path, SCHEMA)


def test_two_logs_have_two_ids(tmp_path: Path) -> None:
    logs = [ResultLog(tmp_path / name, SCHEMA) for name in "ab"]
    assert logs[0].id != logs[1].id
    for log in logs:
        log.close()


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.dictionary(pa.int8(), pa.string()))])
def test_dictionaries_are_refused_since_their_values_would_be_lost(tmp_path: Path, kind: pa.DataType) -> None:
    with pytest.raises(LogError, match=r"Column 'word' has the type .*dictionary.*; cast it"):
        ResultLog(tmp_path, pa.schema([("word", kind)]))
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="There is no results log in"):
        ResultLog(tmp_path)
    with pytest.raises(LogError, match="There is no results log in"):
        StoredLog(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(LogError, match="choose another folder"):
        ResultLog(tmp_path / "file" / "log", SCHEMA)
    (tmp_path / "log.json").write_text("{}")
    with pytest.raises(LogError, match="is damaged"):
        ResultLog(tmp_path)
    (tmp_path / "log.json").write_text('{"version": 9, "id": "x", "schema": ""}')
    with pytest.raises(LogError, match="has format 9"):
        ResultLog(tmp_path)


def test_a_closed_log_refuses(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA)
    log.close()
    log.close()
    with pytest.raises(LogError, match="is closed"):
        log.append(b"frame", 1)


def test_limits_that_keep_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="at least 1 byte"):
        ResultLog(tmp_path, SCHEMA, retain_bytes=0)
    with pytest.raises(LogError, match="more than 0 s"):
        ResultLog(tmp_path, SCHEMA, retain_s=0)


# --- crashes ---------------------------------------------------------------------------------------------------------------


def test_a_tail_torn_at_any_byte_is_cut_off(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA, segment_bytes=600)
    frames = [frame_of(range(n)) for n in range(5)]
    for n, frame in enumerate(frames):
        log.append(frame, n)
    crash(log)
    last = max(tmp_path.glob("*.frames"))
    whole = last.read_bytes()
    begin = whole.index(frames[-1]) - HEADER_BYTES
    assert begin > 0, "the last segment has frames before the last one"
    for end in range(begin, len(whole) + 1):
        last.write_bytes(whole[:end])
        is_whole = end == len(whole)
        kept = frames if is_whole else frames[:-1]
        assert read_all(StoredLog(tmp_path), 0, 500) == kept  # and it changes nothing
        assert last.stat().st_size == end
        again = ResultLog(tmp_path, segment_bytes=600)
        assert again.cut_bytes == (0 if is_whole else end - begin)
        assert again.next == len(kept)
        assert again.append(b"next", 1) == len(kept)
        assert read_all(again, 0, 500) == [*kept, b"next"]
        crash(again)
        for extra in tmp_path.glob("*.frames"):
            if extra > last:
                extra.unlink()


@pytest.mark.parametrize("garbage", [b"\0" * 100, b"\xff" * 100, b"\0" * (HEADER_BYTES - 1)])
def test_what_follows_the_last_frame_and_is_none_is_cut_off(tmp_path: Path, garbage: bytes) -> None:
    log = ResultLog(tmp_path, SCHEMA)
    log.append(b"frame", 1)
    crash(log)
    (file,) = tmp_path.glob("*.frames")
    file.write_bytes(file.read_bytes() + garbage)
    again = ResultLog(tmp_path)
    assert again.cut_bytes == len(garbage)
    assert file.stat().st_size == again.size
    assert read_all(again, 0, 100) == [b"frame"]
    again.close()


def test_all_but_the_last_two_segments_are_synced_and_at_the_end_all(tmp_path: Path) -> None:
    synced: list[int] = []

    def note(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)

    log = ResultLog(tmp_path / "log", SCHEMA, segment_bytes=1)

    def inodes() -> list[int]:
        return [file.stat().st_ino for file in sorted((tmp_path / "log").glob("*.frames"))]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fdatasync", note)
        for number in range(5):
            log.append(b"frame", 1)
            assert set(synced) == set(inodes()[: max(0, number - 1)])
        synced.clear()
        taken = log.take_unsynced()
        assert taken is not None
        log.append(b"frame", 1)  # the log goes on meanwhile
        taken.sync()
        assert set(inodes()[3:5]) <= set(synced)
        assert log.unsynced_bytes > 0
        synced.clear()
        log.end()
        assert inodes()[-1] in synced
        assert log.take_unsynced() is None
    log.close()


def test_a_disk_that_fails_to_sync_is_said(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA)
    log.append(b"frame", 1)

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fdatasync", broken)
        with pytest.raises(LogError, match=r"cannot be written \(input/output error\)"):
            log.end()
    assert not log.ended
    log.close()


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    log = ResultLog(tmp_path / "job" / "sink", SCHEMA)
    log.append(b"frame", 1)
    log.end()
    log.close()
    for place in (tmp_path / "job").rglob("*"):
        assert place.stat().st_mode & 0o077 == 0, place


def test_a_full_disk_loses_only_what_did_not_fit(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA)
    log.append(b"first", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.pwritev", half_written)
        patch.setattr("os.pwrite", no_room)
        with pytest.raises(LogError, match=r"cannot be written \(no space left on device\); make room"):
            log.append(b"second", 1)
    assert log.append(b"third", 1) == 1
    assert read_all(log, 0, 100) == [b"first", b"third"]
    crash(log)
    again = ResultLog(tmp_path)
    assert (again.cut_bytes, read_all(again, 0, 100)) == (0, [b"first", b"third"])
    again.close()


def test_a_frame_that_the_system_takes_in_two_parts_is_whole(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.pwritev", half_written)
        log.append(b"a frame of some length", 1)
    log.append(b"another", 1)
    crash(log)
    assert read_all(StoredLog(tmp_path), 0, 100) == [b"a frame of some length", b"another"]


def half_written(descriptor: int, buffers: Sequence[bytes], position: int) -> int:
    whole = b"".join(buffers)
    return os.pwrite(descriptor, whole[: len(whole) // 2], position)


def no_room(descriptor: int, data: bytes, position: int) -> int:
    raise OSError(28, "No space left on device")


# --- retention -------------------------------------------------------------------------------------------------------------


def test_retention_by_bytes_drops_whole_segments(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA, segment_bytes=1000, retain_bytes=5000)
    for n in range(100):
        log.append(b"%03d" % n + b"." * 300, 1)
        assert log.size <= 5000
    assert log.size > 3000
    assert log.size == sum(file.stat().st_size for file in tmp_path.glob("*.frames"))
    assert read_all(log, log.first, 700) == [b"%03d" % n + b"." * 300 for n in range(log.first, 100)]
    with pytest.raises(LogError, match=rf"Offset {log.first - 1} .* the oldest that is left is {log.first}"):
        log.read(log.first - 1, 100)
    with pytest.raises(LogError, match=r"Offset 0 .* was removed by retention"):
        StoredLog(tmp_path).read(0, 100)
    crash(log)
    smaller = ResultLog(tmp_path, segment_bytes=1000, retain_bytes=2500)
    assert log.first < smaller.first < smaller.next == 100
    assert smaller.size <= 2500
    smaller.close()


def test_a_small_log_retains_most_of_what_it_may(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA, retain_bytes=100_000)  # far less than the usual segment
    for n in range(1_000):
        log.append(b"." * 500, 1)
        assert log.size <= 100_000
        assert log.size > 80_000 or n < 200
    log.close()


def test_retention_by_age_also_when_nothing_comes(tmp_path: Path) -> None:
    now = 1_000.0
    log = ResultLog(tmp_path, SCHEMA, segment_bytes=1, retain_s=60, clock=lambda: now)
    for _ in range(3):
        log.append(b"frame", 1)
        now += 30
    assert log.first == 0  # the oldest is 60 s or younger when the last came
    now += 31
    log.expire()
    assert log.first == 2  # the one that is written stays
    crash(log)
    now += DAY_S
    again = ResultLog(tmp_path, segment_bytes=1, retain_s=60, clock=lambda: now)
    assert (again.first, again.next) == (2, 3)
    again.append(b"frame", 1)
    assert again.first == 3
    again.close()


def test_a_reader_whose_segment_vanishes_is_told(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, SCHEMA, segment_bytes=1, retain_bytes=100)
    log.append(b"." * 50, 1)
    early = StoredLog(tmp_path)
    log.append(b"." * 50, 1)
    assert log.first == 1
    with pytest.raises(LogError, match=r"cannot be read .*; start from a later offset"):
        early.read(0, 100)
    log.close()


# --- against a list --------------------------------------------------------------------------------------------------------


class AgainstAList(RuleBasedStateMachine):
    """Everything that was ever appended is in a list; the log holds a tail of it, of whole segments."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "log"
        self.frames: list[bytes] = []
        self.rows: list[int] = []
        self.times: list[float] = []
        self.now = 5_000.0
        self.first = 0

    @initialize(
        segment_bytes=st.integers(1, 2_000), retain_bytes=st.integers(500, 8_000), retain_s=st.sampled_from([10.0, DAY_S])
    )
    def begin(self, segment_bytes: int, retain_bytes: int, retain_s: float) -> None:
        self.limits = {"segment_bytes": segment_bytes, "retain_bytes": retain_bytes, "retain_s": retain_s}
        self.log = ResultLog(self.path, SCHEMA, **self.limits, clock=lambda: self.now)  # type: ignore[arg-type]

    @rule(size=st.integers(0, 1_200), rows=st.integers(0, 100))
    def append(self, size: int, rows: int) -> None:
        frame = (b"%d-" % len(self.frames)).ljust(size, b"x")
        if self.log.ended:
            with pytest.raises(LogError):
                self.log.append(frame, rows)
            return
        assert self.log.append(frame, rows) == len(self.frames)
        self.frames.append(frame)
        self.rows.append(rows)
        self.times.append(self.now)

    @rule(seconds=st.floats(0.1, 8))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        self.log.expire()

    @precondition(lambda self: len(self.frames) > 10)
    @rule()
    def end(self) -> None:
        self.log.end()

    @rule(torn=st.integers(1, 40))
    def crash_in_the_middle_of_an_append_and_reopen(self, torn: int) -> None:
        had_ended = self.log.ended
        crash(self.log)
        if not had_ended:  # or nothing was being appended
            last = max(self.path.glob("*.frames"))
            last.write_bytes(last.read_bytes() + bytes(range(torn)))
        self.log = ResultLog(self.path, **self.limits, clock=lambda: self.now)  # type: ignore[arg-type]
        assert self.log.cut_bytes == (0 if had_ended else torn)
        assert self.log.ended == had_ended

    @rule(back=st.integers(0, 50), bytes_max=st.integers(0, 3_000))
    def read(self, back: int, bytes_max: int) -> None:
        offset = max(self.log.next - back, self.log.first)
        piece = self.log.read(offset, bytes_max)
        assert piece == self.frames[offset : offset + len(piece)]
        assert bool(piece) == (offset < self.log.next)
        assert len(piece) <= 1 or sum(map(len, piece)) <= bytes_max

    @invariant()
    def it_is_a_tail_of_the_list(self) -> None:
        log = self.log
        assert log.next == len(self.frames)
        assert self.first <= log.first <= log.next
        self.first = log.first
        assert log.rows == sum(self.rows[log.first :])
        assert read_all(log, log.first, 900) == self.frames[log.first :]
        stored = StoredLog(self.path)
        assert (stored.first, stored.next, stored.ended) == (log.first, log.next, log.ended)
        assert read_all(stored, log.first, 10_000) == self.frames[log.first :]
        files = list(self.path.glob("*.frames"))
        assert log.size == sum(file.stat().st_size for file in files)
        assert log.size <= self.limits["retain_bytes"] or len(files) == 1

    def teardown(self) -> None:
        self.log.close()
        self.folder.cleanup()


TestAgainstAList = AgainstAList.TestCase
TestAgainstAList.settings = settings(max_examples=40, stateful_step_count=40)


@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=40), segment_bytes=st.integers(1, 3_000))
def test_any_offset_and_any_piece_size_give_the_same(sizes: list[int], segment_bytes: int) -> None:
    with TemporaryDirectory() as folder:
        log = ResultLog(Path(folder), SCHEMA, segment_bytes=segment_bytes)
        frames = [bytes([n % 256]) * size for n, size in enumerate(sizes)]
        for frame in frames:
            log.append(frame, 1)
        for offset in range(len(frames) + 1):
            for bytes_max in (0, 100, 1_000, 1 << 20):
                piece = log.read(offset, bytes_max)
                assert piece == frames[offset : offset + len(piece)]
                following = offset + len(piece)
                is_full = (
                    following == len(frames)
                    or sum(map(len, piece)) + HEADER_BYTES * len(piece) + len(frames[following]) > bytes_max - HEADER_BYTES
                )
                assert is_full, "more would have fitted"
            assert read_all(log, offset, 700) == frames[offset:]
        log.close()
