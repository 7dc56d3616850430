"""The shape of the benchmarks of flows; how fast anything is on the machine at hand is no matter for a test."""

from dataclasses import replace

import pyarrow as pa
import pytest

from dirigo.nexmark.generator import Generator
from dirigo_lab.bench.flows import limit_process
from dirigo_lab.bench.flows.flow import VECTORISED, AnswerTime, FlowCost, measure_flow, measure_flows
from dirigo_lab.bench.flows.keys import FLATNESS_MOST, KeyCost, KeyCosts, key_batches, measure_keys
from dirigo_lab.bench.flows.limits import LimitCost, measure_limits
from dirigo_lab.bench.flows.long_run import COST_GROWTH_MOST, MEMORY_GROWTH_MOST, LongRun, Milestone, measure_long_runs
from dirigo_lab.bench.flows.long_run_process import LongRunner, Runner
from dirigo_lab.bench.flows.memory_source import MemorySource, MemoryTables, bid_batches
from dirigo_lab.nexmark.queries import QUERIES

EVENTS = 20_000
BIDS = 18_400  # 46 of 50 events


def test_bids_lie_in_memory_in_batches_of_one_size() -> None:
    batches = bid_batches(EVENTS, ("bidder", "date_time"), batch_rows=1_000)
    assert [batch.num_rows for batch in batches] == [1_000] * 18 + [400]
    whole = pa.Table.from_batches(batches)
    assert whole.equals(pa.Table.from_batches([Generator().bids(0, EVENTS, ("bidder", "date_time"))]))


def test_a_source_in_memory_gives_each_batch_once_and_then_has_ended() -> None:
    batches = bid_batches(1_000, ("bidder", "date_time"), batch_rows=500)
    (split,) = MemorySource(batches).splits(4)
    pieces = []
    while not split.ended:
        pieces.append(split.read(500))
    assert [piece.rows.num_rows for piece in pieces if piece is not None] == [500, 420]
    assert split.read(500) is None


def test_a_source_in_memory_does_not_give_more_than_is_asked_for() -> None:
    (split,) = MemorySource(bid_batches(1_000, ("bidder", "date_time"), batch_rows=500)).splits(1)
    with pytest.raises(ValueError, match="500 rows"):
        split.read(499)


def test_there_are_bids_only() -> None:
    with pytest.raises(NotImplementedError):
        MemoryTables(10).persons()
    with pytest.raises(NotImplementedError):
        MemoryTables(10).auctions()


def test_flows_are_measured_in_bids_and_all_forms_of_a_query_agree() -> None:
    costs = measure_flows(EVENTS, EVENTS, repeats=1)
    assert [cost.query for cost in costs] == [
        "q7",
        "q12_event",
        "q12_event, filter with a lambda",
        "q12_event, map with a lambda",
    ]
    assert all(cost.bids == BIDS for cost in costs)
    assert costs[0].bids_per_s == pytest.approx(BIDS / costs[0].seconds)
    assert costs[0].answer.rows >= 1
    _, counted, filtered, mapped = (cost.answer for cost in costs)
    assert counted.rows > 100
    assert counted == filtered == mapped


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("query", VECTORISED)
def test_a_batch_query_gives_the_answer_of_the_flow(engine: str, query: str) -> None:
    cost = limit_process.measure(engine, query, EVENTS, repeats=1)
    assert (cost.engine, cost.query, cost.bids) == (engine, query, BIDS)
    assert cost.ratio == pytest.approx(cost.seconds / cost.flow_seconds)


def test_a_comparison_of_different_answers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(limit_process.ENGINES, "wrong", lambda _query, bids: lambda: bids.slice(0, 1))
    with pytest.raises(RuntimeError, match=r"q7: the flow answers .* and wrong "):
        limit_process.measure("wrong", "q7", EVENTS, repeats=1)


def test_an_engine_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dirigo_lab.bench.flows.limits.ENGINES", ("no_such_engine",))
    assert measure_limits(1_000, repeats=1) == ()


def test_a_batch_query_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="the batch query q7 of polars failed"):
        measure_limits(EVENTS, repeats=0)


