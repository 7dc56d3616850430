"""A results log whose files are not what was written: nothing wrong is given out, and nothing good is lost with it."""

from pathlib import Path

import pytest

from dirigo.runtime.results.log import LogError, ResultLog, StoredLog
from dirigo.runtime.results.log.record import HEADER_BYTES
from runtime.log.logs import SCHEMA, crash, frame_of, log_of, overwrite, read_all

OPENERS = pytest.mark.parametrize("opened", [ResultLog, StoredLog])


@OPENERS
@pytest.mark.parametrize("zeroed", range(3))
def test_a_zeroed_frame_is_never_given_out(tmp_path: Path, opened: type[ResultLog] | type[StoredLog], zeroed: int) -> None:
    folder = tmp_path / "sums~4" / "out"
    frames = [frame_of([n, n + 1]) for n in range(3)]
    (file,) = log_of(folder, frames, is_ended=True)
    overwrite(file, file.read_bytes().index(frames[zeroed]), b"\0" * len(frames[zeroed]))
    log = opened(folder)
    assert log.next == 3  # it knows that the record was there
    if zeroed:
        assert log.read(0, 1 << 20) == frames[:zeroed]  # those before it are good
    sentence = (
        f"Record {zeroed} of the results of job 'sums~4', sink 'out', is damaged on disk; read from offset {zeroed + 1}"
    )
    with pytest.raises(LogError, match=sentence):
        log.read(zeroed, 1 << 20)
    assert read_all(log, zeroed + 1, 1 << 20) == frames[zeroed + 1 :]


@OPENERS
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path, opened: type[ResultLog] | type[StoredLog]) -> None:
    frames = [frame_of([n]) for n in range(3)]
    (file,) = log_of(tmp_path, frames, is_ended=True)
    whole = file.read_bytes()
    begin, end = len(whole) // 3, 2 * len(whole) // 3  # the second record, all of the same size
    for place in range(begin, end):
        overwrite(file, place, bytes([whole[place] ^ (1 << place % 8)]))
        log = opened(tmp_path)
        assert log.read(0, 1 << 20) == frames[:1]
        with pytest.raises(LogError, match=r"Records? 1 .*damaged"):
            log.read(1, 1 << 20)
        overwrite(file, place, whole[place : place + 1])


@OPENERS
def test_damage_before_the_last_segment_is_said_to_whoever_reads_there(
    tmp_path: Path, opened: type[ResultLog] | type[StoredLog]
) -> None:
    files = log_of(tmp_path, [b"%d" % n for n in range(6)], segment_bytes=60, is_ended=True)
    assert len(files) == 3  # of two records each
    files[1].write_bytes(files[1].read_bytes()[:-1])
    log = opened(tmp_path)
    assert log.read(0, 1000) == [b"0", b"1", b"2"]
    with pytest.raises(LogError, match=r"Record 3 of .* is damaged on disk; read from offset 4 on"):
        log.read(3, 1000)
    assert log.read(4, 1000) == [b"4", b"5"]
    files[1].unlink()
    with pytest.raises(LogError, match=r"Records 2 to 3 of .* are damaged on disk; read from offset 4 on"):
        opened(tmp_path).read(2, 1000)


@OPENERS
def test_an_ended_log_whose_tail_is_gone_does_not_pass_for_a_shorter_one(
    tmp_path: Path, opened: type[ResultLog] | type[StoredLog]
) -> None:
    (file,) = log_of(tmp_path, [b"0", b"1"], is_ended=True)
    file.write_bytes(file.read_bytes()[:-1])
    log = opened(tmp_path)
    assert (log.next, log.ended) == (2, True)
    assert log.read(0, 1000) == [b"0"]
    with pytest.raises(LogError, match=r"Record 1 of .* is damaged"):
        log.read(1, 1000)


