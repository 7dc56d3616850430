"""A barrier that waits is never silent: the job's status, the command line and the log say for whom."""

import io
import logging
import time
from pathlib import Path

import pytest
from rich.console import Console

import dirigo as dg
from dirigo.cli.display.job_details import job_details
from runtime.clusters import SCHEMA, LocalCluster, numbers, until

ROW = {"n": int}


class Part(dg.Function):
    """Sends its part of a common barrier with the first row."""

    ordered = True

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)
        context.emit_critical("now", granularity="one")


class Never(dg.Function):
    """Never sends its part."""

    ordered = True

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)


class Behind(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)


def test_whoever_never_sends_its_part_of_a_common_barrier_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flow = dg.Dataflow("common", partitions=1)
    first = flow.source(dg.from_iterable([{"n": 1}], ROW, name="first")).process(Part, ROW, name="part")
    rows = dg.paced(dg.from_generator(numbers, SCHEMA, None, block=10, time="ts", name="second"))
    second = flow.source(rows, splits=1).select("n").process(Never, ROW, name="never")
    first.union(second).process(Behind, ROW, name="behind").sink(dg.to_memory())
    with caplog.at_level(logging.WARNING), LocalCluster(tmp_path, workers=1) as cluster:
        job = cluster.submit(flow)
        told = until(lambda: job.status().waiting, "the status names who is missing")
        assert len(told) == 1
        assert told[0].startswith("a barrier at ")
        assert told[0].endswith("s for SYNC_ONE 1 of never/0")
        shown = io.StringIO()
        Console(file=shown, width=200).print(job_details(job.status(), time.time()))
        assert "SYNC_ONE 1 of never/0" in shown.getvalue()
        until(lambda: "SYNC_ONE 1 of never/0" in caplog.text, "the log names who is missing")
        job.drain()
        job.wait()  # a function that has ended is not waited for any more
        assert job.status().waiting == ()
