"""What the tables of workers and jobs show, and how amounts are written."""

from __future__ import annotations

import io
import time
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType

from dirigo import SLO
from dirigo.cli.display.amounts import bytes_of, shown_bytes, shown_count, shown_latency, shown_seconds
from dirigo.cli.display.job_details import job_details
from dirigo.cli.display.rates import Rates
from dirigo.cli.display.satisfaction import in_time, late_note, shown_objective, shown_share, why_late
from dirigo.cli.display.status_tables import (
    busy_bar,
    closing_table,
    closing_tables,
    jobs_now,
    jobs_table,
    notes,
    running_first,
)
from dirigo.cli.top import picture
from dirigo.runtime.control import ClusterStatus, JobMetrics, JobStatus, WorkerStatus
from dirigo.runtime.errors import ControlError
from dirigo.scheduling.accounting import Satisfaction
from dirigo_lab.commands.nexmark_tables import results_table
from dirigo_lab.nexmark.run import RunReport

NOW_S = 1_700_000_100.0


def rendered(thing: RenderableType, width: int = 80) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width).print(thing)
    return stream.getvalue().splitlines()


def job(name: str, state: str = "running", began_s: float = NOW_S - 60, **metrics: Any) -> JobStatus:
    figures = JobMetrics(**{"latency_ms": {"p50": 12.3, "p95": 80.0, "p99": 1234.5, "max": 2000.0}, **metrics})
    over = None if state in ("running", "starting", "draining") else began_s + 30
    return JobStatus(name, name.partition("~")[0], state, began_s, over, metrics=figures)


LATE = {"source": 0.02, "hop": 0.04, "barrier": 0.3, "queue": 0.61, "executing": 0.03}


def promised(
    name: str, share: float | None, state: str = "running", strategy: str = "reject_send", **metrics: Any
) -> JobStatus:
    """A job with an objective of 200 ms, and this share of results within it."""
    late = share is not None and share < 1
    satisfaction = Satisfaction(share, 0.98, 1234, 56, LATE, LATE) if late else Satisfaction(share, share)
    status = job(name, state, time.time() - 10, satisfaction=satisfaction, **metrics)
    return msgspec.structs.replace(status, strategy=strategy, latency_objective_ms=200, target=0.99)


def cluster(jobs: list[JobStatus], workers: int = 2) -> ClusterStatus:
    there = [
        WorkerStatus(
            number,
            "ready",
            1,
            "a-host-with-a-long-name.example",
            1000 + number,
            busy=0.95,
            messages=10**9,
            queued_bytes=123_456_789,
            rss_bytes=1_234_567_890,
            running="a-job-with-a-long-name~12/an-operator-with-a-long-name/3",
            running_s=75.0,
        )
        for number in range(workers - 1)
    ]
    lost = WorkerStatus(workers - 1, "lost", problem="gave no sign of life for too long")
    return ClusterStatus("dirigo", 7200.0, (*there, lost), tuple(jobs))


def test_everything_fits_into_80_columns() -> None:
    large: dict[str, Any] = {
        "rows_in": 10**10,
        "rows_out": 10**9,
        "queued_bytes": 64 << 20,
        "watermark_ms": int(NOW_S * 1000) - 5_000,
    }
    began_s = time.time() - 10
    jobs = [job("a-job-with-a-long-name~12", "running", began_s, **large), job("b~2", "cancelled", began_s, **large)]
    status = cluster(jobs)
    for table in (picture(status, Rates(), None), jobs_table(jobs, NOW_S), closing_table(jobs)):
        lines = rendered(table)
        assert max(map(len, lines)) <= 80
        shown = "\n".join(lines)
        assert "1.2s" in shown  # the last column but one is not cut off
    shown = "\n".join(rendered(picture(status, Rates(), None)))
    assert "an-operator-with-a-long-na" in shown
    assert "lost: gave no sign of life" in shown


