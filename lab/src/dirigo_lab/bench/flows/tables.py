"""What was measured of flows, as tables for the terminal."""

from __future__ import annotations

from rich.table import Table

from dirigo_lab.bench.flows.flow import ROW_FORM_PER_S_LEAST, VECTORISED_PER_S_LEAST
from dirigo_lab.bench.flows.keyed_state import KeyedStateCosts
from dirigo_lab.bench.flows.keys import FLATNESS_MOST, KeyCosts
from dirigo_lab.bench.flows.long_run import COST_GROWTH_MOST, MEMORY_GROWTH_MOST, LongRun
from dirigo_lab.bench.flows.memory_source import BATCH_ROWS
from dirigo_lab.bench.generator import EVENTS_PER_S_LEAST, GeneratorCost
from dirigo_lab.bench.report import BenchReport


def render_generator(cost: GeneratorCost) -> Table:
    table = Table(title="Nexmark's generator, all columns", caption=f"budget: {EVENTS_PER_S_LEAST:,.0f} per second")
    table.add_column("events", justify="right")
    table.add_column("per second", justify="right")
    table.add_row(f"{cost.events:,}", f"{cost.events_per_s:,.0f}")
    return table


def render_flows(report: BenchReport) -> Table:
    """Every query, and below it the batch queries that say what would be possible."""
    note = f". Not installed, so not measured: {', '.join(report.missing)}" if report.missing else ""
    table = Table(
        title="Flows on one core, kernel and operators together",
        caption=f"bids that the query reads, in batches of {BATCH_ROWS:,}; the persons and auctions among which they were "
        f"generated do not count. Budget: {VECTORISED_PER_S_LEAST:,.0f} per second, {ROW_FORM_PER_S_LEAST:,.0f} with a "
        f"Python function per row. Batch queries know all bids beforehand, with one thread{note}",
    )
    table.add_column("query")
    for heading in ("bids", "per second", "flow over batch query"):
        table.add_column(heading, justify="right")
    for flow in report.flows:
        table.add_row(flow.query, f"{flow.bids:,}", f"{flow.bids_per_s:,.0f}", "")
        for limit in report.limits:
            if limit.query == flow.query:
                figures = (f"{limit.bids:,}", f"{limit.bids_per_s:,.0f}", f"{limit.ratio:.2f}")
                table.add_row(f"  batch, {limit.engine}", *figures)
    return table


def render_long_runs(runs: tuple[LongRun, ...]) -> Table:
    growth = "; ".join(
        f"{run.query}: cost {run.cost_growth:.2f}, state {run.state_growth:.2f}, process {run.peak_growth:.2f} times"
        for run in runs
    )
    table = Table(
        title="Long runs",
        caption=f"growth: {growth} (budget {COST_GROWTH_MOST:g} for cost, {MEMORY_GROWTH_MOST:g} for memory)",
    )
    table.add_column("query")
    for heading in ("events so far", "cost per bid", "over a fresh flow's", "open windows", "process, most"):
        table.add_column(heading, justify="right")
    for run in runs:
        for mark in run.marks:
            table.add_row(
                run.query,
                f"{mark.events:,}",
                f"{mark.bid_ns:.0f} ns",
                f"{mark.growth:.2f}",
                f"{mark.state_bytes / 1e3:,.0f} kB",
                f"{mark.peak_bytes / 1e6:,.0f} MB",
            )
    return table


def render_keys(costs: KeyCosts) -> Table:
    table = Table(
        title="A count per key, by number of keys",
        caption=f"the most cost {costs.flatness:.2f} times what the fewest do (budget {FLATNESS_MOST:g})",
    )
    for heading in ("keys", "results", "cost per event"):
        table.add_column(heading, justify="right")
    for cost in costs.costs:
        table.add_row(f"{cost.keys:,}", f"{cost.results:,}", f"{cost.event_ns:.0f} ns")
    return table


def render_keyed_state(costs: KeyedStateCosts) -> Table:
    flatness = "; ".join(f"{form} {costs.flatness(form):.2f}" for form in costs.forms)
    missing = f". Not installed, so not measured: {', '.join(costs.missing)}" if costs.missing else ""
    table = Table(
        title="A running count with a state per key, on one core",
        caption=f"the most keys cost so many times what the fewest do: {flatness} (budget {FLATNESS_MOST:g}){missing}",
    )
    table.add_column("form")
    for heading in ("keys", "rows", "rows per second"):
        table.add_column(heading, justify="right")
    for cost in (*costs.costs, *costs.peers):
        table.add_row(cost.form, f"{cost.keys:,}", f"{cost.events:,}", f"{cost.rows_per_s:,.0f}")
    return table
