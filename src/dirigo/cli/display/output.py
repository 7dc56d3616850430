"""How commands speak: one console, errors of one line, JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

import typer
from rich.console import Console

console = Console(highlight=False)
_errors = Console(stderr=True, highlight=False)

JsonFile = typer.Option(None, "--json", metavar="FILE", help="Also write the figures to FILE.", dir_okay=False)


def fail(sentence: str) -> NoReturn:
    """End the command with one clear line."""
    _errors.print(f"[red]error:[/] {sentence}", soft_wrap=True)
    raise typer.Exit(2)


@contextmanager
def whole_output() -> Iterator[None]:
    """A command whose words cannot be written, as on a full disk, ends with one clear line and is no success."""
    try:
        yield
    except OSError:
        problem = _output_problem("\n")  # it need not be of the output: that shows when more is written
        if problem is None:
            raise
    except SystemExit as leaving:
        problem = _output_problem()
        if problem is None or leaving.code:  # it has told what went wrong
            raise
    else:
        problem = _output_problem()
    if problem is not None:
        _errors.print(f"[red]error:[/] the standard output cannot be written ({problem}).", soft_wrap=True)
        sys.exit(1)


def _output_problem(more: str = "") -> str | None:
    """Why what was said cannot be written. It is dropped, or Python would complain of it again at the end."""
    output: TextIO | None = sys.stdout
    if output is None:  # then nothing is said
        return None
    try:
        output.write(more)
        output.flush()
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output.fileno())
        os.close(nowhere)
        return (error.strerror or str(error)).lower()
    return None


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
