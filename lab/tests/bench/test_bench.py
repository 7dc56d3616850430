"""The shape of the benchmarks; how fast anything is on the machine at hand is no matter for a test."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from dirigo_lab.bench import BenchReport, Sizes, render, run_all
from dirigo_lab.bench.barrier import BarrierCost, measure_barriers
from dirigo_lab.bench.flows.flow import AnswerTime, FlowCost
from dirigo_lab.bench.flows.keyed_state import KeyedStateCost, KeyedStateCosts
from dirigo_lab.bench.flows.keys import KeyCost, KeyCosts
from dirigo_lab.bench.flows.limits import LimitCost
from dirigo_lab.bench.flows.long_run import LongRun, Milestone
from dirigo_lab.bench.generator import GeneratorCost
from dirigo_lab.bench.kernel import KernelCost, MessageCost, measure_kernel
from dirigo_lab.bench.simulator import SimulatorCost, measure_simulator
from dirigo_lab.bench.strategies import NAMES, StrategyCost, StrategyCosts

TINY = Sizes(
    actors=(2, 5),
    messages=10,
    rounds=2,
    queued=(2, 20),
    strategy_messages=10,
    strategy_repeats=1,
    emissions=20,
    repeats=2,
    generated_events=1_000,
    flow_events=2_000,
    row_form_events=1_000,
    flow_repeats=1,
    marks=(10_000, 150_000),
    key_counts=(2, 5),
    key_events=1_000,
    keyed_state_events=1_000,
    keyed_state_peers=(),
)
GOOD = BenchReport(
    python="3.11.0",
    kernel=KernelCost((MessageCost(10, 6.5, 0.5), MessageCost(1000, 8.0, 0.5)), MessageCost(1000, 6.5, 0.5)),
    barriers=(BarrierCost(0, 60.0, 3),),
    strategies=StrategyCosts(
        (StrategyCost("fifo", {10: 4.0, 1_000: 4.25, 10_000: 5.0}), StrategyCost("edf", {10: 5.0, 1_000: 6.0, 10_000: 7.5})),
        {10: 1.5, 10_000: 1.75},
    ),
    simulator=SimulatorCost(60_000, 1.0),
    generator=GeneratorCost(2_500_000, 1.0),
    flows=(FlowCost("q7", 920_000, 0.23, 3e6, AnswerTime(10, 7)), FlowCost("by row", 184_000, 0.46, 3e5, AnswerTime(10, 7))),
    limits=(LimitCost("polars", "q7", 920_000, 0.115, flow_seconds=0.23),),
    missing=("duckdb",),
    long_runs=(
        LongRun("q7", (Milestone(1_000, 100.0, 1.0, 3_000, 90_000_000), Milestone(2_000, 109.0, 1.1, 3_300, 99_000_000))),
    ),
    keys=KeyCosts((KeyCost(10, 111.0, 20), KeyCost(100_000, 222.0, 200_000))),
    keyed_state=KeyedStateCosts(
        (KeyedStateCost("row form", 10, 1_000, 1.0, 500), KeyedStateCost("row form", 100_000, 1_000, 2.0, 500)),
        (KeyedStateCost("bytewax stateful_map", 10, 1_000, 1.0, 500),),
        ("spark",),
    ),
)


def test_the_kernel_is_measured_with_every_number_of_actors() -> None:
    cost = measure_kernel((2, 5, 30), messages=10, repeats=2)
    assert [each.actors for each in cost.costs] == [2, 5, 30]
    assert cost.among_idle.actors == 30
    assert all(0 < each.function_us < each.whole_us for each in cost.costs)


def test_a_round_is_measured_with_the_messages_that_the_protocol_needs() -> None:
    without, with_two = measure_barriers((0, 2), rounds=3, repeats=2)
    assert (without.lessees, without.messages) == (0, 3)  # the program and two acknowledgments
    assert (with_two.lessees, with_two.messages) == (2, 11)  # and for each: request, its receipt, reply, release
    assert without.round_us > 0


def test_the_simulator_is_measured_in_data_messages() -> None:
    cost = measure_simulator(emissions=20, repeats=2)
    assert cost.messages == 60
    assert cost.messages_per_s == pytest.approx(60 / cost.seconds)


def test_all_benchmarks_make_one_report() -> None:
    told: list[str] = []
    report = run_all(told.append, TINY)
    assert told == [
        "messages through the kernel",
        "barriers",
        "strategies",
        "the simulator",
        "the generator",
        "flows",
        "batch queries over the same bids",
        "few and many keys",
        "a state per key",
        "long runs",
    ]
    assert [cost.actors for cost in report.kernel.costs] == [2, 5]
    assert [cost.lessees for cost in report.barriers] == [0, 4]
    content = json.loads(report.to_json())
    assert content["kernel"]["costs"][0]["actors"] == 2
    assert [cost["strategy"] for cost in content["strategies"]["costs"]] == list(NAMES)
    assert content["generator"]["events"] == 1_000
    assert [flow["bids"] for flow in content["flows"]] == [1_840, 1_840, 920, 920]
    assert len(content["limits"]) + 2 * len(content["missing"]) == 4
    assert [cost["keys"] for cost in content["keys"]["costs"]] == [2, 5]
    assert [mark["events"] for run in content["long_runs"] for mark in run["marks"]] == [10_000, 150_000] * 2
    assert content["within_budget"] is report.within_budget()


def test_json_has_what_the_tables_show() -> None:
    content = json.loads(GOOD.to_json())
    assert content["kernel"]["costs"][1]["kernel_us"] == 7.5
    assert content["kernel"]["flatness"] == 1.0
    assert content["kernel"]["spread"] == 1.25
    assert content["strategies"]["costs"][1]["us"] == {"10": 5.0, "1000": 6.0, "10000": 7.5}
    assert content["strategies"]["costs"][1]["flatness"] == 1.5
    assert content["strategies"]["admission_us"]["10000"] == 1.75
    assert content["simulator"]["messages_per_s"] == 60_000
    assert content["generator"]["events_per_s"] == 2_500_000
    assert content["flows"][0]["bids_per_s"] == pytest.approx(4_000_000)
    assert content["limits"][0]["bids_per_s"] == pytest.approx(8_000_000)
    assert content["limits"][0]["ratio"] == pytest.approx(0.5)
    assert content["missing"] == ["duckdb"]
    assert content["long_runs"][0]["cost_growth"] == pytest.approx(1.1)
    assert content["long_runs"][0]["state_growth"] == pytest.approx(1.1)
    assert content["long_runs"][0]["peak_growth"] == pytest.approx(1.1)
    assert content["keys"]["flatness"] == 2.0
    assert content["keyed_state"]["flatness"] == {"row form": 2.0}
    assert content["over_budget"] == []
    assert content["within_budget"] is True


@pytest.mark.parametrize(
    ("report", "culprit"),
    [
        (replace(GOOD, kernel=replace(GOOD.kernel, costs=(MessageCost(10, 11.0, 0.5),))), "messages"),
        (
            replace(GOOD, kernel=replace(GOOD.kernel, costs=(MessageCost(10, 2.5, 0.5), MessageCost(1000, 8.0, 0.5)))),
            "messages",
        ),
        (replace(GOOD, kernel=replace(GOOD.kernel, among_idle=MessageCost(1000, 9.5, 0.5))), "messages"),
        (replace(GOOD, strategies=StrategyCosts((StrategyCost("edf", {10: 9.0, 1_000: 16.0}),), {})), "the strategy edf"),
        (replace(GOOD, strategies=StrategyCosts((StrategyCost("edf", {10: 4.0, 10_000: 9.0}),), {})), "the strategy edf"),
        (replace(GOOD, simulator=SimulatorCost(10_000, 1.0)), "the simulator"),
        (replace(GOOD, generator=GeneratorCost(1_000_000, 1.0)), "the generator"),
        (replace(GOOD, flows=(replace(GOOD.flows[0], seconds=1.0),)), "q7"),
        (
            replace(GOOD, long_runs=(LongRun("q7", (Milestone(1, 1.0, 1.0, 1, 1), Milestone(2, 2.0, 2.0, 1, 1))),)),
            "q7, long run",
        ),
        (replace(GOOD, keys=KeyCosts((KeyCost(10, 10.0, 20), KeyCost(100, 99.0, 200)))), "many keys"),
    ],
)
def test_the_budget_can_be_broken(report: BenchReport, culprit: str) -> None:
    assert GOOD.within_budget()
    assert not report.within_budget()
    assert report.over_budget() == (culprit,)


def test_a_report_can_be_shown() -> None:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render(GOOD))
    shown = capture.get()
    for figure in ("7.50 µs", "1.25", "60 µs", "60,000", "10,000 waiting", "4.25 µs", "1.50", "1.8 µs among 10,000"):
        assert figure in shown
    for figure in ("2,500,000", "4,000,000", "400,000", "8,000,000", "0.50", "batch, polars", "222 ns", "109 ns", "99 MB"):
        assert figure in shown
    assert "not measured: duckdb" in " ".join(shown.split())
    assert "cost 1.10, state 1.10, process 1.10 times" in " ".join(shown.split())
