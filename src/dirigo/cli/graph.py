"""``dirigo graph``: draws the dataflows of a Python file."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path

import typer
from rich.markup import escape

from dirigo.cli.display.output import fail
from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.api.files import load_flows
from dirigo.flow.errors import FlowError
from dirigo.flow.plan.drawing import as_mermaid, as_text

_File = typer.Argument(metavar="FILE.py", help="A Python file that assigns a Dataflow to a name at its top level.")


class Format(StrEnum):
    """How to draw."""

    MERMAID = "mermaid"
    TEXT = "text"
    BOTH = "both"


def graph(
    file: Path = _File,
    form: Format = typer.Option(Format.BOTH, "--format", help="Mermaid for documents, text for a terminal, or both."),
    wanted: str = typer.Option("", "--flow", metavar="NAME", help="Only the dataflow with this name."),
) -> None:
    """Draw the dataflows of a Python file as they would run: stages, partitions, and how rows get from one to the next.

    The file is executed, as in an import, so keep run(...) under `if __name__ == "__main__":`. Drawing itself
    opens no source and writes nothing.

    Examples:

        dirigo graph shop.py

        dirigo graph shop.py --flow orders --format mermaid > orders.mmd
    """
    try:
        with redirect_stdout(sys.stderr):  # what the file prints is no part of a drawing
            flows = load_flows(file)
        chosen = _chosen(flows, wanted, file)
        if form is Format.MERMAID and len(chosen) > 1:
            fail(escape(f"a Mermaid file holds one drawing; choose with --flow: {_names(chosen)}."))
        drawings = [_drawn(flow, form) for flow in chosen]
    except FlowError as error:
        fail(escape(str(error)))
    typer.echo("\n".join(drawings), nl=False)


def _chosen(flows: list[Dataflow], wanted: str, file: Path) -> list[Dataflow]:
    chosen = [flow for flow in flows if wanted in ("", flow.name)]
    if not chosen:
        raise FlowError(f"there is no dataflow '{wanted}' in {file}; it has {_names(flows)}.")
    return chosen


def _names(flows: list[Dataflow]) -> str:
    return ", ".join(flow.name for flow in flows)


def _drawn(flow: Dataflow, form: Format) -> str:
    if form is Format.MERMAID:
        return as_mermaid(flow)
    if form is Format.TEXT:
        return as_text(flow)
    return f"{as_text(flow)}\n```mermaid\n{as_mermaid(flow)}```\n"