def test_an_answer_is_told_by_its_rows_and_numbers() -> None:
    table = pa.table({"bidder": [1, 2, None], "extra": ["a", "b", "c"]})
    assert AnswerTime.of(table) == AnswerTime(3, 3)
    assert AnswerTime.of(table.slice(0, 0)) == AnswerTime(0, 0)


def test_a_flow_is_within_budget_if_it_is_fast_enough() -> None:
    cost = FlowCost("q7", 3_000, 1.0, 3_000.0, AnswerTime(1, 1))
    assert cost.within_budget()
    assert not replace(cost, seconds=1.01).within_budget()


def test_keys_are_measured_in_turn_and_all_of_them_come_out() -> None:
    costs = measure_keys((5, 200), events=10_000, repeats=2)
    assert [(cost.keys, cost.results) for cost in costs.costs] == [(5, 10), (200, 400)]  # in two windows
    assert all(cost.event_ns > 0 for cost in costs.costs)


def test_every_one_of_many_spread_out_keys_comes_out_once() -> None:
    events, keys = 200_000, 20_000
    (cost,) = measure_keys((keys,), events, repeats=1).costs
    bidders = pa.Table.from_batches(key_batches(events, keys))["bidder"]
    halves = (bidders.slice(0, events // 2), bidders.slice(events // 2))  # the two windows
    assert cost.results == sum(len(half.unique()) for half in halves)


def test_many_keys_may_cost_a_little_more() -> None:
    few = KeyCost(10, 100.0, 20)
    assert KeyCosts((few, KeyCost(1_000, 100.0 * FLATNESS_MOST, 2_000))).within_budget()
    assert not KeyCosts((few, KeyCost(1_000, 101.0 * FLATNESS_MOST, 2_000))).within_budget()


def test_a_long_run_is_looked_at_on_the_way() -> None:
    sizes = []
    for query in VECTORISED:
        first, last = LongRunner(query, (150_000, 300_000)).run()
        assert (first.events, last.events) == (150_000, 300_000)
        assert all(mark.bid_ns > 0 and mark.growth > 0 and mark.state_bytes > 0 for mark in (first, last))
        assert 20e6 < first.peak_bytes <= last.peak_bytes
        sizes.append(first.state_bytes)
    assert sizes[0] < sizes[1]  # q7 keeps one bid per window, q12_event one row per bidder


def test_a_run_of_a_single_turn_has_figures_too() -> None:
    (mark,) = LongRunner("q7", (10_000,)).run()
    assert mark.bid_ns > 0


def test_a_flow_that_runs_in_turns_gets_through_everything() -> None:
    runner = Runner("q12_event", 300_000)
    turns = 0
    while runner.turn():
        turns += 1
    assert turns == 3
    assert runner.bids == 276_000
    whole = measure_flow("q12_event", QUERIES["q12_event"].function, MemoryTables(300_000), repeats=1, per_s_least=1.0)
    assert 0 < runner.results < whole.answer.rows
    runner.finish()
    assert runner.results == whole.answer.rows
    assert runner.state_bytes() == 0


def test_marks_have_to_grow() -> None:
    for marks in ((), (0,), (500_000, 500_000), (1_000, 2_000)):
        with pytest.raises(ValueError, match="grow"):
            measure_long_runs(marks)


FIRST = Milestone(1_000_000, 100.0, 1.0, 1_000_000, 100_000_000)


@pytest.mark.parametrize(
    ("last", "is_within"),
    [
        (FIRST, True),
        (replace(FIRST, growth=COST_GROWTH_MOST), True),
        (replace(FIRST, growth=1.01 * COST_GROWTH_MOST), False),
        (replace(FIRST, state_bytes=int(1_010_000 * MEMORY_GROWTH_MOST)), False),
        (replace(FIRST, peak_bytes=int(101_000_000 * MEMORY_GROWTH_MOST)), False),
    ],
)
def test_neither_cost_nor_memory_may_grow(last: Milestone, is_within: bool) -> None:
    assert LongRun("q7", (FIRST, last)).within_budget() is is_within


def test_a_limit_is_told_in_bids_per_second() -> None:
    limit = LimitCost("polars", "q7", 1_000, 0.5, flow_seconds=2.0)
    assert limit.bids_per_s == 2_000
    assert limit.ratio == 0.25
