"""apply and reduce in windows, and scan."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from flow.flows import TS_SCHEMA, Rows, event, results, split_results, unordered

EVENTS = st.lists(
    st.builds(event, st.sampled_from(["a", "b"]), st.integers(-9, 9), st.integers(0, 30)), min_size=1, max_size=20
)
WINDOW = dg.Tumbling("10ms")


def summed(one: Any, other: dg.Row) -> dict[str, Any]:
    return {"key": one.key, "value": one.value + other.value, "ts": max(one.ts, other.ts)}


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, rows_max=st.integers(1, 10))
def test_apply_gets_exactly_the_rows_of_its_window_and_key(rows: Rows, rows_max: int) -> None:
    rows = sorted(rows, key=lambda row: int(row["ts"]))

    def listed(group: dg.Group) -> list[tuple[str, int | None, list[int]]]:
        assert len(group) == len(group.rows) == group.batch.num_rows
        return [(group.key["key"], group.start_ms, sorted(row.value for row in group.rows))]

    out = results(
        rows,
        lambda s: s.key_by("key").window(WINDOW).apply(listed, {"key": str, "start": int, "values": list[int]}),
        rows_max=rows_max,
    )
    expected = defaultdict(list)
    for row in rows:
        expected[row["key"], row["ts"] // 10 * 10].append(row["value"])
    assert {(row["key"], row["start"]): row["values"] for row in out} == {
        group: sorted(values) for group, values in expected.items()
    }
    assert all(row["start"] == row["window_start"] for row in out)
    assert len(out) == len(expected)


def test_apply_may_give_arrow_or_nothing() -> None:
    def odd_only(group: dg.Group) -> pa.RecordBatch | None:
        return group.batch.select(["value"]) if group.key["key"] == "a" else None

    rows = [event("a", 1, 0), event("b", 2, 1), event("a", 3, 2)]
    out = results(rows, lambda s: s.key_by("key").window(WINDOW).apply(odd_only, {"value": int}).select("value"))
    assert [row["value"] for row in out] == [1, 3]


@pytest.mark.parametrize("window", [WINDOW, dg.Session("5ms")], ids=["tumbling", "session"])
def test_apply_may_give_arrow_with_its_columns_in_any_order(window: Any) -> None:
    def reordered(group: dg.Group) -> pa.RecordBatch:
        batch = group.batch.select(["value", "ts", "key"])
        return batch.set_column(0, "value", batch.column("value").cast(pa.int32()))  # any width will do, too

    rows = [event("a", 1, 0), event("b", 2, 1)]
    out = results(rows, lambda s: s.key_by("key").window(window).apply(reordered, {"key": str, "value": int}))
    assert [list(row)[:2] for row in out] == [["key", "value"]] * 2
    assert sorted((row["key"], row["value"]) for row in out) == [("a", 1), ("b", 2)]


def test_apply_without_keys_has_one_group_per_window() -> None:
    rows = [event("a", 1, 0), event("b", 2, 1), event("a", 3, 12)]
    out = results(rows, lambda s: s.window(WINDOW).apply(lambda group: [{"n": len(group)}], {"n": int}).select("n"))
    assert [row["n"] for row in out] == [2, 1]


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, rows_max=st.integers(1, 10), every=st.sampled_from([5, 10]))
def test_a_windowed_reduce_is_a_fold_of_its_rows(rows: Rows, rows_max: int, every: int) -> None:
    rows = sorted(rows, key=lambda row: int(row["ts"]))
    out = results(
        rows, lambda s: s.key_by("key").window(dg.Sliding("10ms", every=f"{every}ms")).reduce(summed), rows_max=rows_max
    )
    expected: dict[tuple[str, int], int] = defaultdict(int)
    for row in rows:
        start = row["ts"] // every * every
        while start + 10 > row["ts"]:
            expected[row["key"], start] += row["value"]
            start -= every
    assert {(row["key"], row["window_start"]): row["value"] for row in out} == dict(expected)
    assert len(out) == len(expected)


@dataclass
class Event:
    key: str
    value: int
    ts: int


@pytest.mark.parametrize("kind", [Event, dict, tuple])
def test_reduce_functions_may_return_any_kind_of_row(kind: Any) -> None:
    def larger(one: Any, other: Any) -> Any:
        values = (other["key"], max(_value(one), _value(other)), other["ts"])
        return values if kind is tuple else kind(**dict(zip(["key", "value", "ts"], values, strict=True)))

    def _value(row: Any) -> int:
        return int(row[1] if isinstance(row, tuple) else row.value)

    rows = [event("a", value, 1) for value in (3, 9, 4)]
    assert results(rows, lambda s: s.key_by("key").scan(larger))[-1]["value"] == 9


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, rows_max=st.integers(1, 10))
def test_a_scan_emits_the_state_of_its_key_after_every_row(rows: Rows, rows_max: int) -> None:
    out = results(rows, lambda s: s.key_by("key").scan(summed), rows_max=rows_max, time=None)
    totals: dict[str, int] = defaultdict(int)
    expected = defaultdict(list)
    for row in rows:
        totals[row["key"]] += row["value"]
        expected[row["key"]].append(totals[row["key"]])
    for key in "ab":
        assert [row["value"] for row in out if row["key"] == key] == expected[key]


def test_a_scan_need_not_commute() -> None:
    rows = [{"key": "a", "text": text} for text in "ordered"]
    out = results(
        rows,
        lambda s: s.key_by("key").scan(lambda one, other: {"key": one.key, "text": one.text + other.text}),
        schema={"key": str, "text": str},
        time=None,
        rows_max=2,
    )
    assert [row["text"] for row in out] == ["ordered"[: length + 1] for length in range(7)]


# --- failures ----------------------------------------------------------------------------------------------------------


def picky(one: Any, other: Any) -> Any:
    if other.value == 13:
        raise ValueError("unlucky")
    return summed(one, other)


def test_a_scan_leaves_a_row_out_that_its_function_fails_on() -> None:
    rows = [event("a", value, 0) for value in (1, 13, 2)]
    out, errors = split_results(rows, lambda s: s.key_by("key").scan(picky))
    assert [row["value"] for row in out] == [1, 3]
    assert [(row["operator"], row["error"]) for row in errors] == [("scan", "ValueError: unlucky.")]
    assert '"value": 13' in errors[0]["row"]


def test_a_scan_leaves_a_row_out_whose_result_does_not_fit() -> None:
    def sometimes_text(one: Any, other: Any) -> Any:
        return {**summed(one, other), "value": "many"} if other.value == 13 else summed(one, other)

    rows = [event("a", value, 0) for value in (1, 13, 2)]
    out, errors = split_results(rows, lambda s: s.key_by("key").scan(sometimes_text))
    assert [row["value"] for row in out] == [1, 3]
    (error,) = errors
    assert "'many'" in error["error"]
    assert "does not fit" in error["error"]


@pytest.mark.parametrize("rows_max", [1, 100])
@pytest.mark.parametrize("window", [WINDOW, dg.Session("5ms")], ids=["tumbling", "session"])
def test_rows_that_a_windowed_reduce_fails_on_are_kept_apart(rows_max: int, window: Any) -> None:
    def symmetric(one: Any, other: Any) -> Any:
        if 13 in (one.value, other.value):
            raise ValueError("unlucky")
        return summed(one, other)

    rows = [event("a", 1, 1), event("a", 2, 1), event("a", 13, 2), event("a", 4, 3), event("b", 5, 3)]
    out, errors = split_results(rows, lambda s: s.key_by("key").window(window).reduce(symmetric), rows_max=rows_max)
    assert {(row["key"], row["value"]) for row in out} == {("a", 7), ("b", 5)}
    assert [row["error"] for row in errors] == ["ValueError: unlucky."]
    assert '"value": 13' in errors[0]["row"]
    with pytest.raises(dg.RowFailure, match=r"operator 'reduce' cannot handle the row .*ValueError: unlucky\."):
        results(rows, lambda s: s.key_by("key").window(window).reduce(symmetric), rows_max=rows_max)


def test_a_windowed_reduce_whose_result_does_not_fit_names_it() -> None:
    rows = [event("a", 1, 1), event("a", 2, 1)]
    out, errors = split_results(
        rows, lambda s: s.key_by("key").window(WINDOW).reduce(lambda one, other: {"value": one.value + other.value})
    )
    assert len(out) == len(errors) == 1
    assert "does not fit: the field 'key' is missing" in errors[0]["error"]


@pytest.mark.parametrize("window", [WINDOW, dg.Session("5ms")], ids=["tumbling", "session"])
def test_the_rows_of_a_group_that_apply_fails_on_are_kept_apart(window: Any) -> None:
    def checked(group: dg.Group) -> Rows:
        if any(row.value == 13 for row in group.rows):
            raise ValueError("unlucky")
        return [{"total": sum(row.value for row in group.rows)}]

    rows = [event("a", 1, 1), event("b", 13, 1), event("b", 2, 2), event("b", 3, 25)]

    def build(stream: dg.Stream) -> dg.Stream:
        return stream.key_by("key").window(window).apply(checked, {"total": int})

    out, errors = split_results(rows, build)
    assert sorted(row["total"] for row in out) == [1, 3]
    assert {row["error"] for row in errors} == {"the function failed on the group key='b' of 2 rows: ValueError: unlucky."}
    assert len(errors) == 2
    with pytest.raises(dg.RowFailure, match=r"operator 'apply' cannot handle the row .* failed on the group key='b' of 2"):
        results(rows, build)


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        ({"total": 1}, "TypeError: it returned a value of type dict, not a list of rows."),
        (5, "TypeError: it returned a value of type int, not a list of rows."),
        ([{"totl": 1}], "did you mean 'total'?"),
        ([{"total": "x"}], "'x'"),
        (pa.record_batch({"totl": [1]}), "ValueError: it returned a batch without the column 'total'."),
        (pa.record_batch({"total": ["x"]}), "Failed to parse string: 'x'"),
    ],
)
def test_what_apply_cannot_use_is_described(result: Any, complaint: str) -> None:
    rows = [event("a", 1, 1)]
    out, errors = split_results(rows, lambda s: s.key_by("key").window(WINDOW).apply(lambda _: result, {"total": int}))
    assert out == []
    assert complaint in errors[0]["error"]


def test_group_failures_in_the_whole_stream_have_no_window() -> None:
    def fails(group: dg.Group) -> Rows:
        raise KeyError("x")

    out, errors = split_results([event("a", 1, 1)], lambda s: s.key_by("key").apply(fails, TS_SCHEMA))
    assert out == []
    assert unordered(errors)[0][0] == ("error", "the function failed on the group key='a' of 1 row: KeyError: 'x'.")


@settings(deadline=None, max_examples=25)
@given(rows=EVENTS, rows_max=st.integers(1, 10))
def test_a_reduce_by_key_alone_comes_at_the_end_of_the_input(rows: Rows, rows_max: int) -> None:
    out = results(rows, lambda s: s.key_by("key").reduce(summed), rows_max=rows_max, time=None)
    totals: dict[Any, int] = {}
    for row in rows:
        totals[row["key"]] = totals.get(row["key"], 0) + row["value"]
    assert {row["key"]: row["value"] for row in out} == totals
    assert len(out) == len(totals)
