"""A benchmark report as tables for the terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table

from dirigo_lab.bench.barrier import BarrierCost
from dirigo_lab.bench.flows.tables import (
    render_flows,
    render_generator,
    render_keyed_state,
    render_keys,
    render_long_runs,
)
from dirigo_lab.bench.kernel import FLATNESS_MOST, MESSAGE_US_MOST, SPREAD_MOST, KernelCost
from dirigo_lab.bench.report import BenchReport
from dirigo_lab.bench.simulator import MESSAGES_PER_S_LEAST, SimulatorCost
from dirigo_lab.bench.strategies import BUDGET_QUEUED, BUDGETS_US, StrategyCosts
from dirigo_lab.bench.strategies import FLATNESS_MOST as STRATEGY_FLATNESS_MOST


def render(report: BenchReport) -> Group:
    """All tables, one below the other."""
    return Group(
        render_kernel(report.kernel),
        render_barriers(report.barriers),
        render_strategies(report.strategies),
        render_simulator(report.simulator),
        render_generator(report.generator),
        render_flows(report),
        render_keys(report.keys),
        render_keyed_state(report.keyed_state),
        render_long_runs(report.long_runs),
    )


def render_kernel(cost: KernelCost) -> Table:
    table = Table(
        title="One data message, kernel and FIFO",
        caption=f"budget: {MESSAGE_US_MOST:g} µs. {cost.costs[0].actors} busy actors among {cost.among_idle.actors:,} cost "
        f"{cost.flatness:.2f} times what they cost alone (budget {FLATNESS_MOST:g}); {cost.costs[-1].actors:,} busy in turn "
        f"{cost.spread:.2f} times (budget {SPREAD_MOST:g})",
    )
    for heading in ("actors on the worker", "with the function", "the function alone", "kernel"):
        table.add_column(heading, justify="right")
    for each in cost.costs:
        table.add_row(
            f"{each.actors:,}", f"{each.whole_us:.2f} µs", f"{each.function_us:.2f} µs", f"{each.kernel_us:.2f} µs"
        )
    return table


def render_barriers(costs: tuple[BarrierCost, ...]) -> Table:
    table = Table(title="One barrier, all workers together, no network")
    for heading in ("lessees", "messages", "cost"):
        table.add_column(heading, justify="right")
    for each in costs:
        table.add_row(str(each.lessees), str(each.messages), f"{each.round_us:.0f} µs")
    return table


def render_strategies(costs: StrategyCosts) -> Table:
    budgets = ", ".join(f"{name} {us:g} µs" for name, us in BUDGETS_US.items())
    admission = ", ".join(f"{us:.1f} µs among {queued:,}" for queued, us in costs.admission_us.items())
    table = Table(
        title="One data message, kernel and strategy, while others wait",
        caption=f"budgets with {BUDGET_QUEUED:,} waiting: {budgets}; with the most at most {STRATEGY_FLATNESS_MOST:g} times "
        f"the cost with the fewest. Who would be late because of one more is told in {admission}",
    )
    table.add_column("strategy")
    for queued in costs.costs[0].us:
        table.add_column(f"{queued:,} waiting", justify="right")
    table.add_column("most to fewest", justify="right")
    for each in costs.costs:
        table.add_row(each.strategy, *(f"{us:.2f} µs" for us in each.us.values()), f"{each.flatness:.2f}")
    return table


def render_simulator(cost: SimulatorCost) -> Table:
    table = Table(title="The simulator", caption=f"budget: {MESSAGES_PER_S_LEAST:,.0f} per second")
    table.add_column("data messages", justify="right")
    table.add_column("per second", justify="right")
    table.add_row(f"{cost.messages:,}", f"{cost.messages_per_s:,.0f}")
    return table
