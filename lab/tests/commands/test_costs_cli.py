"""``dirigo costs``, as a user meets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import home_of_clusters, run
from dirigo_lab.commands import costs as command
from dirigo_lab.experiments.costs import measurement as calibrating_costs
from dirigo_lab.experiments.costs.costs import RuntimeCosts

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with home_of_clusters(tmp_path / "home") as place:
        yield place


def test_costs_are_measured_shown_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "ROWS", 600)
    monkeypatch.setattr(command, "BARRIERS", 4)
    monkeypatch.setattr(command, "SECONDS", 3.0)
    monkeypatch.setattr(calibrating_costs, "LESSEES", 6)
    out, _ = run("costs", "--out", tmp_path / "deep" / "costs.json")
    costs = RuntimeCosts.read(tmp_path / "deep" / "costs.json")
    assert "Python" in costs.machine
    shown = [name for name in RuntimeCosts.__struct_fields__ if name.endswith("_s") and name != "state_bytes_per_s"]
    assert len(shown) == 10
    for name in shown:
        assert 1e-6 <= getattr(costs, name) < 1.0
        assert name in out
    assert costs.state_bytes_per_s > 0
    assert 0.0 < costs.idle_share < 1.0
    assert costs.machine in out.replace("\n", " ")


def test_what_it_writes_is_documented() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## `dirigo costs`")[1].split("\n## ")[0]
    assert [name for name in RuntimeCosts.__struct_fields__ if f"`{name}`" not in section] == []
    assert "`--out" in section
