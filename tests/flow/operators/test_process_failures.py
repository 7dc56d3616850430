"""Functions of a user's own that fail: on a row, on a batch, with what they emit, and where there is no row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from flow.flows import TS_SCHEMA, event, results, split_results, unordered

ROWS = [event("ab"[number % 2], number, number) for number in range(10)]
TEXT = {"text": str}


class Announcing(dg.Function):
    """Announces every fifth row to everybody downstream."""

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)
        if row.value % 5 == 4:
            context.emit_critical(("seen", row.value))


class Picky(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)
        if row.value == 3:
            raise ValueError("not three")


def test_a_row_that_a_function_fails_on_has_an_error_and_no_results() -> None:
    out, errors = split_results(ROWS, lambda s: s.process(Picky, TS_SCHEMA, name="picky"))
    assert unordered(out) == unordered(row for row in ROWS if row["value"] != 3)
    assert errors == [{"operator": "picky", "error": "ValueError: not three.", "row": '{"key": "b", "value": 3, "ts": 3}'}]
    with pytest.raises(dg.RowFailure, match=r"'picky' cannot handle the row .*\"value\": 3.*ValueError: not three\."):
        results(ROWS, lambda s: s.process(Picky, TS_SCHEMA, name="picky"))


class PickyBatches(dg.Function):
    def on_batch(self, context: dg.FunctionContext, batch: pa.RecordBatch) -> None:
        if 3 in batch.column("value").to_pylist():
            raise ValueError("not three")
        context.emit_batch(batch)


def test_a_batch_that_a_function_fails_on_is_kept_apart_row_by_row() -> None:
    out, errors = split_results(ROWS, lambda s: s.process(PickyBatches, TS_SCHEMA), rows_max=2)
    assert [row["value"] for row in out] == [0, 1, 4, 5, 6, 7, 8, 9]
    assert [row["error"] for row in errors] == ["ValueError: not three."] * 2


class WrongRows(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"text": row.value if row.value == 3 else str(row.value)})


def test_a_result_that_does_not_fit_is_kept_apart() -> None:
    out, errors = split_results(ROWS, lambda s: s.process(WrongRows, TEXT))
    assert [row["text"] for row in out] == [str(number) for number in range(10) if number != 3]
    (error,) = errors
    assert "{'text': 3}" in error["error"]


class Failing(dg.Function):
    """Fails wherever it is told to, outside of rows."""

    scope = "partition"

    def __init__(self, where: str) -> None:
        self.where = where

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        if row.value == 1:
            context.run_alone("now")
        context.emit(row)

    def _fail(self, where: str) -> None:
        if where == self.where:
            raise ValueError("failed")

    def on_watermark(self, context: dg.FunctionContext, time_ms: int) -> None:
        if time_ms == 3:
            self._fail("on_watermark")

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        self._fail("on_timer")

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        if payload == ("seen", 4):
            self._fail("on_critical")

    def on_end(self, context: dg.FunctionContext) -> None:
        self._fail("on_end")


@pytest.mark.parametrize(
    ("where", "call"),
    [
        ("on_watermark", "on_watermark(3)"),
        ("on_timer", "on_timer('now')"),
        ("on_critical", "on_critical(('seen', 4))"),
        ("on_end", "on_end()"),
    ],
)
def test_a_call_without_a_row_that_fails_is_named(where: str, call: str) -> None:
    def build(stream: dg.Stream) -> dg.Stream:
        return stream.process(Announcing, TS_SCHEMA).process(Failing(where), TS_SCHEMA, name="failing")

    out, errors = split_results(ROWS, build, rows_max=1)
    assert unordered(out) == unordered(ROWS)
    assert errors == [{"operator": "failing", "error": "ValueError: failed.", "row": call}]
    with pytest.raises(dg.RowFailure) as failure:
        results(ROWS, build, rows_max=1)
    assert str(failure.value).startswith(f"operator 'failing' cannot handle the call {call}: ValueError: failed. ")
