"""Schemas as users write them, and the errors about columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NotRequired, Optional, TypedDict

import pyarrow as pa
import pytest

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.schema import as_schema, as_type, require_columns, unknown_column


@dataclass
class Place:
    city: str
    zip_code: int


@dataclass
class Bid:
    auction: int
    price: float | None
    tags: list[str]
    at: datetime
    place: Place


class BidTuple(NamedTuple):
    auction: int
    note: Optional[str]  # noqa: UP045


class BidDict(TypedDict):
    auction: int
    note: NotRequired[str]


def test_a_schema_stays_as_it_is() -> None:
    schema = pa.schema({"a": pa.int8()})
    assert as_schema(schema, "source") is schema


@pytest.mark.parametrize(
    ("like", "expected"),
    [
        (int, pa.int64()),
        (float, pa.float64()),
        (str, pa.string()),
        (bool, pa.bool_()),
        (bytes, pa.binary()),
        (datetime, pa.timestamp("ms", "UTC")),
        (date, pa.date32()),
        (time, pa.time64("us")),
        (timedelta, pa.duration("ms")),
        (Decimal, pa.decimal128(28, 9)),
        (int | None, pa.int64()),
        (list[int], pa.list_(pa.int64())),
        (Sequence[str], pa.list_(pa.string())),
        (Annotated[int, "count"], pa.int64()),
        (pa.int16(), pa.int16()),
        ("int64", pa.int64()),
        ("string", pa.string()),
        ("timestamp[ms, UTC]", pa.timestamp("ms", "UTC")),
        ("timestamp[us, tz=Europe/Berlin]", pa.timestamp("us", "Europe/Berlin")),
        ("timestamp[s]", pa.timestamp("s")),
        ("decimal(23, 3)", pa.decimal128(23, 3)),
        ("decimal128(5)", pa.decimal128(5, 0)),
        ("list<timestamp[ms]>", pa.list_(pa.timestamp("ms"))),
        (Place, pa.struct({"city": pa.string(), "zip_code": pa.int64()})),
    ],
)
def test_types_are_read_from_what_is_handy(like: Any, expected: pa.DataType) -> None:
    assert as_type(like, "cast") == expected
    assert as_schema({"x": like}, "source") == pa.schema({"x": expected})


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.string(), pa.bool_(), pa.float64(), pa.timestamp("ms", "UTC"), pa.decimal128(23, 3), pa.date32()],
)
def test_the_text_of_a_type_reads_back_as_that_type(kind: pa.DataType) -> None:
    # Only date32 shows its unit in a way that is no alias.
    assert as_type(str(kind).removesuffix("[day]"), "cast") == kind


def test_a_dataclass_is_a_schema() -> None:
    assert as_schema(Bid, "source").names == ["auction", "price", "tags", "at", "place"]
    assert as_schema(Bid, "source").field("tags").type == pa.list_(pa.string())


def test_a_named_tuple_is_a_schema() -> None:
    assert as_schema(BidTuple, "source") == pa.schema({"auction": pa.int64(), "note": pa.string()})


def test_a_typed_dictionary_is_a_schema() -> None:
    assert as_schema(BidDict, "source") == pa.schema({"auction": pa.int64(), "note": pa.string()})


@pytest.mark.parametrize("like", [None, int, "int64", [("a", int)], object()])
def test_what_is_no_schema_is_refused(like: Any) -> None:
    with pytest.raises(FlowError, match=r"^source: .* is not a schema; give a pyarrow\.Schema"):
        as_schema(like, "source")


@pytest.mark.parametrize("like", [object, int | str, dict[str, int], 5, None, "text", "decimal(99, 1)", "timestamp[m]"])
def test_what_is_no_type_is_refused_with_the_column(like: Any) -> None:
    with pytest.raises(FlowError, match="source, column 'x': "):
        as_schema({"x": like}, "source")


def test_a_misspelt_alias_brings_the_nearest() -> None:
    with pytest.raises(FlowError, match="'in64' is not a type; did you mean 'int64'"):
        as_type("in64", "cast")


def test_schemas_without_columns_or_with_one_twice_are_refused() -> None:
    with pytest.raises(FlowError, match="source: the schema has no columns"):
        as_schema({}, "source")
    with pytest.raises(FlowError, match="the column 'a' more than once"):
        as_schema(pa.schema([("a", pa.int8()), ("b", pa.int8()), ("a", pa.int8())]), "source")
    with pytest.raises(FlowError, match="the column name 1 is not text"):
        as_schema({1: int}, "source")


def test_annotations_that_cannot_be_resolved_are_refused() -> None:
    @dataclass
    class Hidden:
        x: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(FlowError, match="annotations of Hidden cannot be resolved"):
        as_schema(Hidden, "source")


def test_columns_that_are_there_pass() -> None:
    require_columns(pa.schema({"a": pa.int8(), "b": pa.int8()}), ["b", "a"], "select")


def test_a_column_that_is_not_there_is_named_with_the_nearest() -> None:
    schema = as_schema({"auction": int, "bidder": int, "price": int}, "source")
    with pytest.raises(FlowError) as caught:
        require_columns(schema, ["auction", "prise"], "filter")
    expected = "filter: there is no column 'prise'; did you mean 'price'? The columns are auction, bidder, price."
    assert str(caught.value) == expected


def test_the_case_of_letters_does_not_hide_the_nearest_column() -> None:
    assert "did you mean 'date_time'?" in str(unknown_column("DATE_TIME", ["price", "date_time"], "key"))


def test_a_column_like_no_other_gets_no_suggestion() -> None:
    assert str(unknown_column("zzz", ["price"], "key")) == "key: there is no column 'zzz'. The columns are price."