@pytest.mark.parametrize("torn", range(2, 6))
def test_what_a_crash_of_the_machine_left_in_the_last_two_segments_is_cut_behind_the_last_good_record(
    tmp_path: Path, torn: int
) -> None:
    frames = [b"frame %d" % n for n in range(6)]
    files = log_of(tmp_path, frames, segment_bytes=80)
    assert len(files) == 3
    for number in range(torn, 6):
        file = files[number // 2]
        overwrite(file, file.read_bytes().index(frames[number]), b"\0" * len(frames[number]))
    size = sum(each.stat().st_size for each in files)
    log = ResultLog(tmp_path, segment_bytes=80)
    assert log.next == torn
    assert log.cut_bytes == size - log.size
    assert log.append(b"next", 1) == torn
    assert read_all(log, 0, 1000) == [*frames[:torn], b"next"]
    assert log.size == sum(each.stat().st_size for each in tmp_path.glob("*.frames"))
    crash(log)
    again = ResultLog(tmp_path)
    assert (again.cut_bytes, again.next) == (0, torn + 1)
    again.close()


@OPENERS
@pytest.mark.parametrize("place", [0, 20, HEADER_BYTES + 2], ids=["its check sum", "its header", "its frame"])
@pytest.mark.parametrize("bad", range(5))
@pytest.mark.parametrize("is_ended", [True, False])
def test_one_bad_record_takes_no_good_one_with_it(
    tmp_path: Path, opened: type[ResultLog] | type[StoredLog], place: int, bad: int, is_ended: bool
) -> None:
    folder = tmp_path / "sums~4" / "out"
    frames = [b"frame %d" % n for n in range(6)]
    files = log_of(folder, frames, segment_bytes=80, is_ended=is_ended)
    file = files[bad // 2]
    begin = bad % 2 * (HEADER_BYTES + len(frames[bad])) + place
    overwrite(file, begin, bytes([file.read_bytes()[begin] ^ 4]))
    contents = [each.read_bytes() for each in files]
    log = opened(folder)
    assert log.next == 6
    if bad:
        assert log.read(0, 1 << 20) == frames[:bad]
    sentence = f"Record {bad} of the results of job 'sums~4', sink 'out', is damaged on disk; read from offset {bad + 1} on"
    with pytest.raises(LogError, match=sentence):
        log.read(bad, 1 << 20)
    assert read_all(log, bad + 1, 1 << 20) == frames[bad + 1 :]
    assert [each.read_bytes() for each in files] == contents  # nothing was cut
    if isinstance(log, ResultLog):
        assert log.cut_bytes == 0
        if not is_ended:
            assert log.append(b"next", 1) == 6
            assert read_all(log, bad + 1, 1 << 20) == [*frames[bad + 1 :], b"next"]
        log.close()


@OPENERS
def test_a_hole_over_several_records_is_told_as_one(tmp_path: Path, opened: type[ResultLog] | type[StoredLog]) -> None:
    """As when a page of the file was not on disk yet, and those behind it were; the frames look like headers."""
    frames = [b"".join(n.to_bytes(8, "little") for n in range(number, number + 50)) for number in range(5_000)]
    (file,) = log_of(tmp_path, frames, segment_bytes=1 << 30)
    size = HEADER_BYTES + len(frames[0])
    overwrite(file, 10 * size, b"\0" * (3 * size + 7))
    log = opened(tmp_path)
    assert log.next == 5_000
    assert len(read_all(log, 14, 1 << 20)) == 5_000 - 14
    for offset in range(10, 13):
        with pytest.raises(LogError, match=rf"Records? {offset} (to 13 )?of .* damaged on disk; read from offset 14 on"):
            log.read(offset, 1 << 20)
    with pytest.raises(LogError, match=r"Records 10 to 13 .* are damaged"):
        log.read(10, 1 << 20)


@OPENERS
def test_a_log_that_ended_and_whose_only_file_is_gone_says_so(
    tmp_path: Path, opened: type[ResultLog] | type[StoredLog]
) -> None:
    (file,) = log_of(tmp_path, [b"0", b"1"], is_ended=True)
    file.unlink()
    log = opened(tmp_path)
    assert (log.first, log.next, log.ended) == (0, 2, True)
    with pytest.raises(LogError, match=r"Records 0 to 1 of .* are damaged on disk; read from offset 2 on"):
        log.read(0, 1000)


def test_a_file_without_a_good_record_is_not_taken_for_an_old_one(tmp_path: Path) -> None:
    files = log_of(tmp_path, [b"%d" % n for n in range(6)], segment_bytes=60, is_ended=True)
    files[0].write_bytes(b"\xff" * files[0].stat().st_size)
    log = ResultLog(tmp_path)
    assert log.first == 0
    with pytest.raises(LogError, match=r"Records 0 to 1 of .* are damaged"):
        log.read(0, 1000)
    assert files[0].exists()


def synced(folder: Path, frames: list[bytes], *, unsynced: int = 0, segment_bytes: int = 1 << 20) -> list[Path]:
    """The files of a log whose writer was killed; all records but the last ones were on disk."""
    log = ResultLog(folder, SCHEMA, segment_bytes=segment_bytes)
    for number, frame in enumerate(frames):
        if number == len(frames) - unsynced:
            log.sync()
        log.append(frame, 1)
    if not unsynced:
        log.sync()
    crash(log)
    return sorted(folder.glob("*.frames"))


@OPENERS
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "zeroed"])
@pytest.mark.parametrize("segment_bytes", [80, 1 << 20], ids=["segments", "one segment"])
def test_what_was_on_disk_is_no_torn_tail_although_the_log_has_not_ended(
    tmp_path: Path, opened: type[ResultLog] | type[StoredLog], damage: str, segment_bytes: int
) -> None:
    folder = tmp_path / "sums~4" / "out"
    frames = [b"frame %d" % n for n in range(6)]
    file = synced(folder, frames, unsynced=1, segment_bytes=segment_bytes)[-1]
    first = int(file.stem)
    record = HEADER_BYTES + len(frames[0])
    good = first if damage in ("gone", "empty") else 4
    if damage == "gone":
        file.unlink()
    else:
        whole = file.read_bytes()
        kept = whole[: (good - first) * record]
        file.write_bytes(kept + b"\0" * (len(whole) - len(kept)) if damage == "zeroed" else kept)
    for again in range(3):
        log = opened(folder)
        assert log.next == 5
        if good:
            assert log.read(0, 1 << 20) == frames[:good]
        with pytest.raises(LogError, match=rf"Records? {good} .*of job 'sums~4', sink 'out', (is|are) damaged on disk"):
            log.read(good, 1 << 20)
        if isinstance(log, ResultLog):
            assert log.cut_bytes == 0
            if again == 1:
                log.end()
            log.close()


