"""``dirigo slo calibrate``, as a user meets it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import FAILING, begun, ended, home_of_clusters, refused, renamed, run, written
from dirigo.calibration import runs

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
SLOW = """
import dirigo as dg

def rows(first, count):
    return [{"n": n} for n in range(first, first + count)]

flow = dg.Dataflow("slow", slo=dg.SLO(latency="1ms"))
source = dg.shaped(dg.from_generator(rows, {"n": int}, block=20), dg.loads.constant(1))
flow.source(source, name="rows").filter(dg.col("n") >= 0).sink(dg.to_json_lines("OUT"))
flow.emulate("rows", per_row="1ms")
"""
BIDS = """
import dirigo as dg

flow = dg.Dataflow("bids")
flow.source(dg.nexmark.bids(10**12)).select("auction", price=dg.col("price") * 2).sink(dg.to_nothing())
"""
SHORT = """
import dirigo as dg

flow = dg.Dataflow("short")
flow.source(dg.from_iterable([{"a": n} for n in range(500)])).sink(dg.to_memory())
"""
QUICK = ("--probe", "1s", "--for", "1s")


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with home_of_clusters(tmp_path / "home") as place:
        yield place


def test_a_flow_is_measured_half_busy_and_nothing_is_written(tmp_path: Path) -> None:
    out, _ = run("slo", "calibrate", written(tmp_path, SLOW), "--workers", "1", *QUICK, "--json", tmp_path / "slo.json")
    figures = json.loads((tmp_path / "slo.json").read_text())
    assert (figures["flow"], figures["workers"]) == ("slow", 1)
    probe, *rounds = figures["steps"]
    assert probe["step"] == "probe"
    assert probe["row_cost_us"] >= 1_000  # a worker sleeps so long for each row, beside what else there is to do
    assert 1 <= len(rounds) <= 3
    assert figures["rows_per_second"] < probe["rows_per_second"]
    assert figures["objective_ms"] >= 2 * figures["latency_ms"]["p99"]
    assert f"{figures['objective_ms']}ms is twice its p99" in out
    assert f'slo=dg.SLO(latency="{figures["objective_ms"]}ms")' in out
    assert max(len(line) for line in out.splitlines() if not line.startswith(("note:", "/"))) <= 80
    assert not (tmp_path / "out").exists()


def test_rows_that_cost_too_much_for_a_probe_are_measured_at_a_low_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_DRAIN_S_LEAST", 0.1)
    large = SLOW.replace("block=20", "block=300").replace('per_row="1ms"', 'per_row="5ms"')
    quick = ("--probe", "500ms", "--for", "500ms")
    run("slo", "calibrate", written(tmp_path, large), "--workers", "1", *quick, "--json", tmp_path / "slo.json")
    probe, first, *_ = json.loads((tmp_path / "slo.json").read_text())["steps"]
    # A row takes 5 ms. Of the rows that are read in time some are worked off later, so a bit less may be found.
    assert probe["row_cost_us"] >= 2_500
    assert first["rows_per_second"] < 200


def test_a_source_that_ends_early_is_told(tmp_path: Path) -> None:
    out, _ = run("slo", "calibrate", written(tmp_path, SHORT), "--workers", "1", *QUICK)
    assert re.search(r"note: the sources ended after \d\.\d s, which is too short to tell; give them more rows\.", out)


def test_generated_bids_are_a_source_to_calibrate_with(tmp_path: Path) -> None:
    out, _ = run("slo", "calibrate", written(tmp_path, BIDS), "--workers", "1", *QUICK, "--strategy", "fifo")
    assert re.search(r"^bids on 1 workers, \d+ % busy at [\d,]+ rows/s: \d+ms is twice its p99$", out, flags=re.MULTILINE)


def test_a_flow_that_fails_tells_where(tmp_path: Path) -> None:
    process = begun("slo", "calibrate", written(tmp_path, FAILING), "--workers", "1", *QUICK)
    said = ended(process)
    assert process.returncode == 1
    assert "error: job 'failing.probe' failed: operator 'map' cannot handle the row" in said
    assert "in inverse" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("q77",), "there is no file q77; check its name."),
        (("FILE", "--flow", "none"), "there is no dataflow 'none' in"),
        (("TWO",), "choose with --flow: short, other."),
        (("FILE", "--workers", "0"), "a cluster of 0 workers does nothing; ask for 1 or more"),
        (("FILE", "--probe", "5"), "--probe: '5' is not a duration; say the unit"),
        (("FILE", "--for", "0s"), "--for: '0s' is no time at all"),
        (("FILE", "--strategy", "best"), "there is no strategy 'best'; choose fifo"),
    ],
)
def test_what_cannot_be_calibrated_gives_one_line(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    files = {
        "FILE": str(written(tmp_path, SHORT)),
        "TWO": str(written(tmp_path, SHORT + renamed(SHORT, "other"), "two.py")),
    }
    assert sentence in refused("slo", "calibrate", *(files.get(each, each) for each in arguments))


def test_help_has_an_example_and_every_option_is_documented() -> None:
    out, _ = run("slo", "calibrate", "--help")
    assert "dirigo slo calibrate shop.py" in out
    section = PAGE.read_text().split("## `dirigo slo calibrate`")[1].split("\n## ")[0]
    options = set(re.findall(r"--[a-z]+", out.partition("Options")[2])) - {"--help"}
    assert {option for option in options if f"`{option}" not in section} == set()
