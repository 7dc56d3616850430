"""The best rows of each key are those that sorting all rows would give, however they are spread, ordered and merged."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.errors import FlowError
from dirigo.flow.operators.windows.ranking import Ranking
from flow.aggregation_cases import SCHEMA, Row, rows, spread

By = list[tuple[str, bool]]


class _Reversed:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


def _place(row: Row, by: By) -> list[Any]:
    """Sorts best first; nulls last whatever the direction."""
    return [
        (row[name] is None, row[name] is not None and (_Reversed(row[name]) if down else row[name])) for name, down in by
    ]


def _best(some: list[Row], keys: list[str], n: int, by: By, ties: bool) -> list[Row]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in some:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    best = []
    for group in groups.values():
        group.sort(key=lambda row: _place(row, [*by, *((name, False) for name in SCHEMA.names)]))
        limit = n
        while ties and n <= limit < len(group) and _place(group[limit], by) == _place(group[n - 1], by):
            limit += 1
        best += [{**row, "number": number} for number, row in enumerate(group[:limit], 1)]
    return best


def _counted(some: list[Row], names: list[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in names) for row in some)


_BY = st.lists(
    st.tuples(st.sampled_from(SCHEMA.names), st.booleans()), min_size=1, max_size=3, unique_by=lambda pair: pair[0]
)


@settings(max_examples=150, deadline=None)
@given(
    rows(),
    st.sampled_from([[], ["name"], ["key", "b"]]),
    st.sampled_from([1, 1, 2, 3]),
    _BY,
    st.booleans(),
    st.sampled_from([None, "number"]),
    st.data(),
)
def test_the_best_rows_are_those_of_a_full_sort(
    some: list[Row], keys: list[str], n: int, by: By, ties: bool, rank: str | None, data: st.DataObject
) -> None:
    # A few rows twice: rows equal in all columns must neither vanish nor multiply.
    some = [*some, *some[:5]]
    ranking = Ranking(SCHEMA, keys, n, by, ties=ties, rank=rank)
    result = spread(ranking, some, data)
    assert result.schema == ranking.output_schema
    names = ranking.output_schema.names
    assert names == [*SCHEMA.names, *([rank] if rank else [])]
    assert _counted(result.to_pylist(), names) == _counted(_best(some, keys, n, by, ties), names)


_BIDS = pa.schema([("auction", pa.int64()), ("price", pa.int64()), ("tags", pa.list_(pa.string()))])


def _bids(*prices: int | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"auction": number, "price": price, "tags": [str(9 - number)]} for number, price in enumerate(prices)], schema=_BIDS
    )


def test_all_rows_with_the_maximum() -> None:
    ranking = Ranking(_BIDS, [], 1, [("price", True)], ties=True)
    (partial,) = ranking.partial(_bids(3, 9, None, 9, 1), 7)
    assert partial.column("auction").to_pylist() == [1, 3]
    assert partial.column("__pane").to_pylist() == [7, 7]
    assert partial.schema == ranking.partial_schema(0)
    assert partial.get_total_buffer_size() < 300, "a few rows must not keep the whole batch in memory"
    more = ranking.merge(0, pa.concat_batches([partial, *ranking.partial(_bids(9, 8), 7)]))
    assert more.column("auction").to_pylist() == [1, 3, 0]
    assert ranking.finish([more]).column("auction").to_pylist() == [1, 3, 0]
    many = ranking.partial(_bids(*[5] * 10, 4), 0)[0]
    assert many.num_rows == 10


def test_panes_are_kept_apart_until_the_end() -> None:
    ranking = Ranking(_BIDS, [], 1, [("price", True)])
    (partial,) = ranking.partial(_bids(3, 9, 4, 5), np.array([0, 0, 1, 1]))
    assert partial.column("price").to_pylist() == [9, 5]
    assert ranking.finish([partial]).column("price").to_pylist() == [9]


def test_lists_break_ties_too() -> None:
    schema = pa.schema([("price", pa.int64()), ("tags", pa.list_(pa.string()))])
    some = [{"price": 1, "tags": ["b"]}, {"price": 1, "tags": ["a"]}, {"price": 1, "tags": None}]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        batch = pa.RecordBatch.from_pylist([some[number] for number in order], schema=schema)
        for n in (1, 2):
            ranking = Ranking(schema, [], n, [("price", True)])
            found = ranking.finish(ranking.partial(batch, 0)).column("tags").to_pylist()
            assert found == [["a"], ["b"]][:n]


def test_no_rows_give_no_rows() -> None:
    ranking = Ranking(_BIDS, ["auction"], 2, [("price", True)], rank="number")
    partials = ranking.partial(_bids(), 0)
    assert partials[0].schema == ranking.partial_schema(0)
    result = ranking.finish([ranking.merge(0, partials[0])])
    assert result.num_rows == 0
    assert result.schema == ranking.output_schema
    assert Ranking(_BIDS, [], 1, [("price", True)], ties=True).merge(0, partials[0]).num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["aucton"], 1, [("price", True)]), "did you mean 'auction'"),
        (([], 1, [("prise", True)]), "did you mean 'price'"),
        (([], 0, [("price", True)]), "must be 1 or more"),
        (([], 1, []), "name the columns"),
        (([], 1, [("tags", True)]), "have an order"),
        (([], 1, [("price", True)], False, "price"), "'price' already"),
    ],
)
def test_what_cannot_be_ranked_is_refused_at_once(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(FlowError, match=message):
        Ranking(_BIDS, *arguments)


def test_times_and_texts_rank_like_numbers() -> None:
    schema = pa.schema([("at", pa.timestamp("ms")), ("text", pa.string())])
    some = [{"at": datetime(2024, 1, day), "text": text} for day, text in ((2, "b"), (3, "a"), (1, "c"))]  # noqa: DTZ001
    batch = pa.RecordBatch.from_pylist(some, schema=schema)
    for by, expected in (("at", ["a", "b"]), ("text", ["c", "b"])):
        ranking = Ranking(schema, [], 2, [(by, True)], rank="number")
        assert ranking.finish(ranking.partial(batch, 0)).column("text").to_pylist() == expected