def test_what_comes_after_damage_has_the_next_offset(tmp_path: Path) -> None:
    (file,) = synced(tmp_path, [b"0", b"1"])
    file.unlink()
    log = ResultLog(tmp_path)
    assert log.append(b"2", 1) == 2
    for each in (log, StoredLog(tmp_path)):
        assert each.first == 0
        assert each.read(2, 1000) == [b"2"]
        with pytest.raises(LogError, match="Records 0 to 1 of"):
            each.read(0, 1000)
    log.close()


def test_a_log_that_never_had_a_record_on_disk_may_lose_its_file(tmp_path: Path) -> None:
    """As when the machine crashed at once."""
    (file,) = log_of(tmp_path, [b"0"])
    file.unlink()
    for opened in (StoredLog, ResultLog):
        assert opened(tmp_path).read(0, 1000) == []


@OPENERS
@pytest.mark.parametrize("content", [b"", b"1", b"2 00000000", b"1 %08x", b"zz", b"51 1 1", b"-1", b"2 %08x "])
def test_a_mark_that_is_not_what_was_written_is_told(
    tmp_path: Path, opened: type[ResultLog] | type[StoredLog], content: bytes
) -> None:
    log_of(tmp_path, [b"%d" % n for n in range(12)], is_ended=True)
    good = (tmp_path / "ended").read_bytes()
    (tmp_path / "ended").write_bytes(content.replace(b"%08x", good.split()[-1]))
    with pytest.raises(LogError, match=r"ended' is damaged"):
        opened(tmp_path).read(0, 1000)


@OPENERS
def test_no_flipped_bit_of_a_mark_goes_unnoticed(tmp_path: Path, opened: type[ResultLog] | type[StoredLog]) -> None:
    log_of(tmp_path, [b"%d" % n for n in range(12)], is_ended=True)
    for name in ("ended", "synced"):
        mark = tmp_path / name
        good = mark.read_bytes()
        for bit in range(8 * len(good)):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            mark.write_bytes(bad)
            with pytest.raises(LogError, match=rf"{name}' is damaged"):
                opened(tmp_path)
        mark.write_bytes(good)


@OPENERS
def test_a_mark_without_a_check_sum_is_read(tmp_path: Path, opened: type[ResultLog] | type[StoredLog]) -> None:
    """As 0.1 wrote it."""
    log_of(tmp_path, [b"0", b"1"], is_ended=True)
    (tmp_path / "ended").write_bytes(b"2")
    log = opened(tmp_path)
    assert (log.ended, log.read(0, 1000)) == (True, [b"0", b"1"])
