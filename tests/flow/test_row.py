"""Rows of batches for plain Python, and batches of what plain Python returns."""

from __future__ import annotations

import copy
import math
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.rows.row import BadRowError, Row, batch_of, rows_of

SCHEMA = pa.schema({"auction": pa.int64(), "price": pa.float64(), "channel": pa.string()})
BATCH = pa.record_batch([[1, 2, 3], [1.5, None, 3.0], ["a", "b", None]], schema=SCHEMA)


class BidTuple(NamedTuple):
    channel: str | None
    auction: int
    price: float | None


@dataclass(frozen=True, slots=True)
class Bid:
    price: float | None
    auction: int
    channel: str | None


def first_row() -> Row:
    return next(rows_of(BATCH))


def test_values_are_read_by_item_and_by_attribute() -> None:
    assert [(row["auction"], row.price, row["channel"]) for row in rows_of(BATCH)] == [
        (1, 1.5, "a"),
        (2, None, "b"),
        (3, 3.0, None),
    ]


def test_a_row_is_a_mapping() -> None:
    row = first_row()
    assert isinstance(row, Mapping)
    assert dict(row) == {"auction": 1, "price": 1.5, "channel": "a"} == row.asdict()
    assert {**row, "price": 2} == {"auction": 1, "price": 2, "channel": "a"}
    assert list(row) == ["auction", "price", "channel"]
    assert len(row) == 3
    assert "price" in row
    assert "prise" not in row
    assert row.get("prise", 7) == 7
    assert row.get("auction") == 1


def test_rows_may_be_kept_and_compared() -> None:
    rows = list(rows_of(BATCH))
    assert rows == list(rows_of(BATCH))
    assert rows[0] != rows[1]
    assert rows[0] == {"auction": 1, "price": 1.5, "channel": "a"}
    assert rows[0] != (1, 1.5, "a")
    assert len({*rows, *rows_of(BATCH)}) == 3
    assert repr(rows[0]) == "Row(auction=1, price=1.5, channel='a')"


def test_a_row_cannot_be_changed() -> None:
    row: Any = first_row()
    with pytest.raises(AttributeError):
        row.price = 3
    with pytest.raises(AttributeError):
        row.other = 3
    with pytest.raises(TypeError):
        row["price"] = 3


def test_a_misspelt_column_brings_the_nearest() -> None:
    expected = "there is no column 'prise'; did you mean 'price'? The columns are auction, price, channel."
    with pytest.raises(KeyError) as key_error:
        first_row()["prise"]
    assert str(key_error.value) == expected
    with pytest.raises(AttributeError) as attribute_error:
        _ = first_row().prise
    assert str(attribute_error.value) == expected


def test_columns_named_like_methods_are_read_by_item() -> None:
    row = next(rows_of(pa.record_batch({"items": pa.array([5]), "two words": pa.array([6])})))
    assert row["items"] == 5
    assert row["two words"] == 6
    assert dict(row.items()) == {"items": 5, "two words": 6}


def test_only_the_row_itself_travels_in_a_pickle() -> None:
    many = pa.record_batch({"x": pa.array(range(100_000))})
    row = list(rows_of(many))[77]
    sent = pickle.dumps(row)
    assert len(sent) < 2_000
    assert pickle.loads(sent) == row == copy.copy(row) == {"x": 77}
    assert pickle.loads(sent).x == 77


def test_times_have_the_zone_of_their_column() -> None:
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_000)  # noqa: DTZ001
    berlin = pa.array([moment], pa.timestamp("us", "Europe/Berlin"))
    batch = pa.record_batch({"utc": pa.array([moment, None], pa.timestamp("ms", "UTC")), "naive": pa.array([moment, None])})
    first, second = rows_of(batch)
    assert first.utc == moment.replace(tzinfo=UTC)
    assert first.naive == moment
    assert second.utc is None
    zoned = next(rows_of(pa.record_batch({"t": berlin}))).t
    assert zoned == moment.replace(tzinfo=UTC)
    assert zoned.utcoffset() == timedelta(hours=1)


