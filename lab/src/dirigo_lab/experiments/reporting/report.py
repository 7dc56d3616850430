"""What an experiment found, as pages: one for each experiment, with its claims beside the paper's, and one for all of them.

The page of all is made from what the others left in their folders, so experiments can be run one at a time.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Claim, Experiment, ExperimentSummary, Label, ResultRow, Scale, Size, Spread
from dirigo_lab.experiments.reporting.drawing import save
from dirigo_lab.experiments.reporting.store import label_names
from dirigo_lab.pages import page

PLACES = {Scale.PAPER: "in the simulator", Scale.MACHINE: "on Spark, on one machine"}
_PAGE, _FIGURES = "index.html", "report.json"
_CLAIM_HEADINGS = ("claim", "paper", "ours", "verdict", "why")
_NOTHING = "-"

Cells = list[str]


@dataclass(frozen=True)
class Report:
    """All that a page tells."""

    experiment: Experiment
    scale: Scale
    size: Size
    seeds: int
    costs: RuntimeCosts
    summary: ExperimentSummary
    claims: Sequence[Claim]

    @classmethod
    def of(
        cls, experiment: Experiment, scale: Scale, size: Size, seeds: int, costs: RuntimeCosts, summary: ExperimentSummary
    ) -> Report:
        return cls(experiment, scale, size, seeds, costs, summary, experiment.claims(scale, summary))

    def figures(self) -> dict[str, Any]:
        """For machines."""
        return {
            "scale": self.scale.value,
            "size": self.size.value,
            "seeds": self.seeds,
            "claims": [msgspec.to_builtins(claim) for claim in self.claims],
            "rows": [_figures_of(row) for row in self.summary.rows],
        }


def write_report(report: Report, out: Path) -> tuple[Path, Path]:
    """Write OUT/NAME/index.html and OUT/NAME/NAME.png; where they are."""
    experiment, folder = report.experiment, out / report.experiment.name
    html, png = folder / _PAGE, folder / f"{experiment.name}.png"
    image = save(lambda figure: experiment.draw(figure, report.summary), png, title=experiment.title)
    html.write_text(_page(report, image), encoding="utf-8")
    told = {"title": experiment.title, "question": experiment.question, **report.figures()}
    (folder / _FIGURES).write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n")
    return html, png


def write_index(out: Path, order: Sequence[str]) -> Path:
    """Write OUT/index.html over all experiments that have a page in OUT, in this order of their names."""
    found = {file.parent.name: file for file in out.glob(f"*/{_FIGURES}")}
    names = [name for name in order if name in found] + sorted(found.keys() - set(order))
    told = {name: each for name in names if (each := _told_in(found[name])) is not None}
    rows = [
        [page.link(name, f"{name}/{_PAGE}"), *_claim_cells(claim), f"{each.scale}, {each.size}, seeds: {each.seeds}"]
        for name, each in told.items()
        for claim in each.claims
    ]
    listed = [
        page.Html(f"{page.link(each.title, f'{name}/{_PAGE}')}: {page.shown(each.question)}") for name, each in told.items()
    ]
    claims = [claim for each in told.values() for claim in each.claims]
    index = out / _PAGE
    index.write_text(
        page.page(
            "Experiments",
            page.lead(f"{sum(claim.holds for claim in claims)} of {len(claims)} claims hold."),
            page.items(listed),
            page.heading("All claims"),
            page.table(("experiment", *_CLAIM_HEADINGS, "run"), rows, words=len(_CLAIM_HEADINGS) + 2),
        ),
        encoding="utf-8",
    )
    return index


class _Told(msgspec.Struct):
    """What the page of all experiments needs of one."""

    title: str
    question: str
    scale: str
    size: str
    seeds: int
    claims: list[Claim]


def _told_in(file: Path) -> _Told | None:
    """None if the file is somebody else's, or of another version: that is no reason to lose the page."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Told)
    except msgspec.DecodeError:
        return None


def _page(report: Report, image: bytes) -> str:
    experiment, rows = report.experiment, report.summary.rows
    parts = [page.lead(experiment.question)]
    if report.claims:
        claims = page.table(_CLAIM_HEADINGS, map(_claim_cells, report.claims), words=len(_CLAIM_HEADINGS))
        parts += [page.heading("Claims"), claims]
    parts += [page.heading("Picture"), page.picture(image, experiment.title)]
    words = len(label_names(report.summary.outcomes))
    results, figures = results_table(report.summary), figures_table(report.summary)
    if len(results) > 1:
        parts += [page.heading("Results"), page.table(results[0], results[1:], words=words + 1)]
    if len(figures) > 1:
        parts += [page.heading("Runs as a whole"), page.table(figures[0], figures[1:], words=words)]
    if report.seeds > 1 and rows:
        parts.append(page.Html(f"<p>Medians over {report.seeds} seeds; in brackets the least and the greatest.</p>"))
    assumptions = experiment.assumptions(report.scale, report.size, report.costs)
    if assumptions:
        parts += [page.heading("What the paper does not state, and what was chosen"), page.items(assumptions)]
    parts += [page.heading("How it was run"), page.items(facts_of(report))]
    return page.page(f"{experiment.title} ({experiment.name})", *parts)


