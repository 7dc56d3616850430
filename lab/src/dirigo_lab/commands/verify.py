"""``dirigo verify``: explores the protocol, hunts mutants and runs random worlds, and shows what it finds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dirigo.cli.display.output import JsonFile, console, fail, write_json
from dirigo_lab.verification import verify as work
from dirigo_lab.verification.explorer import Exploration
from dirigo_lab.verification.hunt import Catch, explore_mutant
from dirigo_lab.verification.mutants import MUTANTS, mutant_named
from dirigo_lab.verification.random.report import RandomReport
from dirigo_lab.verification.replay import replay_moves
from dirigo_lab.verification.worlds import DEEP_WORLDS, WORLDS, world_named

_STATES_MAX = 50_000_000
_RANDOM_RUNS = 2_000
_RANDOM_RUNS_DEEP = 100_000
_RECOVERIES = 200
_RECOVERIES_DEEP = 20_000


def verify(
    world: list[str] = typer.Option([], "--world", metavar="NAME", help="Explore only this world; can be repeated."),
    deep: bool = typer.Option(False, "--deep", help="The larger worlds too, 100,000 random runs, and 20,000 with crashes."),
    mutants: bool = typer.Option(False, "--mutants", help="Put mistakes into the protocol; each must be caught."),
    mutant: str = typer.Option("", "--mutant", metavar="NAME", help="Explore with this one mistake, and tell the story."),
    runs: int = typer.Option(
        -1, "--random", metavar="N", help="Only N random runs; with --world or --deep, after those.", show_default=False
    ),
    crashes: int = typer.Option(
        -1, "--crashes", metavar="N", help="Only N random runs with crashes; else as with --random.", show_default=False
    ),
    seed: int = typer.Option(0, "--seed", help="The first seed of the random runs."),
    replay: str = typer.Option("", "--replay", metavar="PATH", help="Tell one run of a world step by step."),
    listing: bool = typer.Option(False, "--list", help="List the worlds and the mutants."),
    processes: int = typer.Option(0, "--processes", metavar="N", help="Processes to use; 0 for one per core."),
    json_file: Path | None = JsonFile,
) -> None:
    """Explore every order of deliveries and executions of small worlds, to closure.

    Prints per world: distinct states, transitions, steps to the farthest state, and the verdict. A violation of an
    invariant ends with a non-zero exit, the shortest story that leads to it, and a command that replays it.

    Examples:

        dirigo verify

        dirigo verify --mutants

        dirigo verify --deep --json build/verify.json

        dirigo verify --world fork --mutant merge-twice
    """
    _check_names(world, mutant)
    if listing:
        _list()
    elif replay:
        _replay(world, mutant, replay)
    elif mutant:
        _explain_mutant(mutant, world)
    else:
        found = work.Verification()
        if mutants:
            ok = _hunt(found, processes)
        else:
            only_random = max(runs, crashes) > 0 and not (world or deep)
            ok = only_random or _explore(found, world, deep, processes)
            left_out = only_random or world
            count = runs if runs >= 0 else 0 if left_out else _RANDOM_RUNS_DEEP if deep else _RANDOM_RUNS
            ok = (count == 0 or _run_random(found, count, seed, processes)) and ok
            count = crashes if crashes >= 0 else 0 if left_out else _RECOVERIES_DEEP if deep else _RECOVERIES
            ok = (count == 0 or _run_random(found, count, seed, processes, with_crashes=True)) and ok
        write_json(json_file, found.to_json())
        if not ok:
            raise typer.Exit(1)


def _check_names(worlds: list[str], mutant: str) -> None:
    try:
        for name in worlds:
            world_named(name)
        if mutant:
            mutant_named(mutant)
    except KeyError as error:
        fail(str(error.args[0]))


# --- worlds --------------------------------------------------------------------------------------------------------------


def _explore(found: work.Verification, names: list[str], deep: bool, processes: int) -> bool:
    # The largest first: with two processes the last one to finish should be a small one.
    chosen = names or [world.name for world in ((*DEEP_WORLDS, *WORLDS) if deep else WORLDS)]
    began = time.monotonic()
    with _progress() as progress:
        task = progress.add_task("exploring", total=len(chosen))
        for news in work.explore_worlds(chosen, _STATES_MAX, processes or None):
            if isinstance(news, Exploration):
                found.worlds.append(news)
                progress.advance(task)
                progress.console.print(_world_line(news))
            else:
                progress.update(task, description=f"exploring, {sum(news.counts):,} states")
    console.print(_worlds_table(found.worlds))
    states = sum(exploration.states for exploration in found.worlds)
    console.print(f"{states:,} distinct states in {time.monotonic() - began:.0f} s")
    ok = _tell_violations(found.worlds)
    ok = all(exploration.verdict == "holds" for exploration in found.worlds) and ok
    if not names:
        for row in found.rows_missing:
            ok = False
            console.print(f"[red]no world uses this row of the mailbox's tables:[/] {escape(str(row))}")
        if not found.rows_missing:
            console.print("every row of the mailbox's tables was used")
    return ok


def _world_line(found: Exploration) -> str:
    colour = "green" if found.verdict == "holds" else "red"
    return f"  {found.world:<24} {found.states:>10,} states  [{colour}]{found.verdict}[/]"


def _worlds_table(worlds: list[Exploration]) -> Table:
    table = Table(title="Worlds")
    table.add_column("world", no_wrap=True)
    for heading in ("states", "transitions", "longest"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for found in sorted(worlds, key=lambda found: found.world):
        colour = "green" if found.verdict == "holds" else "red"
        table.add_row(
            found.world,
            f"{found.states:,}",
            f"{found.transitions:,}",
            str(found.longest),
            f"[{colour}]{found.verdict}[/]",
        )
    return table


def _tell_violations(worlds: list[Exploration], mutant: str = "") -> bool:
    ok = True
    for found in worlds:
        if found.violation is not None:
            ok = False
            console.print(f"\n[red]{found.world} violates {found.violation.invariant}[/]")
            console.print(escape(found.violation.what), soft_wrap=True)
            console.print("The shortest story that leads to it:")
            for number, line in enumerate(found.story, 1):
                console.print(f"  {number:>3}. {escape(line)}", soft_wrap=True)
            option = f" --mutant {mutant}" if mutant else ""
            command = f"dirigo verify --world {found.variant or found.world}{option} --replay {found.path}"
            console.print(f"Replay it with: {command}", soft_wrap=True)
    return ok


# --- mutants -------------------------------------------------------------------------------------------------------------


def _hunt(found: work.Verification, processes: int) -> bool:
    with _progress() as progress:
        task = progress.add_task("hunting mutants", total=len(MUTANTS))
        for news in work.hunt_mutants([mutant.name for mutant in MUTANTS], processes or None):
            if isinstance(news, Catch):
                found.mutants.append(news)
                progress.advance(task)
                verdict = f"[green]caught by {news.by}[/]" if news.caught else "[red]survived[/]"
                progress.console.print(f"  {news.name:<26} {verdict}")
    order = [mutant.name for mutant in MUTANTS]
    found.mutants.sort(key=lambda catch: order.index(catch.name))
    table = Table(title="Mistakes put into the protocol")
    for heading in ("mutant", "mistake", "caught by"):
        table.add_column(heading)
    table.add_column("steps", justify="right")
    for catch in found.mutants:
        by = f"[green]{catch.by}[/]" if catch.caught else f"[red]survived[/] {'; '.join(catch.accidents[:2])}"
        table.add_row(catch.name, catch.mistake, by, str(catch.steps or ""))
    console.print(table)
    caught = sum(catch.caught for catch in found.mutants)
    console.print(f"{caught} of {len(found.mutants)} mutants caught")
    return caught == len(found.mutants)


def _explain_mutant(name: str, worlds: list[str]) -> None:
    mutant = mutant_named(name)
    console.print(f"{name}: {mutant.mistake}")
    for world in worlds or mutant.worlds:
        found = explore_mutant(mutant, world)
        if not _tell_violations([found], name):
            raise typer.Exit(1)
        console.print(f"not caught in {world}: {found.states:,} states, {found.verdict}")


# --- random runs ---------------------------------------------------------------------------------------------------------


def _run_random(found: work.Verification, count: int, seed: int, processes: int, *, with_crashes: bool = False) -> bool:
    began = time.monotonic()
    report: RandomReport | None = None
    with _progress() as progress:
        task = progress.add_task("random runs" + " with crashes" * with_crashes, total=count)
        for news in work.run_random(count, seed, processes or None, with_crashes=with_crashes):
            if isinstance(news, RandomReport):
                report = news if report is None else report + news
            else:
                progress.update(task, completed=sum(news.counts))
        progress.update(task, completed=count)
    assert report is not None
    if with_crashes:
        found.recoveries = report
    else:
        found.random = report
    console.print(f"{report.summary()} ({time.monotonic() - began:.0f} s)", soft_wrap=True)
    for violation in report.violations[:5]:
        console.print(f"[red]{escape(str(violation))}[/]", soft_wrap=True)
    if report.violations:
        option = "--crashes" if with_crashes else "--random"
        console.print(f"Repeat the first with: dirigo verify {option} 1 --seed {report.violations[0].seed}")
    if report.is_hollow():
        console.print(f"[red]hollow: {report.hollow_means}[/]")
    return report.ok


# --- replay and listing --------------------------------------------------------------------------------------------------


def _replay(worlds: list[str], mutant: str, path: str) -> None:
    if len(worlds) != 1:
        fail("--replay needs exactly one --world")
    try:
        moves = [int(number) for number in path.split(".")]
    except ValueError:
        fail(f"a path is numbers with dots between them, but got {path!r}")
    lines: list[str] = []
    try:
        lines.extend(_replayed(worlds[0], mutant, moves))
    except IndexError as error:
        fail(str(error))
    for line in lines:
        console.print(escape(line), soft_wrap=True)


def _replayed(world: str, mutant: str, moves: list[int]) -> Iterator[str]:
    if not mutant:
        yield from replay_moves(world_named(world), moves)
        return
    with mutant_named(mutant).applied():
        yield from replay_moves(world_named(world), moves)


def _list() -> None:
    for title, worlds in (("Worlds", WORLDS), ("Deep worlds", DEEP_WORLDS)):
        table = Table(title=title)
        table.add_column("name")
        table.add_column("about")
        for world in worlds:
            table.add_row(world.name, world.about)
        console.print(table)
    table = Table(title="Mutants")
    table.add_column("name")
    table.add_column("mistake")
    for mutant in MUTANTS:
        table.add_row(mutant.name, mutant.mistake)
    console.print(table)


def _progress() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