def test_slices_of_a_batch_have_their_own_rows() -> None:
    assert [row.auction for row in rows_of(BATCH.slice(1))] == [2, 3]
    assert list(rows_of(BATCH.slice(3))) == []


@pytest.mark.parametrize(
    "rows",
    [
        [{"auction": 1, "price": 1.5, "channel": "a"}, {"channel": "b", "auction": 2, "price": None}],
        [OrderedDict(auction=1, price=1.5, channel="a"), OrderedDict(channel="b", auction=2, price=None)],
        [BidTuple("a", 1, 1.5), BidTuple("b", 2, None)],
        [Bid(1.5, 1, "a"), Bid(None, 2, "b")],
        [(1, 1.5, "a"), (2, None, "b")],
        list(rows_of(BATCH.slice(0, 2))),
        [(1, 1.5, "a"), {"auction": 2, "price": None, "channel": "b"}],
        ((1, 1.5, "a"), BidTuple("b", 2, None)),
    ],
)
def test_rows_of_every_kind_make_the_same_batch(rows: Any) -> None:
    assert batch_of(rows, SCHEMA).equals(BATCH.slice(0, 2))


def test_no_rows_make_an_empty_batch() -> None:
    assert batch_of([], SCHEMA).equals(BATCH.slice(0, 0))


def test_one_column_is_enough() -> None:
    assert batch_of([{"x": 1}, {"x": 2}], pa.schema({"x": pa.int8()})).column(0).to_pylist() == [1, 2]
    assert batch_of([Bid(1.0, 1, "a")], SCHEMA).num_rows == 1


GOOD = {"auction": 1, "price": 1.5, "channel": "a"}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"auction": 1, "price": 1.5}, "the field 'channel' is missing"),
        ({**GOOD, "chanel": "x"}, "the field 'chanel' is not a column. The columns are auction, price, channel."),
        ({"auction": 1, "price": 1.5, "chanel": "a"}, "the field 'chanel' is not a column; did you mean 'channel'?"),
        ({**GOOD, "auction": "1"}, "the field 'auction' is '1' (str), but the column is int64."),
        ({**GOOD, "auction": 1.0}, "the field 'auction' is 1.0 (float), but the column is int64."),
        ({**GOOD, "auction": True}, "the field 'auction' is True (bool), but the column is int64."),
        ({**GOOD, "auction": 2**63}, "the field 'auction' is 9223372036854775808 (int), but the column is int64."),
        ({**GOOD, "price": "1.5"}, "the field 'price' is '1.5' (str), but the column is double."),
        ({**GOOD, "channel": 5}, "the field 'channel' is 5 (int), but the column is string."),
        ({**GOOD, "channel": b"a"}, "the field 'channel' is b'a' (bytes), but the column is string."),
        (defaultdict(int, auction=1, price=1.5, x=3), "the field 'x' is not a column"),
        ((1, 1.5), "the tuple has 2 values, but there are 3 columns: auction, price, channel."),
        ("abc", "'abc' is of type str; a row is a dict, Row, NamedTuple, dataclass or tuple."),
        (None, "None is of type NoneType; a row is"),
    ],
)
def test_the_first_row_that_does_not_fit_is_named(bad: Any, message: str) -> None:
    for rows in ([GOOD, GOOD, bad, GOOD, bad], [GOOD] * 2 + [bad]):
        with pytest.raises(BadRowError) as caught:
            batch_of(rows, SCHEMA)
        assert caught.value.position == 2
        assert message in caught.value.message
        assert str(caught.value).startswith("row 2: ")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.position, again.message) == (2, caught.value.message)


