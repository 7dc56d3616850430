"""Results on the terminal."""

from __future__ import annotations

import io
import pickle
from errno import ENOSPC

import pyarrow as pa
import pytest

from dirigo.flow.errors import FlowError, OperatorFailure
from dirigo.flow.sinks import to_console

BATCH = pa.record_batch({"bidder": ["anna", "bo", None], "price": [5, 1000, 7]})


def test_columns_are_aligned_within_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    writer = to_console().open(BATCH.schema, 0)
    writer.write(BATCH)
    writer.flush()
    writer.close()
    assert capsys.readouterr().out == "bidder=anna  price=5\nbidder=bo    price=1000\nbidder=None  price=7\n"


def test_no_more_rows_than_the_limit_are_shown_over_all_partitions() -> None:
    file = io.StringIO()
    sink = to_console(limit=4, file=file)
    for partition in range(3):
        sink.open(BATCH.schema, partition).write(BATCH)
    lines = file.getvalue().splitlines()
    assert [line.split("price=")[1] for line in lines[:-1]] == ["5", "1000", "7", "5"]
    assert lines[-1] == "... only the first 4 rows are shown"


def test_exactly_the_limit_is_no_reason_to_say_that_rows_are_missing() -> None:
    file = io.StringIO()
    writer = to_console(limit=3, file=file).open(BATCH.schema, 0)
    writer.write(BATCH)
    writer.write(BATCH.slice(0, 0))
    assert len(file.getvalue().splitlines()) == 3


def test_a_row_stays_on_one_line() -> None:
    file = io.StringIO()
    to_console(file=file).open(BATCH.schema, 0).write(pa.record_batch({"text": ["a\nb"]}))
    assert file.getvalue() == "text=a\\nb\n"


def test_an_empty_batch_shows_nothing() -> None:
    file = io.StringIO()
    to_console(file=file).open(BATCH.schema, 0).write(BATCH.slice(0, 0))
    assert file.getvalue() == ""


def test_the_sink_can_be_sent_to_another_process(capsys: pytest.CaptureFixture[str]) -> None:
    pickle.loads(pickle.dumps(to_console(limit=1))).open(BATCH.schema, 0).write(BATCH)
    assert capsys.readouterr().out.startswith("bidder=anna")


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(FlowError, match="limit is -1"):
        to_console(limit=-1)


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(ENOSPC, "No space left on device")


def test_an_output_that_takes_no_rows_is_told_with_the_name_of_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for file, reason in ((FullDisk(), r"its file \(no space left on device\)"), (closed, r"its file \(it is closed\)")):
        with pytest.raises(OperatorFailure, match=f"sink 'shown' cannot write to {reason}; give it another file."):
            to_console(file=file, name="shown").open(BATCH.schema, 0).write(BATCH)
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(OperatorFailure, match=r"cannot write to the standard output \(it is closed\)"):
        to_console().open(BATCH.schema, 0).write(BATCH)
    to_console().open(BATCH.schema, 0).close()  # without rows, nobody misses it
