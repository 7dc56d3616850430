"""``dirigo bench``: what messages, flows and the service cost, beside what they are to be compared with."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer

from dirigo.cli.display.output import JsonFile, console, fail, write_json
from dirigo_lab.bench import QUICK, Sizes, render, run_all

_PARTS = ("core", "service", "recovery")
_Parts = typer.Argument(
    None, metavar="PART", help="core, service, recovery; or nothing for the first two.", show_default=False
)


def bench(
    parts: list[str] = _Parts,
    quick: bool = typer.Option(False, "--quick", help="Measure less: rough figures in a third of the time."),
    kills: int | None = typer.Option(None, "--kills", min=1, help="Of `recovery`: kill so often with each state."),
    peers: bool = typer.Option(
        False, "--peers", help="Of `recovery`: kill Spark Structured Streaming's executors and queries as well."
    ),
    flink: Path | None = typer.Option(
        None, "--flink", metavar="FOLDER", help="With --peers: Flink too, from an environment with `apache-flink` in FOLDER."
    ),
    json_file: Path | None = JsonFile,
) -> None:
    """Measure the kernel, the simulator, the generator and flows on one core; then the service on Spark.

    The service is measured beside Spark Structured Streaming, from the same files on the same cores, and beside bare
    sockets. `recovery` measures what snapshots cost, and kills workers to see how soon jobs are back, with --peers beside
    Structured Streaming and Flink. It runs only when it is asked for, and without Spark if there are no peers. Exits
    non-zero when a budget is exceeded. Timings depend on the machine and on what else it does.

    Examples:

        dirigo bench --json build/bench.json

        dirigo bench service --quick

        dirigo bench recovery --quick

        dirigo bench recovery --kills 20 --peers --flink build/flink
    """
    for part in parts or []:
        if part not in _PARTS:
            fail(f"there is no part '{part}'; use {', '.join(_PARTS[:-1])} or {_PARTS[-1]}")
    if (peers or kills or flink) and "recovery" not in (parts or []):
        fail("--kills, --peers and --flink are of `dirigo bench recovery`")
    if flink and not peers:
        fail("--flink is one of the peers: add --peers")
    figures: dict[str, Any] = {}
    over: list[str] = []
    if not parts or "core" in parts:
        figures |= _core(quick, over)
    if not parts or "service" in parts:
        figures["service"] = _service(quick, over)
    if parts and "recovery" in parts:
        figures["recovery"] = _recovery(quick, kills, peers, flink, over)
    write_json(json_file, figures)
    if over:
        console.print(f"[red]over budget:[/] {'; '.join(over)}")
        raise typer.Exit(1)
    console.print("[green]within budget[/]")


def _core(quick: bool, over: list[str]) -> dict[str, Any]:
    with console.status("measuring ...") as status:
        report = run_all(lambda what: status.update(f"measuring {what} ..."), QUICK if quick else Sizes())
    console.print(render(report))
    over += report.over_budget()
    figures: dict[str, Any] = json.loads(report.to_json())
    return figures


def _service(quick: bool, over: list[str]) -> dict[str, Any]:
    from dirigo_lab.bench.service.service import QUICK_SERVICE, ServiceSizes, measure_service
    from dirigo_lab.bench.service.tables import render_service

    with console.status("measuring ...") as status:
        sizes = QUICK_SERVICE if quick else ServiceSizes()
        report = measure_service(lambda what: status.update(f"measuring {what} ..."), sizes)
    console.print(render_service(report))
    over += report.over_budget()
    return asdict(report)


def _recovery(quick: bool, kills: int | None, peers: bool, flink: Path | None, over: list[str]) -> dict[str, Any]:
    from dirigo_lab.bench.recovery.peers.flink import find_flink
    from dirigo_lab.bench.recovery.report import QUICK_RECOVERY, RecoverySizes, measure_recovery
    from dirigo_lab.bench.recovery.tables import render_recovery

    sizes = replace(QUICK_RECOVERY if quick else RecoverySizes(), has_peers=peers, flink=flink)
    if flink:
        try:
            find_flink(flink)
        except ValueError as error:
            fail(str(error))
    report = measure_recovery(console.print, sizes.with_kills(kills) if kills else sizes)
    console.print(render_recovery(report))
    over += report.over_budget()
    return asdict(report)
