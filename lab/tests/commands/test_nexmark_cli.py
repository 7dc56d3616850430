"""``dirigo nexmark``, as a user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cli.commands import home_of_clusters
from dirigo.cli import app
from dirigo_lab.nexmark import QUERIES

ROOT = Path(__file__).parents[3]
SIM = ("--host", "sim")


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["nexmark", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_queries_are_run_and_their_figures_and_results_are_written(tmp_path: Path) -> None:
    figures = tmp_path / "deep" / "nexmark.json"
    out = tmp_path / "results"
    output = run("q2", "q7", "--events", "20000", "--rate", "1000", "--out", str(out), "--json", str(figures), *SIM)
    assert "q2" in output
    assert "20,000" in output
    report = json.loads(figures.read_text())
    assert [each["query"] for each in report["queries"]] == ["q2", "q7"]
    for each in report["queries"]:
        measured = {"query", "events", "rate", "host", "rows", "seconds", "events_per_second", "latency_ms"}
        assert set(each) == measured | {"strategy", "latency_objective_ms", "target", "satisfaction", "forwarded"}
        assert (each["events"], each["rate"], each["host"]) == (20_000, 1_000, "sim")
        assert each["rows"] == pq.read_table(out / each["query"]).num_rows > 0
        assert each["events_per_second"] == pytest.approx(20_000 / each["seconds"], rel=0.01)


def test_all_runs_every_query_once(tmp_path: Path) -> None:
    run("q3", "all", "--events", "2000", *SIM, "--json", str(tmp_path / "nexmark.json"))
    report = json.loads((tmp_path / "nexmark.json").read_text())
    names = [each["query"] for each in report["queries"]]
    assert names[0] == "q3"
    assert sorted(names) == sorted(QUERIES)


def test_chaos_with_more_workers_gives_as_many_rows(tmp_path: Path) -> None:
    rows = []
    for options in ([], ["--chaos", "--workers", "2", "--seed", "4"], ["--chaos"]):
        run("q8", "q18", "--events", "10000", *SIM, *options, "--json", str(tmp_path / "nexmark.json"))
        rows.append([each["rows"] for each in json.loads((tmp_path / "nexmark.json").read_text())["queries"]])
    assert rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize("options", [(), ("--workers", "3"), ("--workers", "3", "--chaos")])
def test_a_strategy_schedules_and_results_stay_the_same(options: tuple[str, ...], tmp_path: Path) -> None:
    found = []
    for strategy in ("fifo", "chaos"):
        arguments = ("--strategy", strategy, "--slo", "200ms", "--json", str(tmp_path / "nexmark.json"))
        output = run("q8", "q18", "--events", "10000", *SIM, *options, *arguments)
        assert f"scheduled by {strategy}" in output
        found.append(json.loads((tmp_path / "nexmark.json").read_text())["queries"])
    fifo, chaos = found
    assert [each["rows"] for each in fifo] == [each["rows"] for each in chaos]
    assert [each["forwarded"] for each in fifo] == [0, 0]
    assert all(each["strategy"] == "chaos" for each in chaos)
    assert all((each["latency_objective_ms"], each["target"]) == (200, 0.99) for each in chaos)
    assert any(each["forwarded"] for each in chaos) is bool(options)  # one worker alone has nobody to forward to


def test_queries_on_a_cluster_tell_how_well_their_objective_was_met(tmp_path: Path) -> None:
    with home_of_clusters(tmp_path / "home"):
        options = ("--events", "20000", "--strategy", "edf", "--slo", "1h", "--json", str(tmp_path / "nexmark.json"))
        output = run("q1", "q7", *options)
        tight = run("q1", "--events", "20000", "--workers", "1", "--slo", "1ms")
    assert re.search(r"^q1 .* 1h00m +100 %$", output, flags=re.MULTILINE)
    assert "scheduled by edf" in output
    assert "late: " not in output
    for each in json.loads((tmp_path / "nexmark.json").read_text())["queries"]:
        assert each["strategy"] == "edf"
        assert each["latency_objective_ms"] == 3_600_000
        assert each["satisfaction"]["results"] == 1.0
    assert re.search(r"^q1 late: \d+ % [a-z]+.* results\)$", tight, flags=re.MULTILINE)
    assert max(map(len, tight.splitlines())) <= 80


def test_queries_are_listed() -> None:
    output = run("--list")
    for name in QUERIES:
        assert re.search(rf"\b{name}\b", output)


def test_events_are_generated(tmp_path: Path) -> None:
    output = run("generate", "--events", "5000", "--rate", "100", "--out", str(tmp_path))
    assert "5,000 events" in output
    bids = pq.read_table(tmp_path / "bid")
    assert bids.num_rows == 4_600
    times = bids["date_time"].cast("int64").to_pylist()
    assert times[-1] - times[0] == (4_999 - 4) * 10
    assert pq.read_table(tmp_path / "person").num_rows == 100
    assert pq.read_table(tmp_path / "auction").num_rows == 300


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("q77",), "there is no query 'q77'; did you mean 'q7'?"),
        (("q0", "Q12_events"), "there is no query 'Q12_events'; did you mean 'q12_event'?"),
        ((), "name one or more queries, for example q7, or 'all'"),
        (("q0", "--rate", "1000001"), "choose a rate from 1 to 1,000,000"),
        (("q0", "--host", "moon"), "there is no host 'moon'; use spark or sim."),
        (("q0", "--events", "0"), "0 events are too few; ask for at least 1."),
        (("q0", "--workers", "0"), "0 workers are too few; ask for at least 1."),
        (("q0", "--events", "100", "--out", "IN_THE_WAY"), "cannot be made a folder"),
        (("q0", "--events", "100", "--host", "sim", "--json", "IN_THE_WAY/figures.json"), "cannot write"),
        (("q0", "--chaos"), "chaos and its seed belong to the simulator: add --host sim"),
        (("q0", "--host", "sim", "--paced"), "leave out --master and --paced, or use --host spark"),
        (("q0", "--strategy", "best"), "there is no strategy 'best'; choose fifo, edf, reject_send"),
        (("q0", "--host", "sim", "--strategy", "no_such:Thing"), "the strategy 'no_such:Thing' cannot be imported"),
        (("q0", "--slo", "200"), "SLO latency: '200' is not a duration; say the unit"),
        (("generate",), "say where to write the events: add --out DIR"),
        (("generate", "q0", "--out", "IN_THE_WAY"), "'generate' stands alone"),
        (("generate", "--events", "0", "--out", "IN_THE_WAY"), "0 events are too few; ask for at least 1."),
        (("generate", "--rate", "0", "--out", "IN_THE_WAY"), "choose a rate from 1 to 1,000,000"),
        (("generate", "--out", "IN_THE_WAY"), "cannot write"),
    ],
)
def test_bad_input_gives_one_sentence(arguments: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    result = CliRunner().invoke(app, ["nexmark", *(each.replace("IN_THE_WAY", str(in_the_way)) for each in arguments)])
    assert result.exit_code == 2
    assert result.stderr.startswith("error:")
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr


def test_nothing_runs_before_all_queries_are_known(tmp_path: Path) -> None:
    run("q0", "q99", "--events", "100", "--out", str(tmp_path / "results"), code=2)
    assert not (tmp_path / "results").exists()


def test_help_shows_examples_and_every_option_is_documented() -> None:
    text = run("--help")
    assert "dirigo nexmark generate --events" in text
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    section = page.split("## `dirigo nexmark`")[1].split("\n## ")[0]
    options = set(re.findall(r"--[a-z]+", text)) - {"--help"}
    assert options >= {"--events", "--rate", "--host", "--out", "--json", "--workers", "--chaos", "--seed", "--list"}
    assert options >= {"--master", "--paced", "--check", "--strategy", "--slo"}
    assert not {option for option in options if f"`{option}" not in section}
