"""``dirigo top``: what the workers and jobs of a cluster do right now, live in the terminal."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from dirigo.cli.connection import ClusterName, connected
from dirigo.cli.display.amounts import shown_seconds
from dirigo.cli.display.output import JsonFile, console, write_json
from dirigo.cli.display.progress import status_figures
from dirigo.cli.display.rates import Rates
from dirigo.cli.display.status_tables import LIVE, jobs_now, notes, running_first, workers_now
from dirigo.runtime.control import ClusterStatus

REFRESH_S = 0.5
_ONCE_S = 1.0
_LINES_BESIDE = 10  # headings, the lines between tables, and those that tell of what is not shown
_OVER_SHOWN_MOST = 10
_JOBS_SHOWN_LEAST = 3
_NOTES_MOST = 4


def top(
    cluster: str = ClusterName,
    once: bool = typer.Option(False, "--once", help="Show it once, and end."),
    json_file: Path | None = JsonFile,
) -> None:
    """Show what the workers and jobs of a cluster do, live; end with q or Ctrl-C.

    busy: share of the last second. queued: what waits to be executed. lag: how far event time is behind the clock. p50,
    p99: from the arrival of a row to its result. A job is paused while its sources wait for its queues.

    Examples:

        dirigo top

        dirigo top --once --json build/top.json
    """
    rates = Rates()
    with connected(cluster, answer_s=5.0) as client:
        status = client.status()
        rates.note(status)
        if once or not console.is_terminal:
            time.sleep(_ONCE_S)  # rates need two looks
            status = client.status()
            rates.note(status)
            console.print(picture(status, rates, None))
        else:
            with (
                _keys() as pressed,
                Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
            ):
                while True:
                    live.update(picture(status, rates, console.height), refresh=True)
                    if pressed(REFRESH_S):
                        break
                    status = client.status()
                    rates.note(status)
    write_json(json_file, status_figures(status))


def picture(status: ClusterStatus, rates: Rates, height: int | None) -> RenderableType:
    """All of it, in as many lines as there are."""
    jobs = running_first(status.jobs)
    live = [job for job in jobs if job.state in LIVE]
    over = [job for job in jobs if job.state not in LIVE][:_OVER_SHOWN_MOST]
    ready = sum(worker.state == "ready" for worker in status.workers)
    head = Text.from_markup(
        f"[bold]{escape(status.name)}[/]  up {shown_seconds(status.uptime_s)}  "
        f"{ready} of {len(status.workers)} workers ready  jobs: {len(live)} running, {len(jobs) - len(live)} over"
    )
    workers = list(status.workers)
    shown = [*live, *over]
    noted = notes(live)
    if height is not None:
        noted = noted[:_NOTES_MOST]
        height -= _LINES_BESIDE + len(noted)
        shown = shown[: max(_JOBS_SHOWN_LEAST, height - len(workers))]
        workers = workers[: max(1, height - len(shown))]
    parts: list[RenderableType] = [head, Text(), workers_now(workers, rates)]
    if len(workers) < len(status.workers):
        parts.append(Text(f"... and {len(status.workers) - len(workers)} more workers", style="dim"))
    parts += [Text(), jobs_now(shown, rates, time.time()) if shown else Text("no jobs yet", style="dim")]
    if len(shown) < len(jobs):
        parts.append(Text(f"... and {len(jobs) - len(shown)} more jobs: see 'dirigo jobs'", style="dim"))
    if noted:
        parts += [Text(), *noted]
    return Group(*parts)


@contextmanager
def _keys() -> Iterator[_Pressed]:
    """The keyboard, one key at a time and without showing it; as it was when this is over."""
    if not sys.stdin.isatty():
        yield _Pressed(is_keyboard=False)
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield _Pressed(is_keyboard=True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class _Pressed:
    """Waits for the key that ends it."""

    def __init__(self, *, is_keyboard: bool) -> None:
        self._is_keyboard = is_keyboard

    def __call__(self, seconds: float) -> bool:
        """Whether q or Ctrl-C was pressed within this time."""
        until = time.monotonic() + seconds
        try:
            if not self._is_keyboard:
                time.sleep(seconds)
                return False
            while (left := until - time.monotonic()) > 0:
                if select.select([sys.stdin], [], [], left)[0]:
                    keys = os.read(sys.stdin.fileno(), 64)  # all that were pressed; a text stream would keep some back
                    if not keys or b"q" in keys.lower():
                        return True
        except KeyboardInterrupt:
            return True
        return False
