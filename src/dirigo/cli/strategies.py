"""The option by which a command is told what schedules jobs."""

from __future__ import annotations

from typing import Any

import typer

from dirigo.flow.api.strategy import strategy_of
from dirigo.scheduling import DEFAULT


def _option(default: str) -> Any:
    told = f"What schedules, if not {default}: fifo, edf, reject_send, ..., or module:Class of your own."
    return typer.Option(None, "--strategy", metavar="NAME", help=told, show_default=False)


StrategyName = _option(DEFAULT)
StrategyOfJob = _option("the cluster's")
StrategyOnHost = _option(f"{DEFAULT}, or fifo with --host sim")


def given(strategy: str | None) -> dict[str, Any]:
    """The argument for a cluster or a job, if there is one; refuses what is no strategy before anything is started."""
    return {} if strategy is None else {"strategy": strategy_of(strategy)}
