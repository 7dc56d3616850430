"""How commands speak: one console, errors of one line, JSON for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console

console = Console(highlight=False)
_errors = Console(stderr=True, highlight=False)

JsonFile = typer.Option(None, "--json", metavar="FILE", help="Also write the figures to FILE.", dir_okay=False)


def fail(sentence: str) -> NoReturn:
    """End the command with one clear line."""
    _errors.print(f"[red]error:[/] {sentence}", soft_wrap=True)
    raise typer.Exit(2)


def write_json(path: Path | None, report: dict[str, Any]) -> None:
    """Write the figures, if a file was asked for."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=2) + "\n")
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
    console.print(f"figures written to {path}")
