"""One worker without a network: messages are handed over as soon as they are sent. What a flow costs, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dirigo.kernel import Address, CriticalOutput, Directory, FunctionSpec, Hooks, Output, SourceActor, Worker


class Reader(Protocol):
    """Where emissions come from: one split of a source."""

    address: Address
    target: Address
    newest_ms: int  # how far it is in event time
    rows: int
    has_ended: bool

    def read(self, rows_max: int, now_s: float) -> Sequence[Output | CriticalOutput]: ...


class InlineHost:
    """Runs jobs in the calling thread, one message after the other."""

    def __init__(self, specs: Iterable[FunctionSpec], strategy: Hooks, clock: Callable[[], float]) -> None:
        directory = Directory()
        directory.add_job(specs)
        self.worker = Worker(0, directory, strategy)
        self._clock = clock
        self._sources: dict[Address, SourceActor] = {}

    def run(self, readers: Sequence[Reader], rows_max: int, progress: Callable[[], None] | None = None) -> None:
        """Read all sources to their end; the one that is furthest behind in event time goes first."""
        for reader in readers:
            self._sources[reader.address] = self.worker.add_source(reader.address, (reader.target,))
        active = list(readers)
        quiet: list[Reader] = []  # those that had nothing when they were last asked
        while active or quiet:
            if not active:
                active, quiet = quiet, []
            reader = active[0] if len(active) == 1 else min(active, key=lambda each: (each.newest_ms, each.rows))
            emissions = reader.read(rows_max, self.tick())
            source = self._sources[reader.address]
            for emission in emissions:
                source.emit(emission)
            self.drain()
            if progress is not None:
                progress()
            if reader.has_ended:
                active.remove(reader)
            elif not emissions:  # nothing there now: let the others go first
                active.remove(reader)
                quiet.append(reader)
            elif quiet:
                active += quiet
                quiet = []

    def tick(self) -> float:
        """Look at the clock, and start what is due."""
        worker = self.worker
        now = worker.now = self._clock()
        if worker.timed and (due := worker.next_timer()) is not None and due <= now:
            worker.fire_timers()
            self.drain()
        return now

    def drain(self) -> None:
        """Run everything that can run."""
        worker = self.worker
        while True:
            while worker.outgoing:
                messages = worker.outgoing[:]
                worker.outgoing.clear()
                for message in messages:
                    worker.receive(message)
            if worker.next() is None:
                if not worker.outgoing:
                    return
                continue
            worker.apply()
            worker.finish()
