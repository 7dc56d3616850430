"""Every aggregate gives what plain Python computes, however the rows are spread, ordered and merged."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.aggregates import (
    Aggregate,
    avg,
    count,
    distinct,
    first,
    histogram,
    last,
    max_,
    median,
    min_,
    quantile,
    stddev,
    sum_,
    top,
    variance,
)
from dirigo.flow.expressions.expression import col
from dirigo.flow.operators.windows.aggregation import Aggregation
from flow.aggregation_cases import SCHEMA, Row, batch_of, rows, spread

Plain = Callable[[list[Row]], Any]


def _present(some: list[Row], column: str) -> list[Any]:
    return [row[column] for row in some if row[column] is not None]


def _of(column: str, function: Callable[[list[Any]], Any], nothing: Any = None) -> Plain:
    def compute(some: list[Row]) -> Any:
        values = _present(some, column)
        return function(values) if values else nothing

    return compute


def _pick(column: str, by: str, latest: bool) -> Plain:
    def compute(some: list[Row]) -> Any:
        pairs = [(row[by], row[column]) for row in some if row[by] is not None and row[column] is not None]
        return (max(pairs) if latest else min(pairs))[1] if pairs else None

    return compute


def _quantile(values: list[Any], q: float) -> float:
    values = sorted(map(float, values))
    place = q * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return float(values[low] + (values[high] - values[low]) * (place - low))


def _spread(values: list[Any], root: bool) -> float | None:
    if len(values) < 2:
        return None
    return statistics.stdev(map(float, values)) if root else statistics.variance(map(float, values))


def _by_edges(values: list[float], edges: list[float]) -> list[Row]:
    return [{"low": a, "high": b, "count": sum(a <= value < b for value in values)} for a, b in pairwise(edges)]


def _by_width(values: list[float], width: float) -> list[Row]:
    counts = Counter(math.floor(value / width) for value in values)
    return [{"low": n * width, "high": (n + 1) * width, "count": counts[n]} for n in sorted(counts)]


_EDGES = [-3.0, 0.0, 0.5, 4.0]

_CASES: dict[str, tuple[Aggregate, Plain]] = {
    "count": (count(), len),
    "count of": (count("s"), lambda some: len(_present(some, "s"))),
    "sum int": (sum_("x"), _of("x", sum)),
    "sum small": (sum_("small"), _of("small", sum)),
    "sum float": (sum_("f"), _of("f", sum)),
    "sum decimal": (sum_("d"), _of("d", sum)),
    "sum expression": (sum_(col("x") + 1), _of("x", lambda values: sum(values) + len(values))),
    "avg int": (avg("x"), _of("x", lambda values: sum(values) / len(values))),
    "avg float": (avg("f"), _of("f", lambda values: sum(values) / len(values))),
    "variance": (variance("f"), _of("f", lambda values: _spread(values, root=False))),
    "stddev": (stddev("small"), _of("small", lambda values: _spread(values, root=True))),
    **{f"min {name}": (min_(name), _of(name, min)) for name in SCHEMA.names},
    **{f"max {name}": (max_(name), _of(name, max)) for name in SCHEMA.names},
    **{f"distinct {name}": (distinct(name), _of(name, lambda v: len(set(v)), 0)) for name in SCHEMA.names},
    **{f"first {name}": (first(name), _pick(name, "t", latest=False)) for name in ("x", "s", "d", "f")},
    **{f"last {name}": (last(name), _pick(name, "t", latest=True)) for name in ("x", "s", "b", "t")},
    "last by float": (last("s", by="f"), _pick("s", "f", latest=True)),
    "first by text": (first("x", by="s"), _pick("x", "s", latest=False)),
    **{
        f"top {name}": (top(2, name), _of(name, lambda v: sorted(v, reverse=True)[:2], []))
        for name in ("x", "s", "f", "d", "t")
    },
    "median": (median("x"), _of("x", lambda values: _quantile(values, 0.5))),
    "median decimal": (median("d"), _of("d", lambda values: _quantile(values, 0.5))),
    "quantile": (quantile("f", 0.9), _of("f", lambda values: _quantile(values, 0.9))),
    "lowest quantile": (quantile("small", 0), _of("small", lambda values: _quantile(values, 0))),
    "highest quantile": (quantile("small", 1), _of("small", lambda values: _quantile(values, 1))),
    "edges": (histogram("f", bins=_EDGES), lambda some: _by_edges(_present(some, "f"), _EDGES)),
    "width": (histogram("f", width=2.0), lambda some: _by_width(_present(some, "f"), 2.0)),
    "count where": (
        count(where=col("x") > 0),
        lambda some: len([1 for row in some if row["x"] is not None and row["x"] > 0]),
    ),
    "sum where": (sum_("f", where=col("b")), lambda some: _of("f", sum)([row for row in some if row["b"]])),
    "max where": (max_("s", where=col("b")), lambda some: _of("s", max)([row for row in some if row["b"]])),
    "last where": (last("x", where=col("b")), lambda some: _pick("x", "t", latest=True)([row for row in some if row["b"]])),
    "distinct where": (
        distinct("s", where=col("b")),
        lambda some: _of("s", lambda v: len(set(v)), 0)([row for row in some if row["b"]]),
    ),
}


def _groups(some: list[Row], keys: list[str]) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in some:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def _check(names: list[str], keys: list[str], some: list[Row], data: st.DataObject) -> None:
    aggregation = Aggregation(SCHEMA, keys, {name: _CASES[name][0] for name in names}, time="t")
    result = spread(aggregation, some, data)
    assert result.schema == aggregation.output_schema
    result.validate(full=True)
    groups = _groups(some, keys)
    assert result.num_rows == len(groups)
    for row in result.to_pylist():
        group = groups.pop(tuple(row[key] for key in keys))
        for name in names:
            expected = _CASES[name][1](group)
            assert row[name] == (pytest.approx(expected) if isinstance(expected, float) else expected), name


_KEYS = st.sampled_from([[], ["key"], ["name"], ["key", "name"], ["t", "b"]])


@pytest.mark.parametrize("name", _CASES)
@settings(max_examples=8, deadline=None)
@given(rows(), _KEYS, st.data())
def test_an_aggregate_is_that_of_all_rows(name: str, some: list[Row], keys: list[str], data: st.DataObject) -> None:
    _check([name], keys, some, data)


@settings(max_examples=60, deadline=None)
@given(rows(), _KEYS, st.lists(st.sampled_from(sorted(_CASES)), unique=True, max_size=6), st.data())
def test_several_aggregates_together(some: list[Row], keys: list[str], names: list[str], data: st.DataObject) -> None:
    if keys or names:
        _check(names, keys, some, data)


def _one(aggregate: Aggregate, values: list[Any], kind: pa.DataType) -> Any:
    """The aggregate of a column, each value having come in a batch of its own."""
    schema = pa.schema([("v", kind)])
    aggregation = Aggregation(schema, [], {"result": aggregate}, time="v")
    tables = [aggregation.partial(pa.RecordBatch.from_pylist([{"v": value}], schema), 0) for value in values]
    slots = [pa.concat_batches(slot) for slot in zip(*tables, strict=True)]
    merged = [aggregation.merge(slot, table) for slot, table in enumerate(slots)]
    (row,) = aggregation.finish(merged).to_pylist()
    return row["result"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.uint64(), [2**64 - 1, 0, 2**63]),
        (pa.int64(), [2**63 - 1, -(2**63), 0]),
        (pa.int8(), [-128, 127, 0]),
        (pa.float32(), [1.5, -1.5, 0.0]),
        (pa.float64(), [float("inf"), float("-inf"), 1e-300]),
        (pa.date32(), [-1, 0, 19000]),
        (pa.time64("us"), [5, 0, 7]),
        (pa.duration("s"), [-5, 0, 7]),
        (pa.large_string(), ["b", "", "a"]),
        (pa.binary(), [b"\xff", b"", b"\x00"]),
    ],
)
def test_order_holds_for_every_type_up_to_its_limits(kind: pa.DataType, values: list[Any]) -> None:
    values = pa.array(values, kind).to_pylist()
    assert _one(min_("v"), values, kind) == min(values)
    assert _one(max_("v"), values, kind) == max(values)
    assert _one(first("v"), values, kind) == min(values)
    assert _one(last("v"), values, kind) == max(values)
    assert _one(top(2, "v"), values, kind) == sorted(values, reverse=True)[:2]
    assert _one(distinct("v"), [*values, *values], kind) == 3


def test_not_a_number_is_larger_than_every_number() -> None:
    values = [1.0, float("nan"), float("inf")]
    assert math.isnan(_one(max_("v"), values, pa.float64()))
    assert _one(min_("v"), values, pa.float64()) == 1.0
    assert math.isnan(_one(min_("v"), [float("nan")], pa.float64()))
    assert _one(distinct("v"), [float("nan"), float("nan"), 0.0, -0.0], pa.float64()) == 2
    assert _one(histogram("v", width=1), [*values, float("-inf")], pa.float64()) == [{"low": 1.0, "high": 2.0, "count": 1}]


def test_a_sum_of_integers_beyond_64_bits_is_an_error_that_names_the_column() -> None:
    with pytest.raises(OverflowError, match=r"sum\(v\)"):
        _one(sum_("v"), [2**63 - 1, 1], pa.int64())
    with pytest.raises(OverflowError, match=r"sum\(v\)"):
        _one(sum_("v"), [2**64 - 1], pa.uint64())
    assert _one(sum_("v"), [2**63 - 1, -(2**63), 2**62], pa.int64()) == 2**62 - 1


def test_large_sums_are_exact() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    values = [2**62, -(2**62), 2**62 - 1, 3, -7, 2**61]
    batch = pa.record_batch({"k": [0, 0, 1, 1, 1, 0], "v": values})
    aggregation = Aggregation(schema, ["k"], {"sum": sum_("v")})
    result = aggregation.finish(aggregation.partial(batch, 0)).to_pydict()
    assert result == {"k": [0, 1], "sum": [2**61, 2**62 - 5]}


def test_a_decimal_sum_beyond_38_digits_is_an_error() -> None:
    kind = pa.decimal128(38, 0)
    largest = pa.scalar("9" * 38).cast(kind).as_py()
    assert _one(sum_("v"), [largest, largest.copy_negate(), largest], kind) == largest
    with pytest.raises(OverflowError, match="38 digits"):
        _one(sum_("v"), [largest, largest], kind)


def test_a_variance_far_from_zero_does_not_cancel_out() -> None:
    assert _one(variance("v"), [1e9 + 1, 1e9 + 2, 1e9 + 3], pa.float64()) == pytest.approx(1.0)


def test_a_dictionary_column_is_read_as_its_values() -> None:
    column = pa.array(["b", "a", "b", None]).dictionary_encode()
    batch = pa.record_batch({"k": column, "v": column})
    aggregates = {"most": max_("v"), "kinds": distinct("v"), "list": top(5, "v")}
    aggregation = Aggregation(batch.schema, ["k"], aggregates)
    assert aggregation.finish(aggregation.partial(batch, 1)).to_pylist() == [
        {"k": "b", "most": "b", "kinds": 1, "list": ["b", "b"]},
        {"k": "a", "most": "a", "kinds": 1, "list": ["a"]},
        {"k": None, "most": None, "kinds": 0, "list": []},
    ]


def test_an_aggregate_reads_as_it_was_written() -> None:
    assert str(count()) == "count()"
    assert str(sum_("price", where=col("price") > 5)) == "sum(price, where=price > 5)"
    assert str(last("x", by="t")) == "last(x, by=t)"
    assert str(quantile("x", 0.99)) == "quantile(x, 0.99)"
    assert str(median("x")) == "median(x)"
    assert str(top(3, "x")) == "top(x, n=3)"
    assert str(histogram("x", bins=[0, 1.5])) == "histogram(x, bins=[0, 1.5])"


def test_all_rows_may_be_left_out() -> None:
    some = [dict.fromkeys(SCHEMA.names) | {"key": 1}]
    aggregation = Aggregation(SCHEMA, ["key"], {name: case[0] for name, case in _CASES.items() if name != "key"}, time="t")
    (row,) = aggregation.finish(aggregation.partial(batch_of(some), 0)).to_pylist()
    for name, (_, plain) in _CASES.items():
        assert row[name] == plain(some), name


def test_a_slice_of_decimals_without_nulls_is_read_from_its_own_place() -> None:
    batch = pa.record_batch({"v": pa.array([90, 1, 2], pa.decimal128(20, 0))}).slice(1)
    aggregation = Aggregation(batch.schema, [], {"sum": sum_("v"), "max": max_("v")})
    assert aggregation.finish(aggregation.partial(batch, 0)).to_pylist() == [{"sum": 3, "max": 2}]