def test_objectives_fit_into_80_columns_too() -> None:
    large: dict[str, Any] = {"rows_in": 10**10, "rows_out": 10**9, "queued_bytes": 64 << 20, "forwarded": 123_456}
    jobs = [
        promised("a-job-with-a-long-name~12", 0.98765, **large),
        promised("b~2", 1.0, "cancelled", "direct_send_random", **large),
        job("plain~3", "running", time.time() - 10, **large),
    ]
    status = cluster(jobs)
    for table in (picture(status, Rates(), None), jobs_table(jobs, time.time()), closing_tables(jobs)):
        lines = rendered(table)
        assert max(map(len, lines)) <= 80
        shown = "\n".join(lines)
        assert all(part in shown for part in (" 1.2s ", " 200ms ", " 98.7 %", " 100 %"))
    report = RunReport(
        "q12_event", 10**7, 10**7, 123.4, {"p99": 1234.5}, "edf", SLO(latency="200ms"), Satisfaction(0.9), 9999
    )
    lines = rendered(results_table([report], {"q12_event": True}, "spark"))
    assert max(map(len, lines)) <= 80
    assert any(line.split()[-4:] == ["%", "10.0k", "all", "rows"] for line in lines)


def test_columns_of_objectives_are_there_for_jobs_that_have_them() -> None:
    plain, with_one = job("a~1"), promised("b~2", 0.5, forwarded=7)
    assert rendered(jobs_now([plain], Rates(), NOW_S))[0].split()[-3:] == ["p50", "p99", "queued"]
    heading, _, first, second = rendered(jobs_now([plain, with_one], Rates(), NOW_S))
    assert heading.split()[-6:] == ["p99", "slo", "in", "time", "fwd", "queued"]
    assert first.split()[-5:-2] == ["-", "-", "0"]
    assert second.split()[-6:-2] == ["200ms", "50.0", "%", "7"]


def test_what_schedules_and_why_results_are_late_stands_below() -> None:
    one, other = promised("a~1", 1.0), promised("b~2", 0.9, strategy="edf")
    assert [note.plain for note in notes([one])] == ["scheduled by reject_send"]
    assert [note.plain for note in notes([one, other])] == [
        "scheduled by reject_send: a~1; edf: b~2",
        "b~2 late: 61 % queue, 30 % barrier (1.2k results)",
    ]
    assert "strategy" not in rendered(jobs_table([one], NOW_S))[0]
    assert "strategy" in rendered(jobs_table([one, other], NOW_S))[0]
    lines = rendered(picture(cluster([promised(f"job~{number}", 0.9) for number in range(30)], 40), Rates(), 24))
    assert len(lines) <= 24
    assert sum("61 % queue" in line for line in lines) == 3


def test_shares_are_never_rounded_up_and_coloured_by_the_target() -> None:
    shown = [shown_share(share) for share in (1.0, 0.99999, 0.98999, 0.99, 0.5, 0.00049, 0.0)]
    assert shown == ["100 %", "99.9 %", "98.9 %", "99.0 %", "50.0 %", "0.0 %", "0.0 %"]
    assert [in_time(share, 0.99).style for share in (0.99, 0.98999)] == ["green", "red"]
    assert in_time(None, 0.99).plain == in_time(0.5, None).plain == "-"
    assert [shown_objective(ms) for ms in (None, 1, 200, 1_500)] == ["-", "1ms", "200ms", "1.5s"]


def test_only_causes_that_explain_something_are_told() -> None:
    assert why_late(LATE) == "61 % queue, 30 % barrier"
    assert why_late({"queue": 0.25, "hop": 0.25, "barrier": 0.25, "source": 0.25}).count("%") == 3
    assert why_late({}) == ""
    assert late_note(Satisfaction(1.0, 0.5, 0, 8, {}, LATE)) == ""


def test_one_job_with_all_that_is_known_of_it() -> None:
    live = promised("b~2", 0.9, rows_in=12_345, rows_out=6_000, messages=700, forwarded=70, barriers=9, gathered=2)
    live = msgspec.structs.replace(live, labels={"team": "[red]ads", "tier": "1"})
    head, *lines = rendered(job_details(live, time.time()))
    assert head.rstrip() == "b~2  running for 10.0s, scheduled by reject_send"
    facts = {line[2:16].strip(): line[16:].strip() for line in lines}
    assert facts["rows"] == "12,345 in, 6,000 out"
    assert facts["latency"] == "p50 12ms, p95 80ms, p99 1.2s, max 2.0s"
    assert facts["objective"] == "200ms for 99 % of the results: 90.0 % were in time"
    assert facts["late results"] == "1,234: 61 % queue, 30 % barrier"
    assert facts["messages"] == "700, 70 of them forwarded to other workers"
    assert facts["barriers"] == "9, 2 of them with partial states to put together"
    assert facts["labels"] == "team=[red]ads, tier=1"
    failed = msgspec.structs.replace(
        job("c~3", "failed", time.time() - 60), error="[red]too[/] bad", ended_s=time.time() - 5
    )
    head, *lines = rendered(job_details(failed, time.time()))
    assert head.startswith("c~3  failed 5.0s ago, after 55.0s")
    assert any(line.split("error")[-1].strip() == "[red]too[/] bad" for line in lines)


