"""The figures of snapshots and recovery as tables for the terminal."""

from __future__ import annotations

from statistics import median

from rich.console import Group
from rich.table import Table

from dirigo_lab.bench.recovery.kills import AwayTimes
from dirigo_lab.bench.recovery.peers.peer_times import PeerTimes
from dirigo_lab.bench.recovery.report import LATER_MOST_MS, THROUGHPUT_LEAST, RecoveryFigures
from dirigo_lab.bench.recovery.steady_costs import LargeState, Lateness, Throughput


def render_recovery(report: RecoveryFigures) -> Group:
    """All tables, one below the other."""
    beside = report.bystander
    return Group(
        render_away(report.away),
        *([render_peers(report.away, report.peers)] if report.peers else []),
        render_throughputs(report.throughputs),
        render_latenesses(report.latenesses),
        render_large(report.large),
        f"a bystander's results, p50 and p99: {beside.calm_p50_ms:.1f} and {beside.calm_p99_ms:.1f} ms while its neighbour "
        f"is well, {beside.p50_ms:.1f} and {beside.p99_ms:.1f} ms while that crashes and comes back ({beside.kills} kills)",
        f"load average of the machine: {report.load[0]:.1f} before, {report.load[1]:.1f} after",
    )


def render_away(costs: tuple[AwayTimes, ...]) -> Table:
    table = Table(
        title="A worker is killed: seconds until the job is back, median and p99",
        caption="a row that fell due after the kill is made into a result, and shown with the next snapshot",
    )
    for heading in ("state", "kills", "noticed to running", "kill to result made", "kill to result shown", "wrong"):
        table.add_column(heading, justify="right")
    for each in costs:
        cells = (f"{mid:.2f}, {late:.2f}" for mid, late in zip(each.medians, each.p99s, strict=True))
        table.add_row(f"{each.state_mb} MB", str(each.kills), *cells, "; ".join(each.wrong) or "none")
    return table


def render_peers(ours: tuple[AwayTimes, ...], peers: tuple[PeerTimes, ...]) -> Table:
    table = Table(title="From a kill to the first new result: seconds, median and p99")
    for heading in ("state", "who", "killed", "kills", "seconds", "wrong"):
        table.add_column(heading, justify="left" if heading in ("who", "killed") else "right")
    rows = [PeerTimes("Dirigo", "a worker", each.state_mb, each.shown_s, each.wrong) for each in ours]
    for each in sorted((*rows, *peers), key=lambda each: each.state_mb):  # ours first: sorted keeps the order
        times = f"{each.median_s:.2f}, {each.p99_s:.2f}" if each.shown_s else "none"
        wrong = "; ".join(each.wrong[:1]) or "none"
        table.add_row(f"{each.state_mb} MB", each.name, each.killed, str(len(each.shown_s)), times, wrong)
    return table


def render_throughputs(costs: tuple[Throughput, ...]) -> Table:
    table = Table(
        title="From files, in turns: bids per second, medians", caption=f"budget: {THROUGHPUT_LEAST:g} times without"
    )
    for heading in ("query", "without", "a snapshot every second", "times"):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    for each in costs:
        bare, kept = median(each.without), median(each.with_snapshots)
        table.add_row(each.query, f"{bare:,.0f}", f"{kept:,.0f}", f"{each.ratio:.2f}")
    return table


def render_latenesses(costs: tuple[Lateness, ...]) -> Table:
    table = Table(
        title="From the end of a window of 1 s to its results, ms",
        caption=f"at half load, in turns; budget: {LATER_MOST_MS:g} ms more at p99",
    )
    for heading in ("query", "bids/s", "without p50", "p99", "with p50", "p99"):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    for each in costs:
        figures = (each.without_p50_ms, each.without_p99_ms, each.p50_ms, each.p99_ms)
        table.add_row(each.query, f"{each.rate_per_s:,}", *(f"{figure:,.1f}" for figure in figures))
    return table


def render_large(costs: tuple[LargeState, ...]) -> Table:
    table = Table(title="Much state of which a hundredth changes per second, a snapshot every second")
    for heading in ("state", "MB changed/s", "MB written", "took s", "longest", "rows/s of wanted", "p99 ms", "without"):
        table.add_column(heading, justify="left" if heading == "state" else "right")
    for each in costs:
        table.add_row(
            f"{each.state_mb} MB, {each.what}",
            f"{each.changed_mb_per_s:g}",
            f"{each.written_mb:g}",
            f"{each.duration_s:.2f}",
            f"{each.longest_s:.2f}",
            f"{each.rows_done_per_s:g} of {each.rows_per_s}",
            f"{each.p99_ms:.1f}",
            f"{each.without_p99_ms:.1f}",
        )
    return table
