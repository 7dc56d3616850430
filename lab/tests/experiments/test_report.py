"""Pictures and pages, from rows that are made here."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dirigo_lab.experiments.experiment import ExperimentSummary, Outcome, ResultRow, Scale, Size, Spread
from dirigo_lab.experiments.reporting import drawing
from dirigo_lab.experiments.reporting.report import (
    Report,
    facts_of,
    figures_table,
    results_table,
    shown_number,
    write_index,
    write_report,
)
from dirigo_lab.pages.figure import COLOURS, blank_figure
from experiments.pretended import COSTS, Pretended, outcome_of

PNG = b"\x89PNG"


def made_summary(seeds: int = 2) -> ExperimentSummary:
    """As Spark would summarise it, with spreads that are easy to tell."""
    rows: list[ResultRow] = []
    outcomes: list[Outcome] = []
    for labels in Pretended().settings(Scale.PAPER, Size.FULL):
        outcomes += (its := [outcome_of(labels, seed) for seed in range(seeds)])
        for job, number in (("urgent", 0), ("bulk", 1)):
            latencies = its[0].latencies[number]
            found = {f"p{each}": float(np.percentile(latencies.latency_ms, each)) for each in (5, 25, 50, 75, 95, 99)}
            found["satisfaction"] = float((latencies.latency_ms <= latencies.objective_ms).mean())
            values = {name: Spread(value, value * 0.9, value * 1.1) for name, value in found.items()}
            rows.append(ResultRow(labels, job, 1200, values))
        rows.append(ResultRow(labels, "", 0, {"forwards": Spread(12.0, 2.0, 22.0), "share": Spread(float("inf"), 0.5, 0.5)}))
    return ExperimentSummary(rows, outcomes)


def report_of(summary: ExperimentSummary, scale: Scale = Scale.PAPER) -> Report:
    return Report.of(Pretended(), scale, Size.FULL, 2, COSTS, summary)


# --- pictures --------------------------------------------------------------------------------------------------------------


def axes_with(draw: Any) -> Any:
    axes = blank_figure(4, 3).add_subplot(1, 1, 1)
    draw(axes)
    axes.figure.canvas.draw()
    return axes


def test_a_picture_is_saved_and_grows_with_its_panels(tmp_path: Path) -> None:
    def height(panels: int) -> int:
        def draw(figure: Any) -> None:
            for number in range(panels):
                figure.add_subplot(panels, 1, number + 1)

        image = drawing.save(draw, tmp_path / "deep" / "picture.png")
        assert image.startswith(PNG)
        assert (tmp_path / "deep" / "picture.png").read_bytes() == image
        return int.from_bytes(image[20:24], "big")

    assert height(1) < 0.6 * height(3)


def test_boxes_show_percentiles_and_dots_satisfaction() -> None:
    rows = made_summary().all(job="urgent")

    def draw(axes: Any) -> None:
        drawing.distributions(
            axes,
            rows,
            x=lambda row: str(row.labels["workers"]),
            series=lambda row: str(row.labels["strategy"]),
            satisfaction=True,
        )

    axes = axes_with(draw)
    assert axes.get_yscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["8", "2", "4"]
    boxes = axes.patches
    assert [box.get_y() for box in boxes] == [pytest.approx(row["p25"]) for row in rows]
    assert [box.get_y() + box.get_height() for box in boxes] == [pytest.approx(row["p75"]) for row in rows]
    assert [line.get_ydata()[0] for line in axes.lines] == [pytest.approx(row["p99"]) for row in rows]
    (second,) = (each for each in axes.figure.axes if each is not axes)
    assert [line.get_ydata()[0] for line in second.lines] == [pytest.approx(100 * row["satisfaction"]) for row in rows]
    assert second.get_ylim()[0] == 0
    # Beside each other, around their group: reject_send, which comes first, on the left.
    middles = [box.get_x() + box.get_width() / 2 for box in boxes]
    assert middles == pytest.approx([-0.2, 0.8, 1.8, 0.2, 1.2, 2.2])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["reject_send", "fifo"]


def test_two_jobs_in_one_box_are_noticed() -> None:
    rows = made_summary().rows
    with pytest.raises(AssertionError, match="two rows for 'fifo' at 'all': choose one job"):
        axes_with(lambda axes: drawing.distributions(axes, rows, x=lambda _: "all", series=lambda _: "fifo"))


def test_lines_have_medians_and_a_band() -> None:
    rows = made_summary().all(strategy="fifo")

    def draw(axes: Any) -> None:
        workers, fifo = (lambda row: float(row.labels["workers"])), (lambda _: "fifo")
        drawing.lines(axes, rows, x=workers, value="forwards", series=fifo, scale=2.0)

    axes = axes_with(draw)
    (line,) = axes.lines
    assert list(line.get_xdata()) == [2, 4, 8]
    assert list(line.get_ydata()) == [24.0, 24.0, 24.0]
    (band,) = axes.collections
    heights = {point[1] for point in band.get_paths()[0].vertices}
    assert heights == {4.0, 44.0}
    assert axes.get_ylim()[0] == 0
    assert axes.get_legend() is None  # nothing to tell apart


def test_bars_stand_beside_each_other() -> None:
    axes = axes_with(lambda axes: drawing.bars(axes, ["a", "b"], {"one": [1.0, 2.0], "two": [3.0, 4.0]}))
    assert [bar.get_height() for bar in axes.patches] == [1.0, 2.0, 3.0, 4.0]
    assert [bar.get_x() + bar.get_width() / 2 for bar in axes.patches] == pytest.approx([-0.2, 0.8, 0.2, 1.2])
    with pytest.raises(AssertionError, match="one has 1 values for 2 names"):
        drawing.bars(axes, ["a", "b"], {"one": [1.0]})


def test_a_strategy_has_its_colour_and_no_two_series_share_one() -> None:
    assert drawing.colours_of(["REJECTSEND", "fifo"]) == {"REJECTSEND": COLOURS[2], "fifo": COLOURS[0]}
    assert drawing.colours_of(["fifo"])["fifo"] == COLOURS[0]
    many = drawing.colours_of(["other", "reject_send", "reject_send_random", "fifo", "direct_send", "tokens"])
    assert many["reject_send"] == COLOURS[2]
    assert len(set(many.values())) == 6
    assert next(iter(many)) == "other"
    assert len(drawing.colours_of([str(number) for number in range(9)])) == 9


# --- pages -----------------------------------------------------------------------------------------------------------------


def test_a_page_has_claims_figures_assumptions_and_facts(tmp_path: Path) -> None:
    report = report_of(made_summary())
    html, png = write_report(report, tmp_path)
    assert (html, png) == (tmp_path / "pretended" / "index.html", tmp_path / "pretended" / "pretended.png")
    text = html.read_text(encoding="utf-8")
    assert "Nothing &lt;but&gt; numbers" in text
    assert "Is reject_send faster?" in text
    held = f'<td>2 times</td><td>{report.claims[0].ours}</td><td><span class="good">holds</span></td>'
    assert f"<td>reject_send is faster</td>{held}" in text
    verdict = '<td><span class="bad">does not hold</span></td>'
    assert f"<td>10 ms &amp; less</td><td>100 ms</td>{verdict}<td>it was made &lt;so&gt;</td>" in text
    assert f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}" in text
    assert png.read_bytes().startswith(PNG)
    assert '<td>reject_send</td><td>8</td><td>0.5</td><td>urgent</td><td class="number">1,200</td>' in text
    assert "100.0% (90.0% to 110.0%)" in text  # of bulk, as made here
    assert "12 (2 to 22)" in text
    assert "nobody waits for them" in text
    assert "Scale: paper, in the simulator. Size: full. Seeds: 2." in text
    assert "as measured on a machine: 300 us for a hop, 100 us to take in a message" in text
    assert "200 MB/s" in text
    assert "Latency objectives: urgent 20 ms." in text
    assert "cores" in text


def test_objectives_that_differ_from_setting_to_setting_are_told_as_a_range() -> None:
    summary = made_summary()
    summary.outcomes[3].latencies[0].objective_ms = 51.04
    summary.outcomes[5].latencies[1].objective_ms = 7.0
    assert "Latency objectives: urgent 20 to 51.0 ms, bulk 7 ms." in facts_of(report_of(summary))


def test_on_spark_its_workers_are_told_and_no_costs(tmp_path: Path) -> None:
    html, _ = write_report(report_of(made_summary(), Scale.MACHINE), tmp_path)
    text = html.read_text(encoding="utf-8")
    assert "Workers on Spark: 3." in text
    assert "for a hop" not in text


def test_the_page_of_all_has_the_claims_of_each_in_order(tmp_path: Path) -> None:
    class Second(Pretended):
        name = "another"
        title = "Another"

    summary = made_summary()
    write_report(report_of(summary), tmp_path)
    write_report(Report.of(Second(), Scale.PAPER, Size.QUICK, 1, COSTS, summary), tmp_path)
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger" / "report.json").write_text('{"of": "somebody else"}')
    text = write_index(tmp_path, ["pretended", "another"]).read_text(encoding="utf-8")
    assert "2 of 4 claims hold." in text
    assert text.index('<a href="pretended/index.html">') < text.index('<a href="another/index.html">')
    assert text.count("reject_send is faster") == 2
    assert "paper, quick, seeds: 1" in text
    assert "stranger" not in text


def test_figures_are_for_machines_too() -> None:
    report = report_of(made_summary())
    figures = json.loads(json.dumps(report.figures(), allow_nan=False))
    assert (figures["scale"], figures["size"], figures["seeds"]) == ("paper", "full", 2)
    assert figures["claims"][0] == {
        "text": "reject_send is faster",
        "paper": "2 times",
        "ours": report.claims[0].ours,
        "holds": True,
        "why": "",
    }
    last = figures["rows"][-1]
    assert last["labels"] == {"strategy": "fifo", "workers": 4, "load": 0.5}
    assert last["values"]["forwards"] == {"median": 12.0, "low": 2.0, "high": 22.0}
    assert last["values"]["share"]["median"] is None  # infinite


def test_tables_leave_open_what_is_not_there() -> None:
    outcomes = [Outcome({"n": 1}, 0, [], {"cost": 1.0}), Outcome({"n": 2, "m": 0.25}, 0, [], {})]
    rows = [ResultRow({"n": 1}, "", 0, {"cost": Spread(1.0, 1.0, 1.0)}), ResultRow({"n": 2, "m": 0.25}, "job", 0, {})]
    summary = ExperimentSummary(rows, outcomes)
    assert figures_table(summary) == [["n", "m", "cost"], ["1", "-", "1"]]
    assert results_table(summary)[1:] == [["2", "0.25", "job", "0", "-", "-", "-", "-"]]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234.5, "1,234"), (99.96, "100.0"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.0123"), (7.0, "7"), (0.0, "0")],
)
def test_numbers_have_three_digits_that_matter(value: float, shown: str) -> None:
    assert shown_number(value) == shown
