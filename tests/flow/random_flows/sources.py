"""Sources of random flows: few or many rows, near or far in time, in four units of time, out of order within bounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow as pa

import dirigo as dg
from flow.flows import Rows
from flow.random_flows.made import Made

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def random_source(flow: dg.Dataflow, rng: Random, name: str, base_ms: int) -> Made:
    disorder_ms = rng.choice([0, 100, 3000])
    rows = _random_rows(rng, base_ms, disorder_ms)
    unit = rng.choice(["int", "ms", "us", "ns"])
    zone = rng.choice([None, "UTC"])
    time_type = pa.int64() if unit == "int" else pa.timestamp(unit, tz=zone)
    schema = pa.schema(
        [("time", time_type), ("key", pa.int64()), ("group", pa.string()), ("value", pa.int64()), ("number", pa.int64())]
    )
    given = rows if unit == "int" else [row | {"time": _as_datetime(row["time"], zone)} for row in rows]
    source = dg.from_iterable(given, schema, time="time", out_of_orderness=f"{disorder_ms}ms", name=name)
    described = f"{len(rows)} rows with times in {unit}, zone {zone}, up to {disorder_ms} ms out of order"
    return Made(flow.source(source), rows, described, time="time")


def _random_rows(rng: Random, base_ms: int, disorder_ms: int) -> Rows:
    """Rows whose time goes on by small steps, and now and then by a leap; each is at most so much behind the newest."""
    rows: Rows = []
    grain_ms = rng.choice([1, 50, 100])  # with a coarse one, many rows lie just at the bounds of windows and intervals
    steps = max(rng.choice([1, 50, 400, 1500]) // grain_ms, 1)
    nulls = rng.choice([0.0, 0.0, 0.1])
    newest_ms = base_ms
    for number in range(rng.choice([0, 1, 5, 60, 60, 120, 120, 120])):
        newest_ms += grain_ms * rng.randrange(40_000 // grain_ms if rng.random() < 0.02 else 2 * steps + 1)
        rows.append(
            {
                "time": max(newest_ms - grain_ms * rng.randrange(disorder_ms // grain_ms + 1), 0),
                "key": None if rng.random() < nulls else rng.randrange(rng.choice([1, 3, 30])),
                "group": None if rng.random() < nulls else rng.choice(["a", "b", "ccc"]),
                "value": rng.choice([None, rng.randrange(-50, 50), rng.randrange(10)]),
                "number": number,
            }
        )
    return rows


def _as_datetime(time_ms: int, zone: str | None) -> datetime:
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment if zone else moment.replace(tzinfo=None)
