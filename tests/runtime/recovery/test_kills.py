"""Workers are killed, and stand still, at random moments: every sink has each row once, as without any of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.recovery.kills import disturb


@pytest.mark.parametrize("seed", [6, 7, 106])
def test_rows_are_there_once_after_kills(tmp_path: Path, seed: int) -> None:
    assert disturb(tmp_path, seed, rows=1_500)


@pytest.mark.acceptance
@pytest.mark.parametrize("seed", range(1_000, 1_050))
def test_rows_are_there_once_after_many_kills(tmp_path: Path, seed: int) -> None:
    assert disturb(tmp_path, seed, most=3)
