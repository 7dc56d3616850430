"""What becomes of earlier results in a sink's folder, and when."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dirigo as dg

SCHEMA = pa.schema([("n", pa.int64())])
SINKS: dict[str, Any] = {"parquet": dg.to_parquet, "json_lines": dg.to_json_lines}


@pytest.fixture(params=SINKS)
def sink(request: pytest.FixtureRequest) -> Any:
    return SINKS[request.param]


def rows_of(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(numbers)}, SCHEMA)


def results(folder: Path) -> list[int]:
    rows: list[int] = []
    for file in sorted(folder.glob("part-*")):
        if file.suffix == ".parquet":
            rows += pq.read_table(file).column("n").to_pylist()
        else:
            rows += [json.loads(line)["n"] for line in file.read_text().splitlines()]
    return rows


def write(sink: dg.Sink, *numbers: int, partition: int = 0) -> None:
    writer = sink.open(SCHEMA, partition)
    writer.write(rows_of(*numbers))
    writer.close()


def prepared(sink: Any, folder: Path, mode: str, **options: Any) -> Any:
    made = sink(folder, mode=mode, **options)
    made.prepare(SCHEMA)
    return made


def test_appending_keeps_old_files_and_comes_behind_them(sink: Any, tmp_path: Path) -> None:
    for number in range(3):
        write(prepared(sink, tmp_path, "append"), number, number + 10)
    assert results(tmp_path) == [0, 10, 1, 11, 2, 12]
    assert len(list(tmp_path.iterdir())) == 3


def test_old_results_stay_until_there_are_new_ones(sink: Any, tmp_path: Path) -> None:
    write(prepared(sink, tmp_path, "error"), 1, 2)
    made = prepared(sink, tmp_path, "overwrite", roll_every="1s")
    writer = made.open(SCHEMA, 1)
    writer.write(rows_of(3))
    writer.flush()
    assert results(tmp_path) == [1, 2]
    writer.roll()
    assert results(tmp_path) == [3]
    write(made, 4)
    writer.close()
    assert results(tmp_path) == [4, 3]
    assert not list(tmp_path.glob(".*"))


def test_a_job_that_fails_before_it_has_results_leaves_the_old_ones(sink: Any, tmp_path: Path) -> None:
    write(prepared(sink, tmp_path, "error"), 1, 2)
    writer = prepared(sink, tmp_path, "overwrite", roll_every="1s").open(SCHEMA, 0)
    writer.write(rows_of(3))
    writer.abandon()
    assert results(tmp_path) == [1, 2]
    write(prepared(sink, tmp_path, "append"), 4)
    assert results(tmp_path) == [1, 2, 4]


def test_with_snapshots_old_results_stay_until_one_with_new_rows_is_committed(sink: Any, tmp_path: Path) -> None:
    write(prepared(sink, tmp_path, "error"), 1, 2)
    made = prepared(sink, tmp_path, "overwrite")
    writers = [made.open(SCHEMA, partition) for partition in range(2)]
    for writer in writers:
        writer.hold_back(0)
        writer.commit(writer.cut())
    assert results(tmp_path) == [1, 2]
    writers[1].write(rows_of(3))
    cut = writers[1].cut()
    assert results(tmp_path) == [1, 2]
    again = made.open(SCHEMA, 1)  # another process: the first one was lost
    again.hold_back(1)
    again.resume(cut)
    assert results(tmp_path) == [3]


def test_with_snapshots_a_partition_that_ends_without_rows_replaces_nothing(sink: Any, tmp_path: Path) -> None:
    write(prepared(sink, tmp_path, "error"), 1, 2)
    made = prepared(sink, tmp_path, "overwrite")
    writers = [made.open(SCHEMA, partition) for partition in range(2)]
    for writer in writers:
        writer.hold_back(0)
    writers[1].close()  # its source had less to read
    writers[1].commit(writers[1].cut())
    assert results(tmp_path) == [1, 2]
    writers[0].close()
    writers[0].commit(writers[0].cut())
    assert results(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 1


def test_an_empty_result_replaces_the_old_one_as_well(sink: Any, tmp_path: Path) -> None:
    write(prepared(sink, tmp_path, "error"), 1, 2)
    made = prepared(sink, tmp_path, "overwrite")
    made.open(SCHEMA, 0).close()
    assert results(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 1


def test_a_loss_while_old_results_are_removed_leaves_none_of_them(
    sink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        write(prepared(sink, tmp_path, "append"), number)
    made = prepared(sink, tmp_path, "overwrite", roll_every="1s")
    writer = made.open(SCHEMA, 0)
    writer.write(rows_of(3))
    with monkeypatch.context() as patch:
        unlink = Path.unlink

        def killed(path: Path, missing_ok: bool = False) -> None:
            unlink(path, missing_ok)
            raise KeyboardInterrupt

        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            writer.roll()
    assert results(tmp_path) == [2, 3]
    write(prepared(sink, tmp_path, "append"), 4)
    assert results(tmp_path) == [3, 4]


def test_a_job_that_was_given_up_does_not_replace_for_another(sink: Any, tmp_path: Path) -> None:
    write(prepared(sink, tmp_path, "error"), 1)
    late = prepared(sink, tmp_path, "overwrite").open(SCHEMA, 0)
    prepared(sink, tmp_path, "overwrite")
    late.write(rows_of(2))
    late.close()
    assert results(tmp_path) == [1, 2]


def test_files_of_others_are_in_nobodys_way(sink: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for mode in ("append", "overwrite"):
        with pytest.raises(dg.FlowError, match=r"thesis\.txt' is no earlier result of this kind and is not removed"):
            prepared(sink, tmp_path, mode)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_a_sink_does_not_take_is_told(sink: Any, tmp_path: Path) -> None:
    with pytest.raises(dg.FlowError, match='overwrite= is now mode=; give mode="overwrite" to replace earlier results'):
        sink(tmp_path, overwrite=True)
    with pytest.raises(TypeError, match="has no option 'owerwrite'"):
        sink(tmp_path, owerwrite=True)
    with pytest.raises(dg.FlowError, match='mode is True; give "error", "append" or "overwrite"'):
        sink(tmp_path, mode=True)
    with pytest.raises(dg.FlowError, match="roll_every: '0s' is no time at all"):
        sink(tmp_path, roll_every="0s")


def test_parquet_files_with_other_columns_are_not_mixed(tmp_path: Path) -> None:
    write(prepared(dg.to_parquet, tmp_path, "error"), 1)
    with pytest.raises(dg.FlowError, match=r"'.*part-0-00000\.parquet' has other columns \(n int64\)"):
        dg.to_parquet(tmp_path, mode="append").prepare(pa.schema([("m", pa.int64())]))


REASONS = {
    errno.ENOSPC: r"no space left on device\); free some space there",
    errno.EROFS: r"read-only file system\); let the workers write there",
    errno.EIO: r"input/output error\); see to that folder",
}


@pytest.mark.parametrize("number", REASONS)
def test_a_disk_that_fails_is_told_in_one_sentence(
    sink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    writer = prepared(sink, tmp_path, "error", roll_every="1s", name="mine").open(SCHEMA, 0)
    writer.hold_back(0)
    writer.write(rows_of(1))
    cut = writer.cut()

    def failing(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    monkeypatch.setattr(Path, "replace", failing)
    for call in (writer.sync, writer.commit):
        with pytest.raises(dg.OperatorFailure, match=f"^sink 'mine' cannot write to '{tmp_path}' \\({REASONS[number]}.$"):
            call(cut)


def test_a_full_disk_is_told_while_rows_are_written(sink: Any, tmp_path: Path) -> None:
    writer = prepared(sink, tmp_path, "error", roll_every="1s", name="mine").open(SCHEMA, 0)
    (tmp_path / ".full").symlink_to("/dev/full")
    writer._files.begin = lambda: tmp_path / ".full"
    if sink is dg.to_json_lines:  # which wants to make the file
        writer._file = (tmp_path / ".full").open("wb", buffering=0)
    writer.write(rows_of(1))
    with pytest.raises(dg.OperatorFailure, match=r"^sink 'mine' cannot write to .* \(no space left on device\); free some"):
        writer.cut()
    writer.abandon()


def test_a_folder_that_is_gone_is_told(sink: Any, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    made = prepared(sink, folder, "error", roll_every="1s", name="mine")
    writer = made.open(SCHEMA, 0)
    writer.hold_back(0)
    writer.write(rows_of(1))
    cut = writer.cut()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    again = made.open(SCHEMA, 0)
    again.hold_back(1)
    for call in (writer.commit, writer.sync, again.resume):
        with pytest.raises(dg.OperatorFailure, match=rf"^sink 'mine' cannot write to '{folder}' \(the folder is gone\)"):
            call(cut)
    writer.write(rows_of(2))
    with pytest.raises(dg.OperatorFailure, match="the folder is gone"):
        writer.cut()
    writer.abandon()


def test_new_results_are_on_the_disk_before_old_ones_go(sink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(prepared(sink, tmp_path, "error"), 1)
    made = prepared(sink, tmp_path, "overwrite")
    steps: list[str] = []
    unlink = Path.unlink
    monkeypatch.setattr(os, "fsync", lambda each: steps.append(Path(f"/proc/self/fd/{each}").readlink().name))

    def noted(path: Path, missing_ok: bool = False) -> None:
        steps.append(path.name)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    write(made, 2)
    old = next(step for step in steps if step.startswith("part-0-00000."))
    (new,) = [step for step in steps if "part-0-00001-" in step]
    assert steps[:3] == [new, tmp_path.name, old]
