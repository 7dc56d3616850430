"""The process that `long_run` starts: one query over many generated events, what it costs on the way on standard output.

Before each mark a second flow runs beside the first one, in turns of a few milliseconds, over the first events of all. It
has seen little, so what the first one costs more is the cost of having seen much, whatever else the machine does meanwhile.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from statistics import median
from time import process_time

import pyarrow as pa

from dirigo import to_callback
from dirigo.flow.sources.source import Source, SourceBatch, Split
from dirigo.nexmark.generator import Generator
from dirigo_lab.bench.flows.long_run import Milestone
from dirigo_lab.bench.flows.memory_source import BATCH_ROWS
from dirigo_lab.bench.flows.run import FlowRun
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.tables import GeneratedTables

TURN_BATCHES = 23  # a little more than one window of 10 s, so that every turn closes one
STATE_EVERY_BATCHES = 4
RECENT_EVENTS = 1_000_000


class _Handed(Split):
    """Gives what was laid into its hand."""

    def __init__(self) -> None:
        self.next: SourceBatch | None = None

    def read(self, rows_max: int) -> SourceBatch | None:  # noqa: ARG002 - batches have their size already
        piece, self.next = self.next, None
        return piece

    def close(self) -> None:
        self.ended = True


class _HandedTables(GeneratedTables):
    """Bids that are generated while no clock runs, and handed to the flow one batch at a time."""

    def __init__(self, events: int) -> None:
        super().__init__(events)
        self.hand = _Handed()
        self.batches: Iterator[SourceBatch] = iter(())

    def bids(self, *columns: str) -> Source:
        source = super().bids(*columns)
        self.batches = _pieces(source.splits(1)[0])
        return _HandedSource(source, self.hand)


class _HandedSource(Source):
    def __init__(self, source: Source, hand: _Handed) -> None:
        super().__init__(source.schema, name=source.name, is_bounded=True, time=source.time)
        self._hand = hand

    def splits(self, wanted: int) -> Sequence[Split]:  # noqa: ARG002 - there is one hand
        return [self._hand]


def _pieces(split: Split) -> Iterator[SourceBatch]:
    while not split.ended:
        piece = split.read(BATCH_ROWS)
        assert piece is not None
        yield piece


class Runner:
    """A flow that runs in turns."""

    def __init__(self, query: str, events: int) -> None:
        self._tables = _HandedTables(events)
        self.results = 0
        self._run = FlowRun(lambda flow: QUERIES[query].function(flow, self._tables), to_callback(self._count, batches=True))
        self._steps = self._run.steps()

    def _count(self, batch: pa.RecordBatch) -> None:
        self.results += batch.num_rows

    @property
    def bids(self) -> int:
        """How many bids it has seen."""
        return self._run.rows_read

    def turn(self, after_batch: Callable[[], None] | None = None) -> float:
        """Nanoseconds of processor time per bid in one turn; 0 when there are no more bids."""
        hand = self._tables.hand
        busy_s, bids_before = 0.0, self.bids
        for piece in list(islice(self._tables.batches, TURN_BATCHES)):
            hand.next = piece
            begin = process_time()
            next(self._steps)
            busy_s += process_time() - begin
            if after_batch is not None:
                after_batch()
        seen = self.bids - bids_before
        return busy_s / seen * 1e9 if seen else 0.0

    def finish(self) -> None:
        """The input ends, and the last windows close."""
        self._tables.hand.ended = True
        for _ in self._steps:
            pass

    def state_bytes(self) -> int:
        """What open windows hold."""
        worker = self._run.host.worker
        addresses = [address for address in worker.participants if address in worker.directory]
        return sum(worker.instance(address).states.size_bytes() for address in addresses)


class LongRunner:
    """The flow that sees everything, and at the marks a fresh one beside it."""

    def __init__(self, query: str, marks: Sequence[int]) -> None:
        self._query = query
        self._marks = marks
        self._runner = Runner(query, marks[-1])
        self._batches = 0
        self._state_bytes = 0
        self._peak_bytes = 0

    def run(self) -> list[Milestone]:
        marks = [self._run_to(events) for events in self._marks]
        self._runner.finish()
        if not self._runner.results:
            raise RuntimeError(f"the long run of {self._query} gave no results")
        return marks

    def _run_to(self, events: int) -> Milestone:
        runner = self._runner
        first_recent, last = _bids(max(events - RECENT_EVENTS, 0)), _bids(events)
        while runner.bids < first_recent and runner.turn():
            pass
        fresh = Runner(self._query, min(events, RECENT_EVENTS) + TURN_BATCHES * BATCH_ROWS)
        self._state_bytes = 0
        pairs: list[tuple[float, float]] = []
        while runner.bids < last and (cost := runner.turn(self._look_at_state)):
            pairs.append((cost, fresh.turn() or cost))
        # The operating system's count may be off by some pages, and then a later peak would be lower.
        self._peak_bytes = max(peak_bytes(), self._peak_bytes)
        return Milestone(
            events=events,
            bid_ns=median(cost for cost, _ in pairs),
            growth=median(cost / fresh_cost for cost, fresh_cost in pairs),
            state_bytes=self._state_bytes,
            peak_bytes=self._peak_bytes,
        )

    def _look_at_state(self) -> None:
        self._batches += 1
        if self._batches % STATE_EVERY_BATCHES == 0:
            self._state_bytes = max(self._state_bytes, self._runner.state_bytes())


def _bids(events: int) -> int:
    """How many of the first events are bids."""
    return Generator().counts(0, events)[-1]


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says on Linux is no less than what the parent process held
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    found = LongRunner(sys.argv[1], [int(mark) for mark in sys.argv[2:]]).run()
    sys.stdout.write(json.dumps([asdict(mark) for mark in found]))
