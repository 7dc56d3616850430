"""The check that a flow means the same however it is spread: it passes right flows, and finds wrong ones."""

import pytest

import dirigo as dg
from dirigo.testing import assert_parallel_equals_sequential

ROWS = [{"player": number % 5, "score": number * 37 % 101, "at": number * 50} for number in range(400)]


def with_function(function: type[dg.Function]) -> dg.Dataflow:
    flow = dg.Dataflow("game")
    players = flow.source(dg.from_iterable(ROWS, time="at", name="scores"))
    players.key_by("player").process(function, {"player": int, "score": int}).sink(dg.to_memory(name="out"))
    return flow


class Best(dg.Function):
    scope = "partition"
    best = dg.MapState(int, int, combine=max)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.best.add(row.player, row.score)

    def on_end(self, context: dg.FunctionContext) -> None:
        for player, score in self.best.items():
            context.emit({"player": player, "score": score})


class Newest(Best):
    """Keeps what came last, which means nothing when rows run at several places."""

    best = dg.MapState(int, int, combine=lambda _, newer: newer)


class Average(Best):
    """The average of averages is not the average."""

    best = dg.MapState(int, int, combine=lambda one, other: (one + other) // 2)


class InOrder(Newest):
    ordered = True


def added(one: dg.Row, other: dg.Row) -> dict[str, int]:
    return {"player": one.player, "score": one.score + other.score, "at": max(one.at, other.at)}


def summed(group: dg.Group) -> list[dict[str, int]]:
    return [{"n": len(group), "sum": sum(row.score for row in group.rows)}]


def test_a_right_function_passes() -> None:
    assert_parallel_equals_sequential(with_function(Best), seeds=5)


@pytest.mark.parametrize("function", [Newest, Average])
def test_a_wrong_combining_function_is_found(function: type[dg.Function]) -> None:
    with pytest.raises(
        AssertionError, match=r"(?s)the sink .out. of .game. gets other rows.*ran at several workers: .*.process."
    ):
        assert_parallel_equals_sequential(with_function(function))


def test_an_ordered_function_may_depend_on_order() -> None:
    assert_parallel_equals_sequential(with_function(InOrder), seeds=5)


def test_rows_can_be_handed_in() -> None:
    assert_parallel_equals_sequential(with_function(Best), {"scores": ROWS[:100]}, seeds=3)


def test_a_run_that_spread_nothing_is_no_proof() -> None:
    with pytest.raises(AssertionError, match="nothing was tested"):
        assert_parallel_equals_sequential(with_function(Best), [], seeds=1)


@pytest.mark.parametrize(
    "window", [dg.Tumbling("2s"), dg.Sliding("4s", every="1s"), dg.Session("70ms")], ids=["tumbling", "sliding", "session"]
)
def test_every_kind_of_window_and_aggregate_can_be_spread(window: dg.Tumbling | dg.Sliding | dg.Session) -> None:
    flow = dg.Dataflow("windows")
    scores = flow.source(dg.from_iterable(ROWS, time="at", name="scores"))
    windowed = scores.key_by("player").window(window)
    windowed.aggregate(
        n=dg.count(),
        total=dg.sum("score"),
        least=dg.min("score"),
        most=dg.max("score"),
        mean=dg.avg("score"),
        different=dg.distinct("score"),
        best=dg.top(3, "score"),
        first=dg.first("score"),
        last=dg.last("score"),
        middle=dg.median("score"),
        high=dg.quantile("score", 0.9),
        spread=dg.histogram("score", width=10),
    ).sink(dg.to_memory(name="aggregates"))
    windowed.reduce(
        lambda one, other: {**one, "score": one["score"] + other["score"], "at": max(one["at"], other["at"])}
    ).sink(dg.to_memory(name="sums"))
    windowed.top(2, by="-score", rank="place").sink(dg.to_memory(name="best"))
    windowed.apply(
        lambda group: [{"n": len(group), "sum": sum(row.score for row in group.rows)}], {"n": int, "sum": int}
    ).sink(dg.to_memory(name="applied"))
    assert_parallel_equals_sequential(flow, seeds=3)