def facts_of(report: Report) -> list[str]:
    """How it was run, a sentence each."""
    costs = report.costs
    facts = [f"Scale: {report.scale.value}, {PLACES[report.scale]}. Size: {report.size.value}. Seeds: {report.seeds}."]
    if report.scale is Scale.PAPER:
        where = f" on {costs.machine}" if costs.machine else ""
        facts.append(
            f"RuntimeCosts of the runtime, as measured{where}: {costs.hop_s * 1e6:,.0f} us for a hop, "
            f"{costs.fetch_s * 1e6:,.0f} us "
            f"to take in a message, {costs.message_s * 1e6:,.0f} us to run one beside what its function takes, "
            f"{costs.critical_s * 1e6:,.0f} us for a critical one; partial states move at "
            f"{costs.state_bytes_per_s / 1e6:,.0f} MB/s."
        )
    else:
        facts.append(f"Workers on Spark: {report.experiment.spark_workers}.")
    objectives = _objectives(report.summary)
    if objectives:
        facts.append(f"Latency objectives: {objectives}.")
    facts.append(
        f"Machine: {os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}."
    )
    return facts


def _objectives(summary: ExperimentSummary) -> str:
    """Of each job that has one. They are measured in part, and can differ from setting to setting."""
    found: dict[str, set[float]] = {}
    for outcome in summary.outcomes:
        for each in outcome.latencies:
            if math.isfinite(each.objective_ms):
                found.setdefault(each.job, set()).add(each.objective_ms)
    return ", ".join(
        f"{job} {' to '.join(dict.fromkeys(map(shown_number, (min(each), max(each)))))} ms" for job, each in found.items()
    )


# --- tables, for pages and terminals ---------------------------------------------------------------------------------------


def results_table(summary: ExperimentSummary, *, ranges: bool = True) -> list[Cells]:
    """The latencies of each job in each setting, under a row of headings; the labels and the job come first.

    ``ranges``: not only medians over the seeds, but also the least and the greatest.
    """
    names = label_names(summary.outcomes)
    table = [[*names, "job", "results", "in time", "p50 ms", "p95 ms", "p99 ms"]]
    for row in summary.rows:
        if row.job:
            satisfaction = _spread(row, "satisfaction", lambda share: f"{share:.1%}", ranges)
            latencies = [_spread(row, name, shown_number, ranges) for name in ("p50", "p95", "p99")]
            table.append([*_labels(row, names), row.job, f"{row.results:,}", satisfaction, *latencies])
    return table


def figures_table(summary: ExperimentSummary, *, ranges: bool = True) -> list[Cells]:
    """The other figures of each setting, under a row of headings; the labels come first."""
    names = label_names(summary.outcomes)
    rows = [row for row in summary.rows if not row.job]
    figures = list(dict.fromkeys(figure for outcome in summary.outcomes for figure in outcome.figures))
    cells = [[*_labels(row, names), *(_spread(row, figure, shown_number, ranges) for figure in figures)] for row in rows]
    return [[*names, *(figure.replace("_", " ") for figure in figures)], *cells]


def verdict_of(claim: Claim) -> str:
    return "holds" if claim.holds else "does not hold"


def shown_number(value: float) -> str:
    """Three digits that matter, or all before the point."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:,.1f}" if size >= 10 else f"{value:.3g}"


def _spread(row: ResultRow, name: str, shown: Callable[[float], str], ranges: bool) -> str:
    spread = row.values.get(name)
    if spread is None:
        return _NOTHING
    middle, low, high = (shown(each) for each in (spread.median, spread.low, spread.high))
    return f"{middle} ({low} to {high})" if ranges and low != high else middle


def _labels(row: ResultRow, names: Sequence[str]) -> Cells:
    return [_shown_label(row.labels.get(name)) for name in names]


def _shown_label(label: Label | None) -> str:
    return _NOTHING if label is None else f"{label:g}" if isinstance(label, float) else str(label)


def _claim_cells(claim: Claim) -> Cells:
    return [claim.text, claim.paper, claim.ours, page.verdict(verdict_of(claim), good=claim.holds), claim.why]


def _figures_of(row: ResultRow) -> dict[str, Any]:
    values = {name: _finite(spread) for name, spread in row.values.items()}
    return {"labels": dict(row.labels), "job": row.job, "results": row.results, "values": values}


def _finite(spread: Spread) -> dict[str, float | None]:
    """JSON knows no infinity."""
    each = {"median": spread.median, "low": spread.low, "high": spread.high}
    return {name: value if math.isfinite(value) else None for name, value in each.items()}
