"""``dirigo bench``: what the kernel costs per message and per barrier, and how fast the simulator is."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from dirigo.bench import render, run_all
from dirigo.cli.output import JsonFile, console, write_json


def bench(json_file: Path | None = JsonFile) -> None:
    """Measure the kernel's cost per message and per barrier, and the simulator's speed.

    Exits non-zero when a budget is exceeded. Timings depend on the machine and on what else it does.

    Example: dirigo bench --json build/bench.json
    """
    with console.status("measuring ...") as status:
        report = run_all(lambda what: status.update(f"measuring {what} ..."))
    console.print(render(report))
    write_json(json_file, json.loads(report.to_json()))
    if not report.within_budget():
        console.print("[red]over budget[/]")
        raise typer.Exit(1)
    console.print("[green]within budget[/]")
