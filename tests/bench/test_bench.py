"""The shape of the benchmarks; how fast anything is on the machine at hand is no matter for a test."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from dirigo.bench import BenchReport, Sizes, render, run_all
from dirigo.bench.barrier import BarrierCost, measure_barriers
from dirigo.bench.kernel import KernelCost, MessageCost, measure_kernel
from dirigo.bench.simulator import SimulatorCost, measure_simulator

TINY = Sizes(actors=(2, 5), messages=10, rounds=2, emissions=20, repeats=2)
GOOD = BenchReport(
    python="3.11.0",
    kernel=KernelCost((MessageCost(10, 6.5, 0.5), MessageCost(1000, 8.0, 0.5)), MessageCost(1000, 6.5, 0.5)),
    barriers=(BarrierCost(0, 60.0, 3),),
    simulator=SimulatorCost(60_000, 1.0),
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
    assert told == ["messages through the kernel", "barriers", "the simulator"]
    assert [cost.actors for cost in report.kernel.costs] == [2, 5]
    assert [cost.lessees for cost in report.barriers] == [0, 4]
    content = json.loads(report.to_json())
    assert content["kernel"]["costs"][0]["actors"] == 2
    assert content["within_budget"] is report.within_budget()


def test_json_has_what_the_tables_show() -> None:
    content = json.loads(GOOD.to_json())
    assert content["kernel"]["costs"][1]["kernel_us"] == 7.5
    assert content["kernel"]["flatness"] == 1.0
    assert content["kernel"]["spread"] == 1.25
    assert content["simulator"]["messages_per_s"] == 60_000
    assert content["within_budget"] is True


@pytest.mark.parametrize(
    "report",
    [
        replace(GOOD, kernel=replace(GOOD.kernel, costs=(MessageCost(10, 11.0, 0.5),))),
        replace(GOOD, kernel=replace(GOOD.kernel, costs=(MessageCost(10, 2.5, 0.5), MessageCost(1000, 8.0, 0.5)))),
        replace(GOOD, kernel=replace(GOOD.kernel, among_idle=MessageCost(1000, 9.5, 0.5))),
        replace(GOOD, simulator=SimulatorCost(10_000, 1.0)),
    ],
)
def test_the_budget_can_be_broken(report: BenchReport) -> None:
    assert GOOD.within_budget()
    assert not report.within_budget()


def test_a_report_can_be_shown() -> None:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render(GOOD))
    shown = capture.get()
    for figure in ("7.50 µs", "1.25", "60 µs", "60,000"):
        assert figure in shown
