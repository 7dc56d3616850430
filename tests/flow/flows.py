"""Helpers of the tests of dataflows: running them for real in this thread, and sources that do as a test tells them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

import dirigo as dg
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.rows.row import batch_of
from dirigo.flow.sinks.memory import MemorySink
from dirigo.flow.sources.source import Source, SourceBatch, Split
from dirigo.scheduling import Fifo
from dirigo.sim.inline import InlineHost

Rows = list[dict[str, Any]]


class FakeClock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, now_s: float = 1_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def run_inline(flow: dg.Dataflow, rows_max: int = 4096, clock: Callable[[], float] = time.time) -> None:
    """Run a flow to its end on one worker."""
    job = BoundJob(flow)
    job.prepare_sinks()
    InlineHost(job.specs(), Fifo(), clock).run(job.readers, rows_max)


class Running:
    """A flow on one worker whose sources are read one by one, as the test says."""

    def __init__(self, flow: dg.Dataflow, clock: Callable[[], float] | None = None) -> None:
        self.job = BoundJob(flow)
        self.job.prepare_sinks()
        self.clock = clock or FakeClock()
        self.host = InlineHost(self.job.specs(), Fifo(), self.clock)
        self._sources = [self.host.worker.add_source(each.address, (each.target,)) for each in self.job.readers]

    def read(self, number: int = 0, rows_max: int = 1) -> None:
        """Let one reader emit what it has now."""
        for emission in self.job.readers[number].read(rows_max, self.host.tick()):
            self._sources[number].emit(emission)
        self.host.drain()

    def finish(self) -> None:
        """Read every source to its end, in turns."""
        while any(not reader.has_ended for reader in self.job.readers):
            for number in range(len(self.job.readers)):
                self.read(number)


class ScriptedSource(Source):
    """A source with one split, which gives pieces as scripted: rows for each read, or None where nothing has come."""

    def __init__(
        self,
        script: Iterable[Rows | None],
        schema: pa.Schema,
        *,
        time: str | None = None,
        idle_after: str | None = None,
        name: str = "scripted",
    ) -> None:
        super().__init__(schema, name=name, is_bounded=True, time=time, idle_after=idle_after)
        self._script = list(script)

    def splits(self, wanted: int) -> Sequence[Split]:
        return [_ScriptedSplit(self._script, self.schema)]


class _ScriptedSplit(Split):
    def __init__(self, script: list[Rows | None], schema: pa.Schema) -> None:
        self._script = list(script)
        self._schema = schema

    def read(self, rows_max: int) -> SourceBatch | None:
        if not self._script:
            self.ended = True
            return None
        rows = self._script.pop(0)
        return None if rows is None else SourceBatch(batch_of(rows, self._schema))

    def close(self) -> None:
        self.ended = True


TS_SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("ts", pa.int64())])


def event(key: str, value: int, ts: int) -> dict[str, Any]:
    return {"key": key, "value": value, "ts": ts}


def results(
    rows: Sequence[Any],
    build: Callable[[dg.Stream], dg.Stream],
    *,
    time: str | None = "ts",
    schema: Any = TS_SCHEMA,
    rows_max: int = 4096,
    out_of_orderness: str = "0ms",
    watermark_every: str = "1ms",
    partitions: int = 2,
) -> Rows:
    """What a flow makes of some rows, with a watermark after every read."""
    flow = dg.Dataflow("tested", watermark_every=watermark_every, partitions=partitions)
    stream = flow.source(dg.from_iterable(rows, schema, time=time, out_of_orderness=out_of_orderness))
    out = dg.to_memory()
    build(stream).sink(out)
    run_inline(flow, rows_max)
    return out.rows


def split_results(
    rows: Sequence[Any],
    build: Callable[[dg.Stream], dg.Stream],
    *,
    time: str | None = "ts",
    schema: Any = TS_SCHEMA,
    rows_max: int = 4096,
    row_bytes_max: int = 1 << 20,
) -> tuple[Rows, Rows]:
    """What a flow that keeps bad rows apart makes of some rows: (results, errors)."""
    flow = dg.Dataflow("tested", watermark_every="1ms", on_error="side_output", row_bytes_max=row_bytes_max)
    out, errors = dg.to_memory(), dg.to_memory()
    build(flow.source(dg.from_iterable(rows, schema, time=time))).sink(out)
    flow.errors.sink(errors)
    run_inline(flow, rows_max)
    return out.rows, errors.rows


def unordered(rows: Iterable[dict[str, Any]]) -> list[tuple[tuple[str, Any], ...]]:
    """Rows for a comparison in which their order does not matter."""
    return sorted((tuple(sorted(row.items())) for row in rows), key=repr)


def collected(stream: dg.Stream) -> MemorySink:
    out = dg.to_memory()
    stream.sink(out)
    return out
