"""Whether a sum fits depends on the values of its group alone: not on their order, nor on which of them were added first."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from dirigo.flow.aggregates import Aggregate, avg, sum_
from dirigo.flow.operators.windows.aggregation import Aggregation
from dirigo.testing import run
from flow.flows import unordered

Outcome = Any  # rows, or why there are none
_TOO_LARGE = "too large"
_EXACT = Context(prec=80)

_NINES = Decimal("9" * 38)
_MANY_NINES = _NINES.scaleb(-3, _EXACT)
_INTEGERS = st.integers(-9, 9) | st.sampled_from([2**62, -(2**62), 2**63 - 1, -(2**63), 2**63 - 2, 2**32, -(2**32) - 1])
_KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), _INTEGERS),
    (pa.uint64(), st.integers(0, 9) | st.sampled_from([2**64 - 1, 2**63, 2**63 - 1, 2**32])),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.uint8(), st.integers(0, 255)),
    (
        pa.decimal128(38, 0),
        st.integers(-9, 9).map(Decimal) | st.sampled_from([_NINES, _NINES.copy_negate()]),
    ),
    (pa.decimal128(38, 3), st.sampled_from([_MANY_NINES, _MANY_NINES.copy_negate(), Decimal("0.125")])),
    (pa.decimal128(20, 2), st.sampled_from([Decimal("999999999999999999.99"), Decimal("-7.50"), Decimal(2**55)])),
]


# --- partial sums ------------------------------------------------------------------------------------------------------


def _spread(aggregate: Aggregate, column: pa.Array, keys: list[int], data: st.DataObject) -> dict[int, Any] | str:
    """The values by key, or that one is too large, when rows and partial sums come together as chance will have it."""
    rows = pa.record_batch({"key": pa.array(keys, pa.int64()), "v": column})
    work = Aggregation(rows.schema, ["key"], {"result": aggregate})
    order = data.draw(st.permutations(range(len(keys))))
    pieces = []
    while order:
        size = data.draw(st.integers(1, len(order)), "rows of the next batch")
        pieces.append(work.partial(rows.take(pa.array(order[:size])), 0)[0])
        order = order[size:]
    while len(pieces) > 1 and data.draw(st.booleans(), "merge some"):
        size = data.draw(st.integers(1, len(pieces)), "how many")
        merged = work.merge(0, pa.concat_batches(pieces[:size]))
        merged.validate(full=True)
        pieces = data.draw(st.permutations([merged, *pieces[size:]]))
    try:
        result = work.finish([pa.concat_batches(pieces)])
    except OverflowError:
        return _TOO_LARGE
    return {row["key"]: row["result"] for row in result.to_pylist()}


def _by_key(keys: list[int], values: list[Any]) -> dict[int, list[Any]]:
    return {key: [value for k, value in zip(keys, values, strict=True) if k == key and value is not None] for key in keys}


def _exact(values: list[Any]) -> Any:
    total: Any = 0
    for value in values:
        total = _EXACT.add(Decimal(total), value) if isinstance(value, Decimal) else total + value
    return total


@pytest.mark.parametrize(("kind", "numbers"), _KINDS, ids=[str(kind) for kind, _ in _KINDS])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_sum_is_the_total_or_too_large_in_whatever_order_it_was_added_up(
    kind: pa.DataType, numbers: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.none() | numbers, min_size=1, max_size=12))
    keys = data.draw(st.lists(st.integers(0, 1), min_size=len(values), max_size=len(values)))
    column = pa.array(values, kind)
    expected: dict[int, Any] = {key: _exact(group) if group else None for key, group in _by_key(keys, values).items()}
    largest = _NINES.scaleb(-kind.scale, _EXACT) if pa.types.is_decimal(kind) else 2**63 - 1
    least = largest.copy_negate() if isinstance(largest, Decimal) else -(2**63)
    fits = all(total is None or least <= total <= largest for total in expected.values())
    assert _spread(sum_("v"), column, keys, data) == (expected if fits else _TOO_LARGE)
    means = _spread(avg("v"), column, keys, data)
    assert isinstance(means, dict)
    for key, group in _by_key(keys, values).items():
        assert means[key] == (float(Fraction(expected[key]) / len(group)) if group else None)


_MEANS: list[tuple[pa.DataType, Callable[[Random], Any]]] = [
    (pa.decimal128(20, 2), lambda random: Decimal(random.randrange(10**6)).scaleb(-2)),
    (pa.decimal128(20, 2), lambda random: Decimal(random.randrange(-(10**20) + 1, 10**20)).scaleb(-2)),
    (pa.decimal128(38, 20), lambda random: Decimal(random.randrange(10**30)).scaleb(-20, _EXACT)),
    (pa.decimal128(38, 38), lambda random: Decimal(random.randrange(10**38)).scaleb(-38, _EXACT)),
    (pa.decimal128(5, -3), lambda random: Decimal(random.randrange(10**5)).scaleb(3)),
    (pa.int64(), lambda random: random.randrange(-(2**62), 2**62)),
    (pa.int64(), lambda random: random.randrange(2**63 - 2**40, 2**63)),
    (pa.uint64(), lambda random: random.randrange(2**64)),
    (pa.int64(), lambda random: random.randrange(-1000, 1000)),
]


@pytest.mark.parametrize(("kind", "number"), _MEANS, ids=[f"{kind} {at}" for at, (kind, _) in enumerate(_MEANS)])
def test_a_mean_of_whole_numbers_or_decimals_is_the_float_nearest_to_the_exact_one(
    kind: pa.DataType, number: Callable[[Random], Any]
) -> None:
    random = Random(3)
    groups = [[number(random) for _ in range(random.choice([1, 2, 3, 7, 10]))] for _ in range(300)]
    keys = [key for key, group in enumerate(groups) for _ in group]
    column = pa.array([value for group in groups for value in group], kind)
    rows = pa.record_batch({"key": keys, "v": column})
    work = Aggregation(rows.schema, ["key"], {"mean": avg("v")})
    exact = {key: float(sum(map(Fraction, group)) / len(group)) for key, group in enumerate(groups)}
    one = work.partial(rows, 0)[0]
    apart = [work.partial(rows.slice(start, 2), 0)[0] for start in range(0, rows.num_rows, 2)]
    for table in (one, work.merge(0, pa.concat_batches(apart))):
        assert {row["key"]: row["mean"] for row in work.finish([table]).to_pylist()} == exact


def test_a_mean_is_the_same_to_the_last_digit_whether_or_not_its_sum_fits() -> None:
    work = Aggregation(pa.schema([("v", pa.int64())]), [], {"mean": avg("v")})
    values = [2**63 - 1] * 5
    one = work.partial(pa.record_batch({"v": values}), 0)[0]
    apart = pa.concat_batches([work.partial(pa.record_batch({"v": [value]}), 0)[0] for value in values])
    for table in (one, apart, work.merge(0, apart)):
        assert work.finish([table]).to_pylist() == [{"mean": float(2**63 - 1)}]


# --- flows -------------------------------------------------------------------------------------------------------------

_SCHEMA = {"key": str, "v": int, "ts": int}
_EXTREMES = [2**62, 2**62, -(2**62), -(2**62)]

Build = Callable[[dg.Stream], dg.WindowedStream | dg.KeyedStream]
_BUILDS: dict[str, Build] = {
    "whole stream": lambda s: s.key_by("key"),
    "tumbling": lambda s: s.key_by("key").window(dg.Tumbling("8ms")),
    "sliding": lambda s: s.key_by("key").window(dg.Sliding("6ms", every="2ms")),
    "session": lambda s: s.key_by("key").window(dg.Session("2ms")),
    "no key": lambda s: s.window(dg.Tumbling("20ms")),
}


def _outcome(build: Build, rows: list[tuple[str, int, int]], aggregate: Aggregate, **options: Any) -> Outcome:
    flow = dg.Dataflow("sums", watermark_every="1ms", partitions=2, combines_early=options.pop("combines_early", True))
    stream = flow.source(dg.from_iterable(rows, _SCHEMA, time="ts", out_of_orderness="50ms"))
    build(stream).aggregate(result=aggregate).sink(dg.to_memory())
    try:
        return unordered(run(flow, **options).rows())
    except dg.OperatorFailure as error:
        return _TOO_LARGE if "is beyond the range of 64-bit integers" in str(error) else str(error)


@pytest.mark.parametrize("name", _BUILDS)
def test_where_messages_run_does_not_decide_whether_a_sum_fits(name: str) -> None:
    rng = Random(name)
    outcomes = set()
    for seed in range(16):
        values = _EXTREMES if seed % 2 else [*_EXTREMES, 2**62, 2**62]
        rows = [(rng.choice("ab"), value, ts) for ts, value in enumerate([*values, 7, -7, *values])]
        rng.shuffle(rows)
        expected = _outcome(_BUILDS[name], rows, sum_("v"))
        outcomes.add(expected == _TOO_LARGE)
        for combines_early in (True, False):
            options = {"workers": 3, "chaos": True, "seed": seed, "rows_max": 2, "combines_early": combines_early}
            assert _outcome(_BUILDS[name], rows, sum_("v"), **options) == expected
    assert outcomes == {True, False}  # or nothing was tried


@pytest.mark.parametrize("aggregate", [sum_("v"), avg("v")], ids=["sum", "avg"])
@pytest.mark.parametrize("rows_max", [1, 2, 3, 4])
def test_a_sum_that_fits_is_never_refused_on_its_way(aggregate: Aggregate, rows_max: int) -> None:
    rows = [("a", value, 0) for value in _EXTREMES]
    for seed in range(10):
        found = _outcome(_BUILDS["whole stream"], rows, aggregate, workers=3, chaos=True, seed=seed, rows_max=rows_max)
        assert [dict(row)["result"] for row in found] == [0]


@pytest.mark.parametrize("name", _BUILDS)
def test_a_mean_never_fails(name: str) -> None:
    rows = [("a", 2**63 - 1, ts) for ts in range(6)]
    found = _outcome(_BUILDS[name], rows, avg("v"), workers=3, chaos=True, rows_max=2)
    assert {dict(row)["result"] for row in found} == {float(2**63)}


def test_a_total_that_is_shown_at_a_watermark_has_to_fit_too() -> None:
    flow = dg.Dataflow("updates", watermark_every="0ms")
    rows = [("a", value, ts) for ts, value in enumerate([2**62, 2**62, -(2**62)])]
    stream = flow.source(dg.from_iterable(rows, _SCHEMA, time="ts"))
    stream.key_by("key").aggregate(result=sum_("v"), emit="watermark").sink(dg.to_memory())
    with pytest.raises(dg.OperatorFailure, match="is beyond the range of 64-bit integers"):
        run(flow, rows_max=1)
    assert run(flow, rows_max=3).rows()[-1]["result"] == 2**62  # no watermark in between, so no such total