def test_a_picture_fits_into_the_lines_that_there_are() -> None:
    status = cluster([job(f"job~{number}") for number in range(30)], workers=40)
    lines = rendered(picture(status, Rates(), 24))
    assert len(lines) <= 24
    assert any("more workers" in line for line in lines)
    assert any("more jobs" in line for line in lines)


def test_running_jobs_come_first_and_the_newest_of_them() -> None:
    jobs = [job("a", "failed", 50), job("b", "running", 10), job("c", "draining", 20), job("d", "finished", 60)]
    assert [each.id for each in running_first(jobs)] == ["c", "b", "d", "a"]


def test_rates_are_told_from_two_looks() -> None:
    clock = iter((0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0))
    rates = Rates(lambda: next(clock))
    rates.note(cluster([job("a", rows_in=100, rows_out=7)]))
    assert rates.rows(job("a")) == (None, None)
    rates.note(cluster([job("a", rows_in=1100, rows_out=7)]))
    assert rates.rows(job("a")) == (500.0, 0.0)
    assert rates.rows(job("b")) == (None, None)
    assert rates.messages(0, 1) == 0.0
    assert rates.messages(0, 2) is None  # another process in its place has counts of its own
    for _ in range(5):  # only the last seconds count
        rates.note(cluster([job("a", rows_in=1100, rows_out=7)]))
    assert rates.rows(job("a")) == (0.0, 0.0)


def test_a_job_whose_sources_wait_is_paused_and_its_lag_is_told() -> None:
    paused = job("a", sources_paused=True, watermark_ms=int(NOW_S * 1000) - 90_000)
    line = rendered(jobs_now([paused], Rates(), NOW_S))[-1]
    assert "paused" in line
    assert "1m30s" in line
    assert "12ms" in line
    early = job("a", watermark_ms=-(1 << 62))  # before the first row
    assert rendered(jobs_now([early], Rates(), NOW_S))[-1].split()[4] == "-"


@pytest.mark.parametrize(("share", "bar"), [(0.0, "             0%"), (0.5, "█████       50%"), (1.0, "██████████ 100%")])
def test_busy_bars(share: float, bar: str) -> None:
    assert busy_bar(share).plain == bar


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("64MB", 64_000_000),
        ("64MiB", 64 << 20),
        ("1.5 gb", 1_500_000_000),
        ("4096", 4096),
        ("10k", 10_000),
        ("2gi", 2 << 30),
    ],
)
def test_amounts_of_memory_are_read(text: str, number: int) -> None:
    assert bytes_of(text, "--budget") == number


@pytest.mark.parametrize("text", ["", "MB", "-1", "12 parsecs", "ib", "5ib", "0.1"])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(ControlError, match="--budget: "):
        bytes_of(text, "--budget")


def test_amounts_are_short() -> None:
    assert [shown_bytes(number) for number in (0, 999, 1000, 12_345, 999_600, 2.5e9, 5e12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "12.3 kB",
        "1.0 MB",
        "2.5 GB",
        "5.0 TB",
    ]
    assert [shown_count(number) for number in (None, 0, 0.25, 42, 1000, 123_456, 7.5e6)] == [
        "-",
        "0",
        "0.2",
        "42",
        "1.0k",
        "123k",
        "7.5M",
    ]
    assert [shown_seconds(number) for number in (None, 0.04, 59.96, 61, 3661, 90_000, 4e8, -5)] == [
        "-",
        "0.0s",
        "1m00s",
        "1m01s",
        "1h01m",
        "1d",
        "12y",
        "-5.0s",
    ]
    assert [shown_latency(number) for number in (None, 0.26, 9.96, 120.4, 1500)] == ["-", "0.3ms", "10ms", "120ms", "1.5s"]
