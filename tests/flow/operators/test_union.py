"""union: streams with the same columns put together."""

from __future__ import annotations

import dirigo as dg
from flow.flows import TS_SCHEMA, event, results, run_inline, unordered


def test_a_union_has_all_rows_of_all_streams() -> None:
    flow = dg.Dataflow("union")
    first, second, third = (flow.source(dg.from_iterable([event(key, 1, 0)])) for key in "abc")
    out = dg.to_memory()
    first.union(second, third).sink(out)
    run_inline(flow)
    assert unordered(out.rows) == unordered([event(key, 1, 0) for key in "abc"])


def test_a_stream_in_a_union_with_itself_comes_twice() -> None:
    rows = [event("a", 1, 0), event("b", 2, 5)]
    assert unordered(results(rows, lambda s: s.union(s))) == unordered(rows * 2)


def test_branches_of_one_stream_come_together_again() -> None:
    rows = [event("a", value, value) for value in range(20)]

    def build(s: dg.Stream) -> dg.Stream:
        small, large = s.split(dg.col("value") < 7)
        return small.union(large.key_by("value").process(Same, TS_SCHEMA, time="ts"))

    assert unordered(results(rows, build)) == unordered(rows)


class Same(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)


def test_windows_behind_a_union_count_the_rows_of_all_streams() -> None:
    flow = dg.Dataflow("union", watermark_every="1ms")
    early = flow.source(dg.from_iterable([event("a", 1, ts) for ts in range(0, 30, 2)], time="ts"))
    other = flow.source(dg.from_iterable([event("a", 1, ts) for ts in range(1, 30, 2)], time="ts"))
    out = dg.to_memory()
    early.union(other).key_by("key").window(dg.Tumbling("10ms")).aggregate(n=dg.count()).sink(out)
    run_inline(flow, 1)
    assert [(row["window_start"], row["n"]) for row in out.rows] == [(0, 10), (10, 10), (20, 10)]
