"""Rows that cannot be handled: by default they fail the job by name; kept apart, nothing is lost and the job goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dirigo as dg
from dirigo.flow.rows.bad_rows import Bad, described, try_each_part
from flow.flows import TS_SCHEMA, Rows, collected, event, results, run_inline, split_results, unordered

Build = Callable[[dg.Stream], dg.Stream]

TEXTS = pa.schema([("id", pa.int64()), ("text", pa.string())])


def texts(*values: str | None) -> Rows:
    return [{"id": number, "text": text} for number, text in enumerate(values)]


def check(rows: Rows, schema: pa.Schema, build: Build, operator: str, bad: list[Any], complaint: str) -> Rows:
    """Run a flow both ways. ``bad`` are the ids of the rows that must be in the errors; the good results come back."""
    with pytest.raises(dg.RowFailure) as failure:
        results(rows, build, schema=schema, time=None)
    sentence = str(failure.value)
    assert sentence.startswith(f"operator '{operator}' cannot handle the row ")
    assert complaint in sentence
    assert sentence.endswith("Dataflow(..., on_error='side_output').")
    for rows_max in (1, 100):
        out, errors = split_results(rows, build, schema=schema, time=None, rows_max=rows_max)
        assert [json.loads(row["row"])["id"] for row in errors] == bad
        assert {row["operator"] for row in errors} == {operator}
        assert all(complaint in row["error"] for row in errors)
    return out


def number(row: dg.Row) -> dict[str, Any]:
    return {"id": row.id, "number": int(row.text)}


def numbers(row: dg.Row) -> Any:
    yield {"id": row.id, "number": 0}
    yield {"id": row.id, "number": int(row.text)}


def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("number", pc.cast(batch.column("text"), pa.int64()))


NUMBERED = {"id": int, "number": int}
MIXED = texts("1", "two", "3", "4", None, "six")


@pytest.mark.parametrize(
    ("build", "operator", "bad", "complaint"),
    [
        (lambda s: s.map(number, NUMBERED), "map", [1, 5], "ValueError: invalid literal for int()"),
        (lambda s: s.flat_map(numbers, NUMBERED), "flat_map", [1, 5], "ValueError: invalid literal for int()"),
        (lambda s: s.filter(lambda row: int(row.text) > 0), "filter", [1, 5], "ValueError: invalid literal for int()"),
        (lambda s: s.split(lambda row: int(row.text) > 0)[0], "split", [1, 5], "ValueError: invalid literal for int()"),
    ],
    ids=["map", "flat_map", "filter", "split"],
)
def test_rows_that_a_function_fails_on(build: Build, operator: str, bad: list[int], complaint: str) -> None:
    rows = [row for row in MIXED if row["text"] is not None]
    out = check(rows, TEXTS, build, operator, bad, complaint)
    assert sorted({row["id"] for row in out}) == [0, 2, 3]


def as_number() -> dg.Expression:
    return dg.col("text").cast(int)


@pytest.mark.parametrize(
    ("build", "operator"),
    [
        (lambda s: s.select("id", number=as_number()), "select"),
        (lambda s: s.with_columns(number=as_number()), "with_columns"),
        (lambda s: s.filter(as_number().is_null() | (as_number() > 0)), "filter"),
        (lambda s: s.map_batches(numbered), "map_batches"),
    ],
    ids=["select", "with_columns", "filter", "map_batches"],
)
def test_rows_that_an_expression_fails_on(build: Build, operator: str) -> None:
    out = check(MIXED, TEXTS, build, operator, [1, 5], "Failed to parse string: ")
    assert [row["id"] for row in out] == [0, 2, 3, 4]


def test_what_is_wrong_with_a_row_is_cut_if_it_is_very_long() -> None:
    for error in (ValueError("first" + "x" * 1_000_000 + "last"), "first" + "x" * 1_000_000 + "last"):
        sentence = described(error)
        assert len(sentence) < 10_000
        assert "first" in sentence
        assert sentence.endswith("xlast.")
        assert "characters in all" in sentence


@pytest.mark.parametrize("as_function", [False, True])
def test_a_row_that_a_split_fails_on_is_reported_once(as_function: bool) -> None:
    flow = dg.Dataflow("split", on_error="side_output")
    condition: Any = (lambda row: int(row.text) > 2) if as_function else as_number() > 2
    yes, no = flow.source(dg.from_iterable(texts("1", "two", "3"), TEXTS)).split(condition)
    outs = [collected(stream) for stream in (yes, no, flow.errors)]
    run_inline(flow)
    assert [[row.get("id") for row in out.rows] for out in outs[:2]] == [[2], [0]]
    assert [json.loads(row["row"])["id"] for row in outs[2].rows] == [1]


def test_rows_that_an_expression_inside_an_aggregate_fails_on() -> None:
    def build(stream: dg.Stream) -> dg.Stream:
        return stream.with_columns(all=1).key_by("all").aggregate(total=dg.sum(as_number()), n=dg.count())

    out = check(MIXED, TEXTS, build, "aggregate", [1, 5], "string")
    assert [(row["total"], row["n"]) for row in out] == [(8, 4)]


@pytest.mark.parametrize("window", [dg.Tumbling("10ms"), dg.Session("10ms")], ids=["tumbling", "session"])
@pytest.mark.parametrize("rows_max", [1, 100])
def test_rows_that_an_expression_inside_a_windowed_aggregate_fails_on(window: Any, rows_max: int) -> None:
    schema = pa.schema([("text", pa.string()), ("ts", pa.int64())])
    rows = [{"text": text, "ts": ts} for ts, text in enumerate(["1", "x", "2", "y", "4"])]
    out, errors = split_results(
        rows, lambda s: s.window(window).aggregate(total=dg.sum(as_number())), schema=schema, rows_max=rows_max
    )
    assert [row["total"] for row in out] == [7]
    assert [json.loads(row["row"])["text"] for row in errors] == ["x", "y"]


@pytest.mark.parametrize("result", [{"id": "text", "number": 1}, {"id": 1}, {"id": 1, "nummer": 1}, 5, None])
def test_results_that_do_not_fit_their_columns(result: Any) -> None:
    def sometimes(row: dg.Row) -> Any:
        return result if row.text == "bad" else {"id": row.id, "number": 0}

    out = check(texts("good", "bad", "good"), TEXTS, lambda s: s.map(sometimes, NUMBERED), "map", [1], "does not fit: ")
    assert [row["id"] for row in out] == [0, 2]


def test_map_batches_that_returns_no_batch_says_so() -> None:
    with pytest.raises(dg.RowFailure, match=r"returned a list, not a pyarrow\.RecordBatch"):
        results(MIXED, lambda s: s.map_batches(lambda batch: batch.to_pylist(), TEXTS), schema=TEXTS, time=None)


# --- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "operator"),
    [
        (lambda s: s.key_by("text").aggregate(least=dg.min("id")).rename(least="id"), "aggregate"),
        (lambda s: s.key_by("text").scan(lambda _, other: other), "scan"),
        (lambda s: s.join(s, on="text"), "join"),
    ],
    ids=["aggregate", "scan", "join"],
)
def test_a_null_in_a_key_is_a_bad_row(build: Build, operator: str) -> None:
    rows = texts("a", None, "b")
    bad = [1, 1] if operator == "join" else [1]
    out = check(rows, TEXTS, build, operator, bad, "the key 'text' is null.")
    assert sorted({row["id"] for row in out}) == [0, 2]


# --- sources -----------------------------------------------------------------------------------------------------------


def test_rows_that_do_not_fit_the_source() -> None:
    rows: list[Any] = [event("a", 1, 1), {"key": "a", "value": "many", "ts": 2}, {"key": "b"}, 7, event("b", 2, 3)]
    out, errors = split_results(rows, lambda s: s)
    assert out == [rows[0], rows[4]]
    assert [row["operator"] for row in errors] == ["rows"] * 3
    assert [f"rows, row {number}: " in row["error"] for number, row in zip((2, 3, 4), errors, strict=True)] == [True] * 3
    with pytest.raises(dg.RowFailure, match=r"operator 'rows' cannot handle the row .*'many'.*rows, row 2: "):
        results(rows, lambda s: s)


@pytest.mark.parametrize(
    ("ts", "complaint"),
    [
        (None, "its time 'ts' is null."),
        (-1, "its time 'ts' lies before 1970."),
        (-(10**15), "its time 'ts' lies before 1970."),
        (1_700_000_000_000_000, "its time 'ts' lies after the year 9999."),
        ((1 << 63) - 1, "its time 'ts' lies after the year 9999."),
    ],
)
@pytest.mark.parametrize("rows_max", [1, 100])
def test_a_time_that_is_none_is_a_bad_row_and_no_watermark(ts: int | None, complaint: str, rows_max: int) -> None:
    rows: Rows = [event("a", 1, 5), {"key": "a", "value": 2, "ts": ts}, event("a", 4, 7), event("a", 8, 15)]

    def build(stream: dg.Stream) -> dg.Stream:
        return stream.key_by("key").window(dg.Tumbling("10ms")).aggregate(total=dg.sum("value"))

    out, errors = split_results(rows, build, rows_max=rows_max)
    assert [row["total"] for row in out] == [5, 8]
    assert [(row["operator"], row["error"]) for row in errors] == [("rows", complaint)]
    with pytest.raises(dg.RowFailure, match=complaint):
        results(rows, build, rows_max=rows_max)


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Vienna"])
@pytest.mark.parametrize(("unit", "ts"), [("s", 2**60), ("s", 2**63 - 1), ("s", 253402300800), ("ms", 2**62), ("us", 2**62)])
def test_a_timestamp_beyond_what_python_can_say_is_a_bad_row(unit: str, ts: int, zone: str | None) -> None:
    table = pa.table({"at": pa.array([1, ts, 2], pa.timestamp(unit, zone))})
    out, errors = split_results(
        [table], lambda s: s.window(dg.Tumbling("1h")).aggregate(n=dg.count()), time="at", schema=table.schema
    )
    assert [row["n"] for row in out] == [2]
    (error,) = errors
    assert error["error"] == "its time 'at' lies after the year 9999."
    assert json.loads(error["row"]) == {"at": f"{ts} as timestamp[{unit}{f', tz={zone}' if zone else ''}]"}


class EmitNumber(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        assert row.at is not None
        context.emit({"n": row.n})


def number_of(row: dg.Row) -> dict[str, Any]:
    return {"n": row.n} if row.at else {"n": -row.n}


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(number_of, {"n": int}),
        lambda s: s.flat_map(lambda row: [number_of(row)], {"n": int}),
        lambda s: s.filter(number_of).select("n"),
        lambda s: s.split(number_of)[0].select("n"),
        lambda s: s.process(EmitNumber, {"n": int}),
    ],
    ids=["map", "flat_map", "filter", "split", "process"],
)
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_value_that_python_cannot_say_is_bad_for_who_asks_for_it_and_for_no_other_row(
    build: Build, zone: str | None
) -> None:
    table = pa.table({"n": [1, 2, 3], "at": pa.array([1, 2**62, 2], pa.timestamp("ms", zone))})
    out, errors = split_results([table], build, time=None, schema=table.schema)
    assert [row["n"] for row in out] == [1, 3]
    assert [json.loads(row["row"])["n"] for row in errors] == [2]
    assert "has no form in Python" in errors[0]["error"]
    out, errors = split_results(
        [table], lambda s: s.map(lambda row: {"n": row.n}, {"n": int}), time=None, schema=table.schema
    )
    assert ([row["n"] for row in out], errors) == ([1, 2, 3], [])


def test_text_that_is_no_unicode_is_bad_for_who_asks_for_it_and_for_no_other_row() -> None:
    text = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    table = pa.table({"n": [1, 2, 3], "text": text})
    out, errors = split_results(
        [table], lambda s: s.map(lambda row: {"text": row.text}, {"text": str}), time=None, schema=table.schema
    )
    assert [row["text"] for row in out] == ["a", "c"]
    assert [json.loads(row["row"])["n"] for row in errors] == [2]


@pytest.mark.parametrize("window", [dg.Tumbling("10ms"), dg.Session("3ms")], ids=["tumbling", "session"])
def test_a_time_that_was_lost_on_the_way_is_a_bad_row(window: Any) -> None:
    def lose_some(row: dg.Row) -> dict[str, Any]:
        return {**row.asdict(), "ts": {2: None, 3: -5}.get(row.value, row.ts)}

    rows = [event("a", value, value) for value in range(1, 6)]
    out, errors = split_results(
        rows, lambda s: s.map(lose_some, TS_SCHEMA).window(window).aggregate(n=dg.count()), rows_max=2
    )
    assert [row["n"] for row in out] == [3]
    assert [row["error"] for row in errors] == ["its time 'ts' is null.", "its time 'ts' lies before 1970."]
    assert {row["operator"] for row in errors} == {"aggregate"}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_a_monster_of_ten_megabytes_does_not_go_through_the_graph(kind: pa.DataType) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", kind)])
    monster: Any = "x" * 10_000_000 if kind != pa.binary() else b"x" * 10_000_000
    rows = [{"id": 1, "text": monster[:5]}, {"id": 2, "text": monster}, {"id": 3, "text": None}]
    out, errors = split_results(rows, lambda s: s, schema=schema, time=None)
    assert [row["id"] for row in out] == [1, 3]
    (error,) = errors
    assert error["error"] == "it is longer than 1,048,576 bytes, the flow's row_bytes_max."
    assert len(error["row"]) > 10_000_000  # nothing is lost
    with pytest.raises(dg.RowFailure) as failure:
        results(rows, lambda s: s, schema=schema, time=None)
    assert len(str(failure.value)) < 1_000
    assert "characters in all)" in str(failure.value)


def test_row_bytes_max_can_be_raised() -> None:
    rows = texts("x" * 2_000_000)
    out, errors = split_results(rows, lambda s: s, schema=TEXTS, time=None, row_bytes_max=3_000_000)
    assert (out, errors) == (rows, [])


# --- the stream of errors ----------------------------------------------------------------------------------------------


def test_errors_of_all_operators_come_together() -> None:
    def no_two(row: dg.Row) -> bool:
        return bool(1 / (row.value - 2))

    def no_four(row: dg.Row) -> dict[str, Any]:
        return {**row.asdict(), "value": row.value // (row.value - 4)}

    rows: list[Any] = [*(event("a", value, value) for value in range(6)), {"key": None, "value": 9, "ts": 9}, 3]

    def build(stream: dg.Stream) -> dg.Stream:
        return stream.filter(no_two).map(no_four, TS_SCHEMA).key_by("key").aggregate(n=dg.count())

    out, errors = split_results(rows, build, rows_max=2)
    assert [row["n"] for row in out] == [4]
    assert unordered({"operator": row["operator"]} for row in errors) == unordered(
        {"operator": operator} for operator in ("rows", "filter", "map", "aggregate")
    )


def test_errors_can_be_worked_with_and_what_fails_there_fails_the_job() -> None:
    def flow_with(function: Any) -> tuple[dg.Dataflow, Any]:
        flow = dg.Dataflow("errors", on_error="side_output")
        stream = flow.source(dg.from_iterable(texts("1", "two"), TEXTS))
        stream.map(number, NUMBERED).sink(dg.to_memory())
        return flow, collected(flow.errors.map(function, {"text": str}))

    flow, out = flow_with(lambda row: {"text": f"{row.operator}: {row.error}"})
    run_inline(flow)
    assert [row["text"] for row in out.rows] == ["map: ValueError: invalid literal for int() with base 10: 'two'."]
    flow, _ = flow_with(lambda row: {"text": row.nothing})
    with pytest.raises(dg.RowFailure, match=r"operator 'map_2' cannot handle the row .*there is no column 'nothing'"):
        run_inline(flow)


class Barrier(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        if row.id == 1:
            context.emit_critical("now", granularity="one")
        context.emit(row)
        if row.text == "bad":
            raise ValueError("bad text")


class Told(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"id": -1, "text": payload})


def test_barriers_of_functions_do_not_stop_the_stream_of_errors() -> None:
    rows = texts("bad", "good", "bad", "good")
    out, errors = split_results(
        rows, lambda s: s.process(Barrier, TEXTS).process(Told, TEXTS), schema=TEXTS, time=None, rows_max=1
    )
    assert [row["id"] for row in out] == [-1, 1, 3]
    assert [json.loads(row["row"])["id"] for row in errors] == [0, 2]


# --- parts -------------------------------------------------------------------------------------------------------------


def test_an_error_reads_as_a_sentence() -> None:
    assert described(ValueError("no")) == "ValueError: no."
    assert described("it is null") == "it is null."
    assert described("why?") == "why?"


def test_only_the_bad_rows_of_a_batch_are_left_out() -> None:
    batch = pa.RecordBatch.from_pydict({"n": list(range(100))})
    calls = 0

    def no_sevens(part: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal calls
        calls += 1
        if any(value % 50 == 7 for value in part.column("n").to_pylist()):
            raise ValueError("seven")
        return part

    good, bad = try_each_part(no_sevens, batch, ValueError("seven"))
    assert [row.row for row in bad] == [{"n": 7}, {"n": 57}]
    assert all(isinstance(row, Bad) for row in bad)
    kept = [value for part in good for value in part.column("n").to_pylist()]
    assert kept == [value for value in range(100) if value not in (7, 57)]
    assert calls < 40  # halves, not one by one
