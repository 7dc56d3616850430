"""What a function emits keeps its place around the critical messages that it sends, wherever and whenever messages run."""

import operator
from typing import Any

import pytest

import dirigo as dg
from dirigo.scheduling import STRATEGIES
from dirigo.testing import run

EVERY = 10
COUNTS = {"said": int, "counted": int}
BY_SOURCE = {"said": int, **{f"of_{number}": int for number in range(3)}}


class Marks(dg.Function):
    """Passes rows on, one after the other, and says after every tenth how many there were."""

    scope = "partition"
    ordered = True
    count = dg.ValueState(int, default=0)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"source": row.source})
        self.count.set(self.count.get() + 1)
        if self.count.get() % EVERY == 0:
            context.emit_critical(self.count.get())


class Counts(dg.Function):
    """Counts rows in parallel, and says at each critical message how many there were."""

    scope = "partition"
    count = dg.ValueState(int, default=0, combine=operator.add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"said": payload, "counted": self.count.get()})


class CommonMarks(Marks):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"source": row.source})
        self.count.set(self.count.get() + 1)
        if self.count.get() % EVERY == 0:
            context.emit_critical(self.count.get(), granularity="one")


class CountsBySource(dg.Function):
    scope = "partition"
    count = dg.MapState(int, int, default=0, combine=operator.add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(row.source, 1)

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"said": payload, **{f"of_{number}": self.count.get(number, 0) for number in range(3)}})


def rows(source: int, count: int = 100) -> list[dict[str, int]]:
    return [{"source": source, "at": 10 * number} for number in range(count)]


def marked() -> dg.Dataflow:
    flow = dg.Dataflow("marked")
    stream = flow.source(dg.from_iterable(rows(0), {"source": int, "at": int}, time="at"))
    stream.process(Marks, {"source": int}, name="marks").process(Counts, COUNTS, name="counts").sink(dg.to_memory())
    flow.emulate("marks", per_message="1s")
    return flow


def marked_together(sources: int) -> dg.Dataflow:
    """Several ordered functions in front of one parallel function, which waits for the nth mark of each."""
    flow = dg.Dataflow("marked-together")
    streams = []
    for number in range(sources):
        source = dg.from_iterable(rows(number), {"source": int, "at": int}, time="at", name=f"rows_{number}")
        streams.append(flow.source(source).process(CommonMarks, {"source": int}, name=f"marks_{number}"))
        flow.emulate(f"marks_{number}", per_message=f"{1 + number}s")
    together = streams[0].union(*streams[1:])
    together.process(CountsBySource, BY_SOURCE, name="counts").sink(dg.to_memory())
    return flow


def check_marks(**options: Any) -> None:
    told = [(row["said"], row["counted"]) for row in run(marked(), **options).rows()]
    assert told == [(number, number) for number in range(EVERY, 101, EVERY)], options


def check_common_marks(sources: int, **options: Any) -> None:
    told = run(marked_together(sources), **options).rows()
    counts = [tuple(row[f"of_{number}"] for number in range(sources)) for row in told]
    assert counts == [(number,) * sources for number in range(EVERY, 101, EVERY)], (
        options
    )  # a union passes a barrier on once


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_critical_message_is_between_the_rows_that_it_was_emitted_between(strategy: str) -> None:
    for seed in range(3):
        check_marks(strategy=strategy, workers=3, rows_max=3, seed=seed)


def test_so_it_is_under_chaos() -> None:
    for seed in range(20):
        check_marks(chaos=True, workers=3, rows_max=3, seed=seed)


@pytest.mark.parametrize("sources", [2, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_nth_critical_message_of_each_upstream_makes_one_barrier(strategy: str, sources: int) -> None:
    check_common_marks(sources, strategy=strategy, workers=3, rows_max=3)


@pytest.mark.parametrize("sources", [2, 3])
def test_so_they_do_under_chaos(sources: int) -> None:
    for seed in range(10):
        check_common_marks(sources, chaos=True, workers=3, rows_max=3, seed=seed)


@pytest.mark.acceptance
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_no_seed_of_chaos_changes_the_order(first: int) -> None:
    for seed in range(first, first + 20):
        check_marks(chaos=True, workers=3, rows_max=3, seed=seed)
        check_common_marks(2, chaos=True, workers=3, rows_max=3, seed=seed)
        check_common_marks(3, chaos=True, workers=3, rows_max=3, seed=seed)