def test_the_first_bad_row_wins_even_if_a_later_one_is_bad_in_an_earlier_column() -> None:
    with pytest.raises(BadRowError) as caught:
        batch_of([GOOD, {**GOOD, "channel": 1}, {**GOOD, "auction": "x"}], SCHEMA)
    assert caught.value.position == 1


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, pa.float64()),
        (np.int32(3), pa.int64()),
        (np.float32(1.5), pa.float64()),
        (3, pa.decimal128(5, 1)),
        (Decimal("1.5"), pa.decimal128(5, 1)),
        (bytearray(b"x"), pa.binary()),
        (date(2020, 1, 1), pa.date32()),
        (timedelta(seconds=1), pa.duration("ms")),
        (datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2))), pa.timestamp("ms", "UTC")),
        ([1, None], pa.list_(pa.int64())),
        ({"a": 1}, pa.struct({"a": pa.int64()})),
        ("x", pa.dictionary(pa.int32(), pa.string())),
    ],
)
def test_values_of_the_right_kind_fit(value: Any, kind: pa.DataType) -> None:
    array = batch_of([{"x": value}, {"x": None}], pa.schema({"x": kind})).column(0)
    assert array.type == kind
    assert array.null_count == 1
    assert array[0].as_py() == value


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int64()),
        (300, pa.int8()),
        (1, pa.bool_()),
        (True, pa.float64()),
        (1.5, pa.decimal128(5, 1)),
        (Decimal("1.55"), pa.decimal128(5, 1)),
        (5, pa.timestamp("ms", "UTC")),
        (datetime(2020, 1, 1), pa.timestamp("ms", "UTC")),  # noqa: DTZ001
        (datetime(2020, 1, 1, tzinfo=UTC), pa.timestamp("ms")),
        (datetime(2020, 1, 1, tzinfo=UTC), pa.date32()),
        (date(2020, 1, 1), pa.timestamp("ms")),
        ("x", pa.binary()),
        ("\ud800", pa.string()),
        (["x"], pa.list_(pa.int64())),
        (5, pa.dictionary(pa.int32(), pa.string())),
    ],
)
def test_values_that_would_have_to_be_guessed_do_not_fit(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(BadRowError, match="the field 'x' is"):
        batch_of([{"x": value}], pa.schema({"x": kind}))


def test_a_column_without_nulls_takes_no_none() -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(BadRowError, match="row 1: the field 'x' is None, but the column allows no nulls"):
        batch_of([{"x": 1}, {"x": None}], schema)


COLUMN_VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "i64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "u64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "f64": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text()),
    "large": (pa.large_string(), st.text()),
    "raw": (pa.binary(), st.binary()),
    "flag": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates()),
    "us": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "naive": (pa.timestamp("us"), st.datetimes()),
    "span": (pa.duration("us"), st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000))),
    "money": (pa.decimal128(20, 3), st.integers(-(10**15), 10**15).map(lambda number: Decimal(number).scaleb(-3))),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(-5, 5), max_size=3)),
}


@pytest.mark.parametrize("name", COLUMN_VALUES)
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_rows_survive_the_way_into_a_batch_and_back(name: str, data: st.DataObject) -> None:
    kind, strategy = COLUMN_VALUES[name]
    schema = pa.schema({"number": pa.int64(), name: kind})
    values = data.draw(st.lists(st.none() | strategy, max_size=6))
    rows = [{"number": number, name: value} for number, value in enumerate(values)]
    batch = batch_of(rows, schema)
    assert batch.schema == schema
    assert [dict(each) for each in rows_of(batch)] == rows
    assert [dict(each) for each in rows_of(batch.slice(1))] == rows[1:]
    assert batch_of(list(rows_of(batch)), schema).equals(batch)
    assert batch_of([tuple(each.values()) for each in rows], schema).equals(batch)


@settings(deadline=None)
@given(st.lists(st.integers() | st.floats() | st.text() | st.none() | st.booleans() | st.binary(), max_size=20))
def test_a_batch_of_integers_accepts_exactly_the_integers(values: list[Any]) -> None:
    fits = [value is None or (type(value) is int and -(2**63) <= value < 2**63) for value in values]
    rows = [{"x": value} for value in values]
    schema = pa.schema({"x": pa.int64()})
    if all(fits):
        assert batch_of(rows, schema).column(0).to_pylist() == values
    else:
        with pytest.raises(BadRowError) as caught:
            batch_of(rows, schema)
        assert caught.value.position == fits.index(False)


def test_not_a_number_survives() -> None:
    batch = batch_of([{"x": math.nan}, {"x": math.inf}], pa.schema({"x": pa.float64()}))
    first, second = rows_of(batch)
    assert math.isnan(first.x)
    assert second.x == math.inf
