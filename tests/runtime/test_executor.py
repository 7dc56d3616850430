"""When sources are read: between messages, within the budget, and so that none of them stands in the way of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime.worker.installed_job import ROWS_AT_ONCE, InstalledJob
from runtime.clusters import SCHEMA, numbers
from runtime.one_worker import OneWorker


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneWorker]:
    with OneWorker(tmp_path, monkeypatch) as worker:
        yield worker


class Slow(dg.Function):
    """Takes its time with each message, which the test's clock tells."""

    worker: OneWorker
    message_s: float
    busy_s = 0.0
    rows = 0
    most_waiting = 0  # rows

    def on_batch(self, context: Any, batch: pa.RecordBatch) -> None:
        kind = type(self)
        (job,) = self.worker.core.jobs.values()
        kind.most_waiting = max(kind.most_waiting, job.figures.rows_in - kind.rows)
        self.worker.clock.pass_s(kind.message_s)
        kind.busy_s += kind.message_s
        kind.rows += batch.num_rows


def slow(worker: OneWorker, message_s: float) -> type[Slow]:
    return type("SlowHere", (Slow,), {"worker": worker, "message_s": message_s})


# --- time ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_s", [0.001, 0.1, 3.0])
def test_a_slow_source_gets_at_most_half_of_the_time_while_messages_wait(worker: OneWorker, read_s: float) -> None:
    reads = 0

    def slowly(first: int, count: int) -> pa.RecordBatch:
        nonlocal reads
        reads += 1
        worker.clock.pass_s(read_s)
        return numbers(first, count)

    flow = dg.Dataflow("slow-source", partitions=8)
    kind = slow(worker, message_s=0.5)  # so that each block is more work than can be done until the next one
    source = flow.source(dg.from_generator(slowly, SCHEMA, block=100, name="numbers"))
    source.key_by("key").process(kind, schema=SCHEMA).sink(dg.to_memory())
    worker.start(flow)
    worker.run(60.0)
    assert reads > 3, "though messages wait, it is read"
    assert reads * read_s <= kind.busy_s + read_s


# --- the budget ------------------------------------------------------------------------------------------------------------


def release(job: InstalledJob, source: str, blocks: int, rows: int) -> None:
    """Have rows wait on disk, as a query does that has committed them."""
    staging = job.staging[source, 0]
    for block in range(blocks):
        staging.stage(str(block), [numbers(block * rows, rows).serialize().to_pybytes()])
        staging.seal(str(block))
        assert staging.release("query", block, [str(block)])


def test_a_job_that_is_drained_takes_no_more_at_a_time_than_its_budget_allows(worker: OneWorker) -> None:
    blocks = 40
    flow = dg.Dataflow("drained")
    kind = slow(worker, message_s=0.05)
    source = flow.source(PushedSource(SCHEMA, name="pushed"))
    source.key_by("key").process(kind, schema=SCHEMA).sink(dg.to_memory())
    job = worker.start(flow, budget_bytes=100_000)  # less than comes with one read, which is not cut
    release(job, "pushed", blocks, ROWS_AT_ONCE)
    job.end_source(None)
    worker.run(3_600.0)
    assert kind.rows == blocks * ROWS_AT_ONCE, "all that was committed is worked off"
    assert not job.active, "and then it has ended"
    assert kind.most_waiting <= 2 * ROWS_AT_ONCE


def test_a_source_that_is_to_end_ends_though_the_budget_is_used_up(worker: OneWorker) -> None:
    flow = dg.Dataflow("full")
    flow.source(dg.from_generator(numbers, SCHEMA, block=100, name="endless")).sink(dg.to_memory())
    job = worker.start(flow, budget_bytes=1)
    job.budget.queued = 10  # of something that does not move
    worker.run(1.0)
    assert job.is_paused
    assert job.active
    job.end_source("endless")
    worker.run(1.0)
    assert not job.active


def test_a_worker_sleeps_until_a_row_is_due(worker: OneWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = dg.Dataflow("paced")
    rows = dg.from_generator(numbers, SCHEMA, block=100, name="numbers")
    kind = slow(worker, message_s=0.0)
    source = flow.source(dg.shaped(rows, dg.loads.constant(4)))
    source.key_by("key").process(kind, schema=SCHEMA).sink(dg.to_memory())
    job = worker.start(flow)
    job.readers[0].split.clock = worker.clock.time
    slept: list[float] = []
    pass_s = worker.clock.pass_s

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        pass_s(seconds)

    monkeypatch.setattr(worker.clock, "pass_s", sleep)
    worker.run(5.0)
    assert 19 <= kind.rows <= 21, "each when it is due"
    assert max(slept) <= 0.05, "though it has to look now and then"
    assert len(slept) < 5.0 / 0.05 + 3 * kind.rows, "and not all the time"


# --- sources that have nothing to say --------------------------------------------------------------------------------------


def hoarding(quiet: PushedSource) -> tuple[dg.Dataflow, Any]:
    """Numbers in windows that stay open for long, beside a source from which nothing comes."""
    flow = dg.Dataflow("hoarding")
    out = dg.to_memory()
    busy = flow.source(dg.from_generator(numbers, SCHEMA, 20_000, block=1_000, time="ts", name="busy"))
    busy.key_by("n").window(dg.Tumbling("10m")).aggregate(count=dg.count()).sink(out)
    flow.source(quiet).sink(dg.to_memory(), name="aside")
    return flow, out


@pytest.mark.parametrize(
    "quiet",
    [PushedSource(SCHEMA, name="timeless"), PushedSource(SCHEMA, name="idle", time="ts", idle_after="1s")],
    ids=lambda source: source.name,
)
def test_while_states_pile_up_nobody_waits_for_a_source_without_time_or_an_idle_one(
    worker: OneWorker, quiet: PushedSource
) -> None:
    flow, _ = hoarding(quiet)
    job = worker.start(flow, budget_bytes=1_000)
    job.budget.state_bytes = 1_000_000  # a beat would see it
    worker.run(10.0)
    assert job.figures.rows_in == 20_000
    assert job.budget.behind_ms is None, "others are not told to wait for it either"
    assert [reader.source for reader in job.active] == [quiet]


def test_while_states_pile_up_others_wait_for_a_source_that_may_still_give_older_rows(worker: OneWorker) -> None:
    flow, _ = hoarding(PushedSource(SCHEMA, name="behind", time="ts"))
    job = worker.start(flow, budget_bytes=1_000)
    job.budget.state_bytes = 1_000_000
    worker.run(10.0)
    assert job.figures.rows_in < 20_000
    release(job, "behind", 1, 30_000)  # up to 30 s
    worker.run(10.0)
    assert job.figures.rows_in == 50_000
