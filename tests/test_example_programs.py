"""Runs the programs of ``examples``: each does what its docstring says, in a process of its own and in an empty folder.

The indented lines of a docstring are what the program prints; ``...`` stands for anything.
"""

from __future__ import annotations

import ast
import doctest
import os
import re
import runpy
import subprocess
import sys
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from dirigo.flow.api.files import load_flows
from dirigo.testing import Simulation, assert_parallel_equals_sequential, run

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
NAMES = sorted(file.stem for file in FOLDER.glob("*.py"))
ON_SPARK = ["dataframes", "two_tenants"]
WITHOUT_SPARK = [name for name in NAMES if name not in ON_SPARK]
LONG = ["two_tenants"]  # one start of Spark is enough for every day
PATIENCE_S = 600
MINUTE = timedelta(minutes=1)


def python(folder: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """What Python says when it is called in this folder."""
    finished = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "DIRIGO_HOME": str(folder / ".dirigo"), "COLUMNS": "120", "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished


def shown_by(name: str) -> str:
    """What the docstring of a program says that it prints."""
    told = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text()))
    assert told is not None, f"{name} has no docstring"
    return "".join(f"{line.removeprefix('    ')}\n" for line in told.splitlines() if line.startswith("    "))


def parts_of(name: str) -> dict[str, Any]:
    """The names that a program defines, as if it were imported."""
    return runpy.run_path(str(FOLDER / f"{name}.py"))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.acceptance] * (name in LONG)) for name in NAMES])
def test_a_program_prints_what_its_docstring_shows(name: str, tmp_path: Path) -> None:
    shown = shown_by(name)
    assert shown, "the docstring does not show what the program prints"
    if name == "two_tenants":  # how quick it is depends on the machine
        shown = re.sub(r"\d+% within", "...% within", shown)
    finished = python(tmp_path, FOLDER / f"{name}.py")
    assert doctest.OutputChecker().check_output(shown, finished.stdout, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), (
        f"it prints something else:\n{finished.stdout}"
    )
    if name not in ON_SPARK:
        assert finished.stderr == ""
    assert [file.name for file in tmp_path.iterdir() if file.name != ".dirigo"] == [], "it leaves files behind"


@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_a_program_has_a_flow_for_the_commands(name: str) -> None:
    assert load_flows(FOLDER / f"{name}.py")


@pytest.mark.acceptance
@pytest.mark.parametrize("name", NAMES)
def test_dirigo_run_runs_a_program(name: str, tmp_path: Path) -> None:
    finished = python(tmp_path, "-c", "from dirigo.cli import main; main()", "run", FOLDER / f"{name}.py", "--workers", 2)
    for flow in load_flows(FOLDER / f"{name}.py") if name in WITHOUT_SPARK else []:
        assert re.search(rf"{flow.name}.*finished", finished.stdout), finished.stdout


def test_the_tests_among_the_examples_pass(tmp_path: Path) -> None:
    printed = python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", FOLDER / "test_taxi_rides.py").stdout
    assert "2 passed" in printed


def test_the_examples_have_strict_types_for_whoever_has_no_settings_for_mypy(tmp_path: Path) -> None:
    # Silent about Dirigo itself, as mypy is about what is installed.
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--cache-dir", tmp_path]
    printed = python(tmp_path, "-m", "mypy", *options, *FOLDER.glob("*.py"), MYPYPATH=str(ROOT / "src")).stdout
    assert "no issues found" in printed


