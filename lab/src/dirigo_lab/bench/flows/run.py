"""One run of a flow in one thread: kernel, strategy and operators together, with no network and no other process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from dirigo import Dataflow, Sink, Stream
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.scheduling import Fifo
from dirigo.sim.inline import InlineHost
from dirigo_lab.bench.flows.memory_source import BATCH_ROWS

BuildFlow = Callable[[Dataflow], Stream]


class FlowRun:
    """A flow made ready to run, all of it before the clock starts."""

    def __init__(self, build: BuildFlow, sink: Sink) -> None:
        flow = Dataflow("bench")
        build(flow).sink(sink)
        self._job = BoundJob(flow)
        self._job.prepare_sinks()
        self.host = InlineHost(self._job.specs(), Fifo(), time.time)

    def run(self) -> float:
        """Seconds of processor time from the first read to the last result."""
        begin = time.process_time()
        self.host.run(self._job.readers, BATCH_ROWS)
        return time.process_time() - begin

    def steps(self) -> Iterator[None]:
        """The same, one read after the other, for a flow with one source; the last step also closes everything."""
        (reader,) = self._job.readers
        source = self.host.worker.add_source(reader.address, (reader.target,))
        while not reader.has_ended:
            for emission in reader.read(BATCH_ROWS, self.host.tick()):
                source.emit(emission)
            self.host.drain()
            yield

    @property
    def rows_read(self) -> int:
        return sum(reader.rows for reader in self._job.readers)
