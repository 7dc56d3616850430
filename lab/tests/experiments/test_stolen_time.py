"""What other guests of a machine took of its cores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dirigo_lab.experiments.costs.stolen_time import stolen_s


def test_it_is_told_in_seconds(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"
    stat.write_text(f"cpu  9 9 9 9 9 9 9 {3 * ticks} 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    assert stolen_s(stat) == 3.0


@pytest.mark.parametrize("text", ["", "cpu 1 2 3", "cpu a b c d e f g h i j"])
def test_a_system_that_does_not_tell_takes_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "stat").write_text(text)
    assert stolen_s(tmp_path / "stat") == 0.0
    assert stolen_s(tmp_path / "missing") == 0.0
