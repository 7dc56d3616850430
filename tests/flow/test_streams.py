"""Streams as values: what they know of themselves, and how often they can be used."""

from __future__ import annotations

import pyarrow as pa

import dirigo as dg
from flow.flows import TS_SCHEMA, collected, event, run_inline

ROWS = [event("a", 1, 0), event("b", 2, 15)]


def timed() -> dg.Stream:
    return dg.Dataflow("flow").source(dg.from_iterable(ROWS, time="ts"))


def test_a_stream_knows_its_columns_and_its_time() -> None:
    stream = timed()
    assert stream.schema == TS_SCHEMA
    assert stream.time is not None
    assert stream.time.name == "ts"
    assert repr(stream) == "<stream 'rows' of key, value, ts>"
    selected = stream.select("ts", twice=dg.col("value") * 2)
    assert selected.schema == pa.schema([("ts", pa.int64()), ("twice", pa.int64())])
    counted = stream.key_by("key").window(dg.Tumbling("10ms")).aggregate(n=dg.count())
    assert counted.schema.names == ["key", "n", "window_start", "window_end"]
    assert counted.time is not None
    assert counted.time.name == "window_end"
    assert counted.late.schema == TS_SCHEMA
    assert counted.late.time is None


def test_names_are_made_from_kinds_and_stay_apart() -> None:
    stream = timed()
    first = stream.filter(dg.col("value") > 0)
    named = stream.filter(dg.col("value") > 0, name="filter_2")
    third = stream.filter(dg.col("value") > 0)
    assert [each.name for each in (first, named, third)] == ["filter", "filter_2", "filter_3"]


def test_a_name_given_afterwards_is_that_of_bad_rows() -> None:
    flow = dg.Dataflow("flow", on_error="side_output")
    stream = flow.source(dg.from_iterable([{"key": None, "value": 1, "ts": 1}], TS_SCHEMA, time="ts"))
    nothing = flow.source(dg.from_iterable([], TS_SCHEMA, time="ts"))
    collected(stream.join(nothing, on="key", window=dg.Tumbling("10ms")).named("in_windows"))
    collected(stream.join(nothing, on="key", within=("1ms", "1ms")).named("near"))
    collected(stream.join(nothing, on="key").named("for_ever"))
    errors = collected(flow.errors)
    run_inline(flow)
    assert sorted(row["operator"] for row in errors.rows) == ["for_ever", "in_windows", "near"]


def test_streams_whose_times_are_ends_of_windows_can_be_put_together() -> None:
    stream = timed()
    counts = [stream.key_by("key").window(dg.Tumbling("10ms")).aggregate(n=dg.count()) for _ in range(2)]
    union = counts[0].union(counts[1])
    assert union.time == counts[0].time
    out = collected(union.window(dg.Tumbling("10ms")).aggregate(all=dg.sum("n")))
    run_inline(stream.flow)
    assert [(row["all"], row["window_end"]) for row in out.rows] == [(2, 10), (2, 20)]


def test_streams_of_different_times_can_be_put_together_without_them() -> None:
    stream = timed()
    counts = stream.key_by("key").window(dg.Tumbling("10ms")).aggregate(value=dg.count()).select("key", "value")
    out = collected(stream.select("key", "value").union(counts))
    run_inline(stream.flow)
    assert len(out.rows) == 4


def test_a_stream_may_be_used_several_times() -> None:
    stream = timed()
    outs = [
        collected(stream),
        collected(stream.filter(dg.col("value") > 1)),
        collected(stream.key_by("key").aggregate(n=dg.count())),
    ]
    run_inline(stream.flow)
    assert [len(out.rows) for out in outs] == [2, 1, 2]


def test_a_flow_may_be_run_again() -> None:
    stream = timed()
    out = collected(stream.key_by("key").aggregate(n=dg.count()))
    run_inline(stream.flow)
    first = out.rows
    run_inline(stream.flow)
    assert out.rows == first
    assert len(first) == 2


def test_what_leads_to_no_sink_does_not_run() -> None:
    stream = timed()
    asked: list[int] = []

    def asking(row: dg.Row) -> dg.Row:
        asked.append(row.value)
        return row

    stream.map(asking, TS_SCHEMA)
    out = collected(stream)
    run_inline(stream.flow)
    assert out.rows == ROWS
    assert asked == []


def test_a_flow_without_any_rows_runs_and_gives_empty_results() -> None:
    flow = dg.Dataflow("empty")
    stream = flow.source(dg.from_iterable([], TS_SCHEMA, time="ts"))
    outs = [
        collected(each)
        for each in (
            stream,
            stream.key_by("key").window(dg.Tumbling("1s")).aggregate(n=dg.count()),
            stream.key_by("key").window(dg.Session("1s")).aggregate(n=dg.count()),
            stream.key_by("key").aggregate(n=dg.count()),
            stream.window(dg.Tumbling("1s")).top(3, by="value"),
            stream.join(stream, on="key", window=dg.Tumbling("1s"), how="outer"),
            stream.join(stream, on="key", within=("1s", "1s")),
            stream.join(stream, on="key"),
            stream.deduplicate("key"),
        )
    ]
    run_inline(flow)
    assert [out.rows for out in outs] == [[]] * len(outs)
    assert all(out.table.schema.names for out in outs)
