"""How a job and a service show themselves in a notebook."""

from __future__ import annotations

import time
from typing import Any

import msgspec

import dirigo as dg
from dirigo.runtime.client.notebook import job_html, service_html
from dirigo.runtime.control import ClusterStatus, JobMetrics, JobStatus, WorkerStatus
from dirigo.runtime.status import SnapshotFigures
from dirigo.scheduling.accounting import Satisfaction
from flow.test_notebook import Checked
from runtime.clusters import PATIENCE_S, LocalCluster, mapped

FAILED = JobStatus("a~1", "a", "failed", 10.0, 11.0, 15.0, error="operator '<b>map</b>' failed", strategy="edf")


def test_a_job_shows_how_it_is(cluster: LocalCluster) -> None:
    flow, _ = mapped(lambda row: {"n": row.n}, "shown")
    job = cluster.submit(flow)
    job.wait(PATIENCE_S)
    page = Checked(job._repr_html_())
    assert {job.id, "finished", "1,000 in, 1,000 out"} <= set(page.texts)


def test_a_job_that_cannot_be_asked_says_why(cluster: LocalCluster) -> None:
    flow, _ = mapped(lambda row: {"n": row.n}, "unasked")
    job = cluster.submit(flow)
    job.wait(PATIENCE_S)
    job.id = "unasked~999"
    assert any("there is no job 'unasked~999'" in text for text in Checked(job._repr_html_()).texts)


def test_a_failed_job_shows_its_problem() -> None:
    page = Checked(job_html(FAILED))
    assert {"failed", "5.0 s", "operator '<b>map</b>' failed", "job, scheduled by edf"} <= set(page.texts)
    assert "objective" not in page.texts


def test_an_objective_is_shown_beside_what_came_of_it() -> None:
    metrics = JobMetrics(satisfaction=Satisfaction(results=0.9899), latency_ms={"p50": 12.3})
    job = JobStatus("a~1", "a", "running", 10.0, metrics=metrics, latency_objective_ms=200, target=0.99, waiting=("one",))
    page = Checked(job_html(job))
    assert {"200 ms for 99 % of results", "98.9 %", "p50 12 ms", "one"} <= set(page.texts)


def test_a_job_shows_what_it_would_go_back_to() -> None:
    last = SnapshotFigures(17, time.time() - 4, 0.25, 2_000_000, 1_000)
    status = msgspec.structs.replace(FAILED, state="recovering", snapshot=last, generation=3, recoveries=2)
    texts = Checked(job_html(msgspec.structs.replace(status, snapshot_problem="the disk is <full>"))).texts
    assert {"recovering", "2, now generation 3", "the disk is <full>"} <= set(texts)
    (told,) = [text for text in texts if text.startswith("17, ")]
    assert told.endswith(" s old, took 0.25 s, 2,000,000 bytes")


def test_a_service_shows_its_workers_and_jobs() -> None:
    workers = (WorkerStatus(0, "ready", host="one"), WorkerStatus(1, "lost", problem="it is gone"))
    jobs = tuple(JobStatus(f"over~{n}", "over", "finished", 10.0 + n, ended_s=20.0 + n) for n in range(30))
    running = JobStatus("now~31", "now", "running", 1.0)
    page = Checked(service_html("big", "service", ClusterStatus("big", 12.0, workers, (*jobs, FAILED, running))))
    assert {"big", "ready", "lost", "it is gone", "now~31", "over~29", "and 12 more jobs"} <= set(page.texts)
    assert page.texts.index("now~31") < page.texts.index("over~29")
    assert "over~3" not in page.texts


def test_a_service_that_does_not_answer_says_so(cluster: LocalCluster) -> None:
    service = dg.Service(cluster.controller.access, "mine")
    page: Any = Checked(service._repr_html_())
    assert {"mine", "ready"} <= set(page.texts)
    service.close()
    page = Checked(service._repr_html_())
    assert any("the connection to the cluster is closed" in text for text in page.texts)
