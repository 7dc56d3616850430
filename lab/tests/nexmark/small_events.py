"""Tiny Nexmark tables for tests: random ones with many ties and exact window edges, and writing of any rows as Parquet."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]

_TIME = pa.timestamp("ms", tz="UTC")
SCHEMAS = {
    "person": pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("email_address", pa.string()),
            ("credit_card", pa.string()),
            ("city", pa.string()),
            ("state", pa.string()),
            ("date_time", _TIME),
            ("extra", pa.string()),
            ("event_number", pa.int64()),
        ]
    ),
    "auction": pa.schema(
        [
            ("id", pa.int64()),
            ("item_name", pa.string()),
            ("description", pa.string()),
            ("initial_bid", pa.int64()),
            ("reserve", pa.int64()),
            ("date_time", _TIME),
            ("expires", _TIME),
            ("seller", pa.int64()),
            ("category", pa.int64()),
            ("extra", pa.string()),
            ("event_number", pa.int64()),
        ]
    ),
    "bid": pa.schema(
        [
            ("auction", pa.int64()),
            ("bidder", pa.int64()),
            ("price", pa.int64()),
            ("channel", pa.string()),
            ("url", pa.string()),
            ("date_time", _TIME),
            ("extra", pa.string()),
            ("event_number", pa.int64()),
        ]
    ),
    "side_input": pa.schema([("key", pa.int64()), ("value", pa.string())]),
}

_MIDNIGHT = 1_436_918_400_000
# Around midnight, so that days change; and at hours of all kinds.
_MOMENTS = [_MIDNIGHT - 30_000, _MIDNIGHT, *(_MIDNIGHT + hour * 3_600_000 for hour in (6, 7, 8, 12, 18, 19, 20))]
_CHANNELS = ["apple", "Google", "FACEBOOK", "Baidu", "channel-17", "channel-9042"]
_URL_ENDS = [
    "item.htm?query=1",
    "item.htm?query=1&channel_id=1048576",
    "item.htm?query=1&channel_id=",
    "item.htm?channel_id=5",
]
_EXTRAS = ["", "c", "Ccc abc", 'it\'s "quoted" & größer', "no such letter; çć", "cccccccccc\n"]


def write_tables(folder: Path, tables: dict[str, list[Row]]) -> Path:
    """Writes each table of `tables` (and the others with no rows) to its own folder, in two files; returns `folder`."""
    for name, schema in SCHEMAS.items():
        rows = tables.get(name, [])
        (folder / name).mkdir(parents=True)
        half = len(rows) // 2
        for part, its_rows in enumerate((rows[:half], rows[half:])):
            pq.write_table(pa.Table.from_pylist(its_rows, schema=schema), folder / name / f"part-{part}.parquet")
    return folder


def person(id: int, date_time: int, event_number: int, **others: Any) -> Row:  # noqa: A002 - the column's own name
    """A person of whom only the given columns matter."""
    row = {"name": f"person {id}", "email_address": "a@b", "credit_card": "1", "city": "Boise", "state": "ID", "extra": ""}
    return {**row, "id": id, "date_time": date_time, "event_number": event_number, **others}


def auction(id: int, date_time: int, expires: int, event_number: int, **others: Any) -> Row:  # noqa: A002 - as above
    """An auction of which only the given columns matter."""
    row = {
        "item_name": f"item {id}",
        "description": "d",
        "initial_bid": 1,
        "reserve": 2,
        "seller": 1,
        "category": 10,
        "extra": "",
    }
    return {**row, "id": id, "date_time": date_time, "expires": expires, "event_number": event_number, **others}


def bid(auction: int, bidder: int, price: int, date_time: int, event_number: int, **others: Any) -> Row:
    """A bid of which only the given columns matter."""
    row = {"channel": "apple", "url": "https://example/a/b/c/item.htm", "extra": f"bid {event_number}"}
    return {
        **row,
        "auction": auction,
        "bidder": bidder,
        "price": price,
        "date_time": date_time,
        "event_number": event_number,
        **others,
    }


def side_input() -> list[Row]:
    """The bounded side input of q13."""
    return [{"key": key, "value": str(key)} for key in range(10_000)]


def random_tables(seed: int, events: int = 1500) -> dict[str, list[Row]]:
    """Few keys, few prices and times on a coarse grid, so that ties, touching sessions and window edges are common."""
    chance = random.Random(seed)
    tables: dict[str, list[Row]] = {"person": [], "auction": [], "bid": [], "side_input": side_input()}
    moments = sorted(chance.choice(_MOMENTS) + _offset(chance) for _ in range(events))
    for event_number, moment in enumerate(moments):
        kind = chance.choices(["person", "auction", "bid"], [1, 2, 12])[0]
        tables[kind].append(_random_row(kind, chance, len(tables[kind]), moment, event_number))
    for rows in tables.values():
        chance.shuffle(rows)
    return tables


def _offset(chance: random.Random) -> int:
    """Often a whole second, sometimes the millisecond before it, sometimes anything."""
    second = chance.randrange(30) * 1000
    return second + chance.choice([0, 0, 0, 500, -1, chance.randrange(1000)])


def _random_row(kind: str, chance: random.Random, count: int, moment: int, event_number: int) -> Row:
    extra = chance.choice(_EXTRAS)
    if kind == "person":
        state = chance.choice(["OR", "ID", "CA", "WA", "or"])
        return person(1000 + count, moment, event_number, state=state, name=chance.choice(["Ann", "Bob"]), extra=extra)
    if kind == "auction":
        expires = moment + chance.choice([0, 1000, 5000, 20_000, 30_000_000])
        seller = 1000 + chance.randrange(max(event_number // 15, 5))
        category = chance.randrange(10, 15)
        return auction(1000 + count, moment, expires, event_number, seller=seller, category=category, extra=extra)
    path = "/".join(chance.choice(["ab", "c_d", "x"]) for _ in range(3))
    start = chance.choice(["https://auctions/", "https://auctions/", "channel_id=77&at=//host/"])
    return bid(
        # Some auctions do not exist yet, and may never.
        chance.choice([chance.randrange(1000, 1000 + max(event_number // 6, 3)), chance.choice([984, 1107, 21_000])]),
        1000 + chance.randrange(40),
        chance.choice(
            [100, 9_999, 10_000, 999_999, 1_000_000, 1_101_321, 1_101_322, 55_066_079, 55_066_080, chance.randrange(10**8)]
        ),
        moment,
        event_number,
        channel=chance.choice(_CHANNELS),
        url=start + path + "/" + chance.choice(_URL_ENDS),
        extra=extra,
    )


def odd_tables(seed: int) -> dict[str, list[Row]]:
    """Random tables with what the generator never makes: persons twice, nulls, and urls that are short or strange."""
    chance = random.Random(seed)
    tables = random_tables(seed)
    again = [{**row, "date_time": row["date_time"] + chance.choice([0, 1, 700])} for row in tables["person"]]
    tables["person"] += [{**row, "name": chance.choice([row["name"], "Cid"])} for row in again if chance.random() < 0.5]
    for row in tables["bid"]:
        if chance.random() < 0.2:
            row["price"] = None
        if chance.random() < 0.3:
            row["url"] = chance.choice([None, "", "/", "a", "https://host", "https://host/a", "https://host/a//", "///x/y"])
        if chance.random() < 0.1:
            row["extra"] = None
    return tables
