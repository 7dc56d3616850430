"""What runs of Nexmark queries came to: a table for people, notes below it, and figures for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from dirigo.cli.display.amounts import shown_count, shown_latency
from dirigo.cli.display.satisfaction import in_time, late_note, shown_objective
from dirigo.cli.display.status_tables import plain_table
from dirigo_lab.nexmark.check import ENGINES
from dirigo_lab.nexmark.run import RunReport


def results_table(reports: Sequence[RunReport], equal: Mapping[str, bool], check: str | None) -> Table:
    """A row for each query; `equal` says whose rows are those of the engine that they were checked against."""
    has_latency = any(report.latency_ms for report in reports)
    has_objective = has_latency and any(report.slo is not None for report in reports)
    has_forwarded = any(report.forwarded for report in reports)
    table = plain_table(expand=False) if has_objective else Table()  # beside an objective there is no room for frames
    table.title = f"Nexmark, {reports[0].events:,} events"
    table.add_column("query", no_wrap=True)
    latencies = ("p99", "slo", "in time") if has_objective else ("p50 ms", "p99 ms") if has_latency else ()
    for heading in ("rows", "seconds", "events/s", *latencies, *(("fwd",) if has_forwarded else ())):
        table.add_column(heading, justify="right")
    if check:
        table.add_column(f"= {ENGINES[check]}")
    for report in reports:
        cells: list[str | Text] = [f"{report.rows:,}", f"{report.seconds:.2f}", f"{report.events_per_s:,.0f}"]
        if has_objective:
            cells += _objective(report)
        elif has_latency:
            cells += [_milliseconds(report.latency_ms.get(rank)) for rank in ("p50", "p99")]
        if has_forwarded:
            cells.append(shown_count(report.forwarded))
        if check:
            verdicts = {True: "[green]all rows[/]", False: "[red]no[/]", None: "varies"}
            cells.append(verdicts[equal.get(report.query)])
        table.add_row(report.query, *cells)
    return table


def notes(reports: Sequence[RunReport]) -> list[Text]:
    """What scheduled the queries, and why results were late."""
    lines = [f"scheduled by {reports[0].strategy}"] if reports[0].strategy else []
    lines += [f"{report.query} {late}" for report in reports if (late := late_note(report.satisfaction))]
    return [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines]


def figures_of(report: RunReport, rate: int, host: str, equal: Mapping[str, bool]) -> dict[str, Any]:
    return {
        "query": report.query,
        "events": report.events,
        "rate": rate,
        "host": host,
        "rows": report.rows,
        "seconds": round(report.seconds, 6),
        "events_per_second": round(report.events_per_s),
        "latency_ms": dict(report.latency_ms),
        "strategy": report.strategy,
        "latency_objective_ms": None if report.slo is None else report.slo.latency_ms,
        "target": None if report.slo is None else report.slo.target,
        "satisfaction": msgspec.to_builtins(report.satisfaction),
        "forwarded": report.forwarded,
        **({"equal": equal[report.query]} if report.query in equal else {}),
    }


def _objective(report: RunReport) -> list[str | Text]:
    slo = report.slo
    latency_ms, target = (None, None) if slo is None else (slo.latency_ms, slo.target)
    p99 = shown_latency(report.latency_ms.get("p99"))
    return [p99, shown_objective(latency_ms), in_time(report.satisfaction.results, target)]


def _milliseconds(latency: float | None) -> str:
    return "" if latency is None else f"{latency:,.1f}"