def test_the_page_of_the_examples_has_them_all() -> None:
    rows = re.findall(r"^\| \[`(\w+)\.py`\].*\|(.*)\|$", (FOLDER / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(name for name, _ in rows) == NAMES
    assert sorted(name for name, spark in rows if "needed" in spark) == ON_SPARK


# --- results, compared with plain Python ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shop_sessions", "clicks_and_orders", "iot_rollup", "pump_watchdog"])
def test_results_are_the_same_however_a_flow_is_spread(name: str) -> None:
    (flow,) = load_flows(FOLDER / f"{name}.py")
    assert_parallel_equals_sequential(flow, seeds=3)


def test_sessions_are_those_of_plain_python() -> None:
    example = parts_of("shop_sessions")
    visits: dict[str, list[list[tuple[datetime, str, int]]]] = defaultdict(list)
    for _, visitor, clock, page, euros in sorted(set(example["CLICKS"]), key=lambda click: click[2]):
        at, mine = example["moment"](clock), visits[visitor]
        if not mine or at - mine[-1][-1][0] > 30 * MINUTE:
            mine.append([])
        mine[-1].append((at, page, euros))
    expected = {
        (visitor, f"{visit[0][0]:%H:%M}", f"{visit[-1][0]:%H:%M}", len(visit), sum(each[2] for each in visit), visit[-1][1])
        for visitor, mine in visits.items()
        for visit in mine
    }
    assert len(expected) == 3
    assert {tuple(row.values()) for row in run(example["build"]()).rows()} == expected


def test_campaigns_sell_what_plain_python_finds() -> None:
    example = parts_of("clicks_and_orders")
    clicks, sold = list(example["clicks"]()), defaultdict(list)
    for order in example["orders"]():
        before = [
            click
            for click in clicks
            if click["customer"] == order["customer"] and 0 <= order["ordered"] - click["clicked"] <= 30 * 60_000
        ]
        if before:
            sold[max(before, key=lambda click: click["clicked"])["campaign"]].append(order["euros"])
    assert any(len(orders) > 5 for orders in sold.values())
    found = {row["campaign"]: (row["orders"], row["euros"]) for row in dg.run(example["build"]()).rows()}
    assert found == {campaign: (len(orders), sum(orders)) for campaign, orders in sold.items()}


def test_rooms_are_as_warm_as_plain_python_finds(tmp_path: Path) -> None:
    example = parts_of("iot_rollup")
    by_quarter, by_half = defaultdict(list), defaultdict(list)
    for reading in example["readings"](0, example["READINGS"]):
        room, celsius, at = example["SENSORS"][reading["sensor"]]["room"], reading["celsius"], reading["at"]
        by_quarter[room, at - (at - example["BEGIN"]) % (15 * MINUTE)].append(celsius)
        first_end = at - (at - example["BEGIN"]) % (10 * MINUTE) + 10 * MINUTE
        for number in range(3):
            by_half[room, first_end + number * 10 * MINUTE].append(celsius)
    averages = {key: sum(of_half) / len(of_half) for key, of_half in by_half.items()}
    warm = {(room, f"{end:%H:%M}"): pytest.approx(average) for (room, end), average in averages.items() if average > 24}

    found = dg.run(example["rollup"](str(tmp_path / "out"))).rows("warm")
    assert {(row["room"], row["until"]): row["celsius"] for row in found} == warm
    assert len(found) == len(warm) > 0
    flow = dg.Dataflow("read")
    flow.source(dg.from_parquet(tmp_path / "out")).sink(dg.to_memory())
    quarters = {(row["room"], row["window_start"]): (row["low"], row["high"]) for row in dg.run(flow).rows()}
    assert quarters == {key: (min(of_quarter), max(of_quarter)) for key, of_quarter in by_quarter.items()}


def test_a_silent_pump_is_reported_as_soon_as_its_minute_is_over() -> None:
    simulation = Simulation(parts_of("pump_watchdog")["build"](), open_sources=["signs"])
    simulation.push("signs", [(1, 10_000, False), (2, 20_000, False), (3, 30_000, False)])
    simulation.push("signs", [(2, 60_000, False), (3, 60_000, True)])
    simulation.push("signs", [(4, 69_000, False)])
    simulation.advance("2m")
    assert simulation.rows() == []
    simulation.push("signs", [(4, 119_000, False)])
    simulation.advance("2m")
    assert simulation.rows() == [{"at_ms": 70_000, "pump": 1, "news": "silent"}]
    simulation.push("signs", [(4, 121_000, False)])
    simulation.advance("2m")
    assert simulation.rows()[1:] == [{"at_ms": 120_000, "pump": 2, "news": "silent"}]
