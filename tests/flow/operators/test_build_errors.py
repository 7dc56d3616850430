"""Windows and joins that make no sense are refused where they are written, in one sentence that names the culprit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dirigo as dg
from flow.flows import event

ROWS = [event("a", 1, 0)]
ONE = [{"id": 1, "ts": 1}]
TEXT = [{"id": "1", "ts": 1}]


def timed(flow: dg.Dataflow | None = None) -> dg.Stream:
    return (flow or dg.Dataflow("flow")).source(dg.from_iterable(ROWS, time="ts"))


def timeless() -> dg.Stream:
    return dg.Dataflow("flow").source(dg.from_iterable(ROWS))


def keyed() -> dg.KeyedStream:
    return timed().key_by("key")


def windowed() -> dg.WindowedStream:
    return keyed().window(dg.Tumbling("1s"))


def joined(left: Any = ONE, right: Any = ONE, time: str | None = None, **join: Any) -> dg.Stream:
    flow = dg.Dataflow("flow")
    one, other = (flow.source(dg.from_iterable(rows, time=time)) for rows in (left, right))
    return one.join(other, **join)


def union_of_other_columns() -> None:
    stream = timed()
    stream.union(stream.select("key"))


def union_without_time() -> None:
    stream = timed()
    stream.union(stream.flow.source(dg.from_iterable(ROWS)))


PROBLEMS: dict[str, tuple[Callable[[], object], str]] = {
    # windows
    "parsecs": (
        lambda: dg.Tumbling("10 parsecs"),
        "Tumbling: '10 parsecs' is not a duration; write it like '200ms', '10s', '1.5h' or '1h30m'.",
    ),
    "a bare number": (
        lambda: dg.Session(10),  # type: ignore[arg-type]
        "Session: 10 is not a duration; say the unit, for example '10s'.",
    ),
    "no time at all": (
        lambda: dg.Tumbling("0s"),
        "Tumbling: '0s' is no time at all; give a duration above zero, for example '10s'.",
    ),
    "negative": (lambda: dg.Session("-5s"), "Session: '-5s' is negative; give a duration of zero or more."),
    "gaps between windows": (
        lambda: dg.Sliding("1s", every="2s"),
        "Sliding: windows of 1s every 2s would leave rows out; make `every` at most the size.",
    ),
    "kind of time": (
        lambda: dg.Tumbling("1s", time="wall"),  # type: ignore[arg-type]
        "a window's time is 'event' or 'processing', not 'wall'.",
    ),
    "window without time": (
        lambda: timeless().key_by("key").window(dg.Tumbling("1s")),
        (
            "a window on 'rows': the stream 'rows' has no time; "
            "name its time column at the source or in process() (time='...'), and keep that column."
        ),
    ),
    "no window": (
        lambda: timed().window("10s"),  # type: ignore[arg-type]
        "window on 'rows': takes Tumbling, Sliding or Session, not '10s'.",
    ),
    "lateness": (
        lambda: keyed().window(dg.Tumbling("1s"), allowed_lateness=5),  # type: ignore[arg-type]
        "allowed_lateness: 5 is not a duration; say the unit, for example '10s'.",
    ),
    "late rows of a map": (
        lambda: timed().late,
        "'rows' has no late rows; only windows do, so call .late on the result of one.",
    ),
    "window_start twice": (
        lambda: windowed().aggregate(window_start=dg.count()),
        "aggregate: its rows have a column window_start or window_end already; rename that one first.",
    ),
    "no aggregate": (
        lambda: windowed().aggregate(n=5),  # type: ignore[arg-type]
        "aggregate 'n': takes an aggregate such as count() or sum('price'), not 5.",
    ),
    "emit": (
        lambda: keyed().aggregate(emit="never", n=dg.count()),  # type: ignore[arg-type]
        "key_by on 'rows': emit is 'end' or 'watermark', not 'never'.",
    ),
    "top 0": (lambda: windowed().top(0, by="value"), "top rows: the number of rows to keep must be 1 or more, not 0."),
    "deduplicate without time": (
        lambda: timeless().deduplicate("key", within="5s"),
        (
            "deduplicate: the stream 'rows' has no time; "
            "name its time column at the source or in process() (time='...'), and keep that column."
        ),
    ),
    # several streams
    "key types": (
        lambda: joined(ONE, TEXT, on="id"),
        "join: the key 'id' is int64 on the left, but 'id' is string on the right; cast one of them.",
    ),
    "left key": (
        lambda: joined(on="idd"),
        "join, left side: there is no column 'idd'; did you mean 'id'? The columns are id, ts.",
    ),
    "right key": (
        lambda: joined(on={"id": "tss"}),
        "join, right side: there is no column 'tss'; did you mean 'ts'? The columns are id, ts.",
    ),
    "no keys": (lambda: joined(on=[]), "join: name as many key columns on the left as on the right, and at least one."),
    "keys that are none": (
        lambda: joined(on=None),
        "join: on= names the key columns, such as 'id' or {'seller': 'id'}, not None.",
    ),
    "window and within": (
        lambda: joined(on="id", window=dg.Tumbling("1s"), within=("1s", "1s")),
        "join: choose either window= or within=, not both.",
    ),
    "unbounded left join": (
        lambda: joined(on="id", how="left"),
        "join: a join that is not 'inner' must know when a partner can no longer come; give it a window=.",
    ),
    "kind of join": (
        lambda: joined(on="id", how="cross"),
        "join: how='cross' is no kind of join; use one of inner, left, right, outer, semi, anti.",
    ),
    "session join": (
        lambda: joined(on="id", time="ts", window=dg.Session("1s")),
        "join: a join takes tumbling or sliding windows of event time, not sessions with a gap of 1s.",
    ),
    "join without time": (
        lambda: joined(on="id", within=("1s", "1s")),
        (
            "join: the stream 'rows' has no time; "
            "name its time column at the source or in process() (time='...'), and keep that column."
        ),
    ),
    "within": (
        lambda: joined(on="id", time="ts", within="10s"),
        "join: within takes two durations, how long before and how long after, such as ('5s', '10s'), not '10s'.",
    ),
    "suffix": (
        lambda: joined(on="id", suffix=""),
        "join: both sides have columns of the same name; choose another suffix than ''.",
    ),
    "window columns in a join": (
        lambda: joined([{"id": 1, "ts": 1, "window_end": 2}], on="id", time="ts", window=dg.Tumbling("1s")),
        "join: its rows have a column window_start or window_end already; rename that one first.",
    ),
    "join with no stream": (lambda: timed().join(3, on="key"), "join: takes a stream, not 3."),  # type: ignore[arg-type]
    "streams of two flows": (
        lambda: timed().join(timed(dg.Dataflow("other")), on="key"),
        "join: the streams 'rows' and 'rows' belong to different dataflows; make both from one.",
    ),
    "union of two flows": (
        lambda: timed().union(timed(dg.Dataflow("other"))),
        "union: the streams 'rows' and 'rows' belong to different dataflows; make both from one.",
    ),
    "union of other columns": (
        union_of_other_columns,
        "union: 'select' has no column 'value' like the others of the union; add it, or drop it from them.",
    ),
    "union without time": (
        union_without_time,
        "union: 'rows_2' has no time 'ts' like the others of the union.",
    ),
    "table that is none": (
        lambda: timed().join_table(3, on="key"),
        "join_table: takes an Arrow table or a list of dicts (TypeError: 'int' object is not iterable).",
    ),
    "table without columns": (
        lambda: timed().join_table([], on="key"),
        "join_table: the table has no columns; give an Arrow table if there may be no rows.",
    ),
    "right join with a table": (
        lambda: timed().join_table([{"key": "a"}], on="key", how="right"),
        "join_table: a join with a table is 'inner', 'left', 'semi' or 'anti', not 'right'.",
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_problem_is_one_clear_sentence(problem: str) -> None:
    build, sentence = PROBLEMS[problem]
    with pytest.raises(dg.FlowError) as error:
        build()
    assert str(error.value) == sentence
