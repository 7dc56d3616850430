"""The tables an aggregation works with, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dirigo.flow.aggregates import count, distinct, first, histogram, last, max_, median, quantile, sum_, top
from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.expression import col, lit
from dirigo.flow.operators.windows.aggregation import Aggregation, Rows

_SCHEMA = pa.schema([("auction", pa.int64()), ("price", pa.int64()), ("url", pa.string()), ("tags", pa.list_(pa.string()))])


def _batch(auctions: list[Any], prices: list[Any]) -> pa.RecordBatch:
    rows = [{"auction": auction, "price": price} for auction, price in zip(auctions, prices, strict=True)]
    return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def test_scalars_share_a_table_and_lists_have_their_own() -> None:
    aggregates = {"n": count(), "kinds": distinct("url"), "sum": sum_("price"), "best": top(2, "price")}
    aggregation = Aggregation(_SCHEMA, ["auction"], aggregates)
    assert aggregation.slots == 3
    assert aggregation.partial_schema(0).names == ["__pane", "auction", "n.count", "sum.sum", "sum.carry"]
    assert aggregation.partial_schema(1).names == ["__pane", "auction", "kinds.value"]
    assert aggregation.partial_schema(2).names == ["__pane", "auction", "best.value"]
    assert aggregation.output_schema.names == ["auction", "n", "kinds", "sum", "best"]


@pytest.mark.parametrize(
    ("aggregate", "holistic"),
    [
        (count(), False),
        (top(3, "price"), False),
        (histogram("price", bins=[0, 1]), False),
        (histogram("price", width=1), True),
        (distinct("price"), True),
        (median("price"), True),
    ],
)
def test_what_grows_with_the_rows_is_holistic(aggregate: Any, holistic: bool) -> None:
    assert Aggregation(_SCHEMA, [], {"result": aggregate}).is_holistic is holistic


def test_a_batch_becomes_one_row_per_pane_and_key() -> None:
    aggregation = Aggregation(_SCHEMA, ["auction"], {"n": count(), "kinds": distinct("price")})
    table, kinds = aggregation.partial(_batch([7, 7, 8, 7], [1, 1, 1, 2]), np.array([0, 0, 0, 1]))
    assert table.to_pydict() == {"__pane": [0, 0, 1], "auction": [7, 8, 7], "n.count": [2, 1, 1]}
    assert kinds.to_pydict() == {"__pane": [0, 0, 1], "auction": [7, 8, 7], "kinds.value": [1, 1, 2]}


def test_merging_keeps_panes_apart_and_finishing_puts_them_together() -> None:
    aggregation = Aggregation(_SCHEMA, ["auction"], {"n": count()})
    one, two = (aggregation.partial(_batch([7, 8], [1, 1]), pane)[0] for pane in (0, 1))
    merged = aggregation.merge(0, pa.concat_batches([one, two, one]))
    assert merged.to_pydict() == {"__pane": [0, 0, 1, 1], "auction": [7, 8, 7, 8], "n.count": [2, 2, 1, 1]}
    assert aggregation.finish([merged]).to_pydict() == {"auction": [7, 8], "n": [3, 3]}


def test_a_table_that_is_compact_already_is_not_copied() -> None:
    aggregation = Aggregation(_SCHEMA, ["auction"], {"n": count(), "kinds": distinct("price"), "best": top(1, "price")})
    for slot, table in enumerate(aggregation.partial(_batch([7, 8], [1, 1]), 0)):
        assert aggregation.merge(slot, table) is table


def test_no_aggregates_means_the_distinct_keys() -> None:
    aggregation = Aggregation(_SCHEMA, ["auction"], {})
    assert aggregation.finish(aggregation.partial(_batch([7, 8, 7], [1, 1, 1]), 0)).to_pydict() == {"auction": [7, 8]}


def test_no_rows_give_no_rows() -> None:
    for keys in ([], ["auction"]):
        aggregation = Aggregation(_SCHEMA, keys, {"n": count(), "kinds": distinct("price"), "middle": median("price")})
        partials = aggregation.partial(_batch([], []), np.zeros(0, np.int64))
        assert [table.schema for table in partials] == [aggregation.partial_schema(slot) for slot in range(3)]
        merged = [aggregation.merge(slot, table) for slot, table in enumerate(partials)]
        result = aggregation.finish(merged)
        assert result.num_rows == 0
        assert result.schema == aggregation.output_schema


def test_list_rows_of_keys_that_have_no_scalar_row_are_ignored() -> None:
    aggregation = Aggregation(_SCHEMA, ["auction"], {"kinds": distinct("price"), "best": top(2, "price")})
    table, kinds, best = aggregation.partial(_batch([7, 8], [1, 2]), 0)
    result = aggregation.finish([table.slice(1), kinds, best])
    assert result.to_pydict() == {"auction": [8], "kinds": [1], "best": [[2]]}


@pytest.mark.parametrize(
    ("keys", "aggregates", "message"),
    [
        (["aucton"], {"n": count()}, "'aucton'; did you mean 'auction'"),
        ([], {"n": sum_("prise")}, "aggregate 'n'.*'prise'; did you mean 'price'"),
        ([], {"n": sum_(col("prise") + 1)}, "aggregate 'n'.*'prise'; did you mean 'price'"),
        ([], {"n": count("prise")}, "did you mean 'price'"),
        ([], {"n": distinct("prise")}, "did you mean 'price'"),
        ([], {"n": last("price", by="prise")}, "did you mean 'price'"),
        ([], {"n": count(where=col("prise") > 1)}, "did you mean 'price'"),
        ([], {"n": count(where=col("price") + 1)}, "where must be true or false"),
        ([], {"n": sum_("url")}, "sum needs numbers, but url is of type string"),
        ([], {"n": median("url")}, "median needs numbers"),
        ([], {"n": max_("tags")}, "max needs values that have an order"),
        ([], {"n": first("price")}, "needs an order"),
        ([], {"n": "price"}, "takes an aggregate"),
        ([], {}, "needs a key or an aggregate"),
        (["auction", "auction"], {}, "named twice"),
        (["auction"], {"auction": count()}, "a key has this name"),
    ],
)
def test_what_cannot_be_computed_is_refused_at_once(keys: list[str], aggregates: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowError, match=message):
        Aggregation(_SCHEMA, keys, aggregates)


def test_the_name_of_the_pane_column_is_refused() -> None:
    schema = pa.schema([("__pane", pa.int64())])
    with pytest.raises(FlowError, match="__pane"):
        Aggregation(schema, [], {"n": count()})
    with pytest.raises(FlowError, match="__pane"):
        Rows(schema, [])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: sum_(5),  # type: ignore[arg-type]
        lambda: count(where=True),  # type: ignore[arg-type]
        lambda: top(0, "price"),
        lambda: top("price", 3),  # type: ignore[arg-type]
        lambda: quantile("price", 1.5),
        lambda: quantile("price", "0.5"),  # type: ignore[arg-type]
        lambda: histogram("price"),
        lambda: histogram("price", bins=[1, 2], width=3),
        lambda: histogram("price", bins=[2, 1]),
        lambda: histogram("price", bins=[1]),
        lambda: histogram("price", width=0),
        lambda: histogram("price", width=float("inf")),
    ],
)
def test_arguments_that_make_no_sense_are_refused_where_they_are_written(wrong: Any) -> None:
    with pytest.raises(FlowError):
        wrong()


def test_a_literal_counts_for_every_row() -> None:
    aggregation = Aggregation(_SCHEMA, [], {"n": sum_(lit(2))})
    assert aggregation.finish(aggregation.partial(_batch([1, 2], [1, 1]), 0)).to_pydict() == {"n": [4]}


def test_rows_are_kept_as_they_are() -> None:
    rows = Rows(_SCHEMA, ["auction"])
    batch = _batch([7, 8], [1, 2])
    (one,) = rows.partial(batch, 3)
    (two,) = rows.partial(batch, np.array([4, 5]))
    assert one.schema == rows.partial_schema(0)
    assert one.column("__pane").to_pylist() == [3, 3]
    assert two.column("__pane").to_pylist() == [4, 5]
    assert rows.merge(0, one) is one
    assert rows.finish([one]).equals(batch)
    assert rows.finish([one, two]).to_pylist() == batch.to_pylist() * 2
    assert rows.finish(rows.partial(_batch([], []), 0)).schema == rows.output_schema
