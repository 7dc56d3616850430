"""The dataflow of a file that a command is about."""

from __future__ import annotations

from pathlib import Path

from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.api.files import load_flows
from dirigo.runtime.errors import ControlError


def one_flow(file: Path, wanted: str) -> Dataflow:
    """The only dataflow of a Python file, or the one with the wanted name."""
    flows = load_flows(file)
    chosen = [flow for flow in flows if wanted in ("", flow.name)]
    names = ", ".join(flow.name for flow in flows)
    if not chosen:
        raise ControlError(f"there is no dataflow '{wanted}' in {file}; it has {names}.")
    if len(chosen) > 1:
        raise ControlError(f"there are {len(chosen)} dataflows in {file}; choose with --flow: {names}.")
    return chosen[0]
