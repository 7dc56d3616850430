"""``dirigo bench``: what messages, barriers, the simulator, the generator and whole flows cost."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from dirigo.bench import QUICK, Sizes, render, run_all
from dirigo.cli.output import JsonFile, console, write_json


def bench(
    quick: bool = typer.Option(False, "--quick", help="Measure less: rough figures in a third of the time."),
    json_file: Path | None = JsonFile,
) -> None:
    """Measure messages and barriers in the kernel, the simulator, Nexmark's generator, and flows on one core.

    Exits non-zero when a budget is exceeded. Timings depend on the machine and on what else it does.

    Example: dirigo bench --json build/bench.json
    """
    with console.status("measuring ...") as status:
        report = run_all(lambda what: status.update(f"measuring {what} ..."), QUICK if quick else Sizes())
    console.print(render(report))
    write_json(json_file, json.loads(report.to_json()))
    over = report.over_budget()
    if over:
        console.print(f"[red]over budget:[/] {'; '.join(over)}")
        raise typer.Exit(1)
    console.print("[green]within budget[/]")
