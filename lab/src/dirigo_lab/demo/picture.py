"""Latency over time as a picture: one panel per tenant, one line per strategy, and the objective."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from dirigo_lab.demo.contest import Run
from dirigo_lab.pages import page
from dirigo_lab.pages.figure import COLOURS, DPI, blank_figure

_WORDS = 2  # columns of the table: job and strategy


def save_pictures(
    runs: Sequence[Run], title: str, facts: Sequence[str], table: Sequence[Sequence[str]], stem: Path
) -> list[Path]:
    """Write STEM.png and STEM.html: the same picture, on the page with its table and the facts that belong to it."""
    figure = _figure(runs, title)
    stem.parent.mkdir(parents=True, exist_ok=True)
    image = BytesIO()
    figure.savefig(image, format="png", dpi=DPI)
    png, html = stem.with_suffix(".png"), stem.with_suffix(".html")
    png.write_bytes(image.getvalue())
    html.write_text(_page(title, facts, table, image.getvalue()), encoding="utf-8")
    return [png, html]


def _figure(runs: Sequence[Run], title: str) -> Any:
    names = list(runs[0].tenants)
    figure = blank_figure(9, 2.9 * len(names) + 0.6)
    figure.suptitle(title, fontsize=12)
    for number, name in enumerate(names):
        axes = figure.add_subplot(len(names), 1, number + 1)
        objective_ms = runs[0].tenants[name].latency_objective_ms
        for colour, run in zip(COLOURS, runs, strict=False):
            tenant = run.tenants[name]
            times = [sample.at_s for sample in tenant.samples]
            label = f"{run.strategy}: {tenant.satisfaction:.0%} within the objective"
            axes.plot(times, [sample.p99_ms for sample in tenant.samples], color=colour, linewidth=1.6, label=label)
        axes.axhline(objective_ms, color="#222222", linestyle=(0, (4, 3)), linewidth=1.0)
        axes.annotate(f"objective {objective_ms:,} ms", (0, objective_ms), (4, 4), textcoords="offset points", fontsize=8)
        axes.set_yscale("log")
        axes.set_title(name, loc="left", fontsize=10)
        axes.set_ylabel("latency of results, ms")
        axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="best")
    axes.set_xlabel("seconds since the job began")
    return figure


def _page(title: str, facts: Sequence[str], table: Sequence[Sequence[str]], image: bytes) -> str:
    head, *rows = table
    shown = page.table(head, rows, words=_WORDS)
    return page.page(title, shown, page.picture(image, "latency over time"), page.items(facts))
