"""Tables of workers and jobs, for a terminal of 80 columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from dirigo.cli.display.amounts import NOTHING, shown_bytes, shown_count, shown_latency, shown_seconds
from dirigo.cli.display.rates import Rates
from dirigo.cli.display.satisfaction import in_time_of, late_note, shown_objective
from dirigo.runtime.control import JobStatus, WorkerStatus

LIVE = ("starting", "running", "recovering", "draining")
_COLOURS = {
    "ready": "green",
    "running": "green",
    "joining": "yellow",
    "starting": "yellow",
    "recovering": "yellow",
    "draining": "yellow",
    "leaving": "yellow",
    "paused": "yellow",
    "lost": "red",
    "failed": "red",
    "cancelled": "dim",
    "finished": "dim",
}
_BAR_CELLS = 10
_JOB_WIDTH_LEAST = 8
_EXACT_BELOW = 10**7  # more digits have no room beside an objective
_STRATEGY_WIDTH_MOST = 18
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def running_first(jobs: Iterable[JobStatus]) -> list[JobStatus]:
    """Those that run, then those that are over; the newest first."""
    return sorted(jobs, key=lambda job: (job.state not in LIVE, -job.submitted_s))


def ran_s(job: JobStatus) -> float:
    return max(0.0, (job.ended_s or time.time()) - job.submitted_s)


# --- workers ---------------------------------------------------------------------------------------------------------------


def workers_now(workers: Sequence[WorkerStatus], rates: Rates) -> Table:
    """What each worker does right now."""
    table = plain_table()
    table.add_column("worker", justify="right")
    table.add_column("busy", no_wrap=True)
    for heading in ("memory", "queued", "msg/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("runs", ratio=1, no_wrap=True, overflow="ellipsis")
    for worker in workers:
        table.add_row(
            str(worker.id),
            busy_bar(worker.busy),
            shown_bytes(worker.rss_bytes),
            shown_bytes(worker.queued_bytes),
            shown_count(rates.messages(worker.id, worker.incarnation)),
            _what_runs(worker),
        )
    return table


def workers_table(workers: Sequence[WorkerStatus]) -> Table:
    """Who the workers are."""
    table = Table(box=box.ROUNDED)
    table.add_column("worker", justify="right")
    table.add_column("state", no_wrap=True)
    table.add_column("host", overflow="fold")
    for heading in ("process", "busy", "memory", "queued"):
        table.add_column(heading, justify="right", no_wrap=True)
    for worker in workers:
        busy, memory, queued = f"{worker.busy:.0%}", shown_bytes(worker.rss_bytes), shown_bytes(worker.queued_bytes)
        pid = str(worker.pid) if worker.pid else NOTHING
        table.add_row(str(worker.id), coloured(worker.state), worker.host or NOTHING, pid, busy, memory, queued)
    return table


def busy_bar(share: float) -> Text:
    """A bar of ten cells, and the share."""
    eighths = round(min(1.0, max(0.0, share)) * _BAR_CELLS * 8)
    full, part = divmod(eighths, 8)
    bar = "█" * full + (_EIGHTHS[part] if part else "")
    colour = "green" if share < 0.7 else "yellow" if share < 0.9 else "red"
    text = Text(bar.ljust(_BAR_CELLS), style=f"{colour} on grey19")
    return text.append(f" {share:4.0%}", style="default on default")


def _what_runs(worker: WorkerStatus) -> Text:
    if worker.state != "ready":
        return coloured(worker.state) + Text(f": {worker.problem}" if worker.problem else "")
    if worker.running is None:
        return Text(NOTHING, style="dim")
    job, _, actor = worker.running.partition("/")
    text = Text.assemble(actor, (f" of {job}", "dim"))
    if worker.running_s >= 1:
        text.append(f" for {shown_seconds(worker.running_s)}", style="yellow")
    return text


# --- jobs ------------------------------------------------------------------------------------------------------------------


def jobs_now(jobs: Sequence[JobStatus], rates: Rates, now_s: float) -> Table:
    """How jobs run right now; of those that are over, what they came to per second."""
    table = plain_table()
    served = _Served(jobs)
    table.add_column("job", ratio=1, no_wrap=True, overflow="ellipsis", min_width=_JOB_WIDTH_LEAST)
    table.add_column("state", no_wrap=True)
    for heading in ("in/s", "out/s", "lag", *served.headings(), "queued"):
        table.add_column(heading, justify="right", no_wrap=True)
    for job in jobs:
        is_live = job.state in LIVE
        rows_in, rows_out = rates.rows(job) if is_live else _average(job)
        table.add_row(
            job.id,
            state_of(job),
            shown_count(rows_in),
            shown_count(rows_out),
            _lag(job, now_s),
            *served.cells(job),
            shown_bytes(job.metrics.queued_bytes) if is_live else NOTHING,
            style=None if is_live else "dim",
        )
    return table


def jobs_table(jobs: Sequence[JobStatus], now_s: float) -> Table:
    """What jobs there are, and what they have done."""
    table = plain_table()
    served = _Served(jobs, with_forwarded=False)
    table.add_column("job", overflow="fold", ratio=1, min_width=_JOB_WIDTH_LEAST)
    table.add_column("state", no_wrap=True)
    for heading in ("age", *(() if served.has_objectives else ("ran",)), "in", "out", *served.headings()):
        table.add_column(heading, justify="right", no_wrap=True)
    has_strategies = len({job.strategy for job in jobs}) > 1  # one alone is told below the table
    if has_strategies:
        table.add_column("strategy", overflow="fold", max_width=_STRATEGY_WIDTH_MOST)
    for job in jobs:
        table.add_row(
            job.id,
            state_of(job),
            shown_seconds(max(0.0, now_s - job.submitted_s)),
            *(() if served.has_objectives else (shown_seconds(ran_s(job)),)),
            shown_count(job.metrics.rows_in),
            shown_count(job.metrics.rows_out),
            *served.cells(job),
            *((job.strategy or NOTHING,) if has_strategies else ()),
        )
    return table


def closing_table(jobs: Sequence[JobStatus]) -> Table:
    """What jobs that are over have done."""
    table = plain_table()
    served = _Served(jobs)
    table.add_column("job", overflow="fold", ratio=1, min_width=_JOB_WIDTH_LEAST)
    table.add_column("state", no_wrap=True)
    for heading in ("rows in", "rows out", "seconds", *(() if served.has_objectives else ("in/s",)), *served.headings()):
        table.add_column(heading, justify="right", no_wrap=True)
    for job in jobs:
        rows_in, rows_out = served.rows(job.metrics.rows_in), served.rows(job.metrics.rows_out)
        rate = () if served.has_objectives else (shown_count(_average(job)[0]),)
        table.add_row(job.name, state_of(job), rows_in, rows_out, f"{ran_s(job):.2f}", *rate, *served.cells(job))
    return table


def closing_tables(jobs: Sequence[JobStatus]) -> Group:
    """What jobs that are over have done, what scheduled them, and why results were late."""
    return Group(closing_table(jobs), *notes(jobs, lambda job: job.name))


class _Served:
    """The columns that tell how well jobs are served: latencies and, if there are any, objectives and forwarded messages."""

    def __init__(self, jobs: Sequence[JobStatus], *, with_forwarded: bool = True) -> None:
        self.has_objectives = any(job.latency_objective_ms is not None for job in jobs)
        self._has_forwarded = with_forwarded and any(job.metrics.forwarded for job in jobs)

    def headings(self) -> list[str]:
        latency = ["p99", "slo", "in time"] if self.has_objectives else ["p50", "p99"]
        return [*latency, "fwd"] if self._has_forwarded else latency

    def cells(self, job: JobStatus) -> list[str | Text]:
        metrics = job.metrics
        p50, p99 = (shown_latency(metrics.latency_ms.get(name)) for name in ("p50", "p99"))
        cells: list[str | Text] = [p50, p99]
        if self.has_objectives:
            cells = [p99, shown_objective(job.latency_objective_ms), in_time_of(job)]
        return [*cells, shown_count(metrics.forwarded)] if self._has_forwarded else cells

    def rows(self, number: int) -> str:
        return shown_count(number) if self.has_objectives and number >= _EXACT_BELOW else f"{number:,}"


def notes(
    jobs: Sequence[JobStatus], label: Callable[[JobStatus], str] = lambda job: job.id, *, with_each_strategy: bool = True
) -> list[Text]:
    """Lines for below a table: what schedules the jobs, and why results are late."""
    by_strategy: dict[str, list[str]] = {}
    for job in jobs:
        if job.strategy:
            by_strategy.setdefault(job.strategy, []).append(label(job))
    lines = []
    if len(by_strategy) == 1:
        lines.append(f"scheduled by {next(iter(by_strategy))}")
    elif by_strategy and with_each_strategy:
        lines.append("scheduled by " + "; ".join(f"{name}: {', '.join(its)}" for name, its in by_strategy.items()))
    lines += [f"{label(job)} {late}" for job in jobs if (late := late_note(job.metrics.satisfaction))]
    lines += [f"{label(job)} {told}" for job in jobs if (told := _recovery_note(job))]
    return [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines]


def _recovery_note(job: JobStatus) -> str:
    """How a job that runs has come back, and why it could not now."""
    if job.state not in LIVE:
        return ""
    facts = []
    if job.recoveries:
        facts.append(f"has come back {'once' if job.recoveries == 1 else f'{job.recoveries} times'}")
    if job.snapshot_problem:
        facts.append(job.snapshot_problem)
    return "; ".join(facts)


def state_of(job: JobStatus) -> Text:
    """The state; a running job whose sources wait for its queues is paused."""
    return coloured("paused" if job.state == "running" and job.metrics.sources_paused else job.state)


def coloured(state: str) -> Text:
    return Text(state, style=_COLOURS.get(state, ""))


def _average(job: JobStatus) -> tuple[float | None, float | None]:
    seconds = ran_s(job)
    return (job.metrics.rows_in / seconds, job.metrics.rows_out / seconds) if seconds else (None, None)


def _lag(job: JobStatus, now_s: float) -> str:
    """How far event time is behind the clock."""
    if job.state not in LIVE or job.metrics.watermark_ms is None or abs(job.metrics.watermark_ms) > 1 << 52:
        return NOTHING  # the watermark of no row yet, or of no row any more, is out of all proportion
    return shown_seconds(now_s - job.metrics.watermark_ms / 1000)


def plain_table(*, expand: bool = True) -> Table:
    return Table(box=box.SIMPLE_HEAD, expand=expand, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
