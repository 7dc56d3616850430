"""The service's figures as tables for the terminal."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table

from dirigo_lab.bench.service.service import (
    LATENCY_MOST,
    THROUGHPUT_LEAST,
    CountCost,
    Hop,
    Latency,
    QueryCost,
    ServiceReport,
)


def render_service(report: ServiceReport) -> Group:
    """All tables, one below the other."""
    return Group(
        render_queries(report.queries),
        render_latencies(report.latencies),
        render_hop(report.hop),
        render_counts(report.counts),
        f"from nothing to two ready workers: {report.start_s:.1f} s; to a first result: {report.first_result_s:.1f} s",
    )


def render_queries(costs: tuple[QueryCost, ...]) -> Table:
    table = Table(
        title="From the same files, on the same cores: bids per second",
        caption=f"budget: {THROUGHPUT_LEAST:g} times Structured Streaming",
    )
    for heading in ("query", "2 workers", "1 worker", "from_spark", "Structured Streaming", "times"):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    for each in costs:
        table.add_row(
            each.query,
            f"{each.bids_per_s:,.0f}",
            f"{each.one_worker_bids_per_s:,.0f}",
            f"{each.from_spark_bids_per_s:,.0f}",
            f"{each.streaming.events_per_s:,.0f}",
            f"{each.ratio:.2f}",
        )
    return table


def render_latencies(costs: tuple[Latency, ...]) -> Table:
    table = Table(
        title="From the end of a window of 1 s to its results, ms",
        caption=f"both at half of what Structured Streaming can take; budget: {LATENCY_MOST:g} times its p99",
    )
    for heading in ("query", "bids/s", "p50", "p99", "Structured Streaming p50", "p99", "times"):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    for each in costs:
        ours = (f"{each.p50_ms:,.1f}", f"{each.p99_ms:,.1f}")
        theirs = (f"{each.streaming.p50_ms:,.0f}", f"{each.streaming.p99_ms:,.0f}")
        table.add_row(each.query, f"{each.rate_per_s:,}", *ours, *theirs, f"{each.ratio:.3f}")
    return table


def render_hop(hop: Hop) -> Table:
    table = Table(title="One message between two workers, from user code to user code")
    for heading in ("", "median µs", "p99 µs", "messages/s"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("Dirigo", f"{hop.hop_us:,.0f}", f"{hop.hop_p99_us:,.0f}", f"{hop.messages_per_s:,.0f}")
    limit = hop.limit
    table.add_row("bare sockets", f"{limit.hop_us:,.0f}", f"{limit.hop_p99_us:,.0f}", f"{limit.small_messages_per_s:,.0f}")
    return table


def render_counts(costs: tuple[CountCost, ...]) -> Table:
    table = Table(title="q12_event with many actors, and on many workers, on the same cores")
    table.add_column("")
    table.add_column("bids/s", justify="right")
    for each in costs:
        table.add_row(f"{each.count:,} {each.what}", f"{each.bids_per_s:,.0f}")
    return table
