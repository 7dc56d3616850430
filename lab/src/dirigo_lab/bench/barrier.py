"""What one barrier costs at an actor: from the arrival of the SYNC program until everybody is RUNNABLE again.

The cost is the sum over all workers that take part, without any network: what one core would need for all of it. Before
each round every lessee has executed one message, so there is a partial state to hand over; that is not measured.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median
from time import process_time

from dirigo.kernel import (
    CriticalOutput,
    Directory,
    Message,
    Output,
    RunnableMessage,
    SchedulingContext,
    Worker,
    WorkerId,
    actor_address,
)
from dirigo.scheduling import Strategy
from dirigo_lab.bench.job import SOURCE, sum_spec

LESSEES = (0, 4)
ROUNDS = 1_000
REPEATS = 9

_ACTOR = actor_address("bench", "sum")
_HOME = 0


@dataclass(frozen=True)
class BarrierCost:
    """One round with so many lessees; the median over the repeats of the mean over many rounds."""

    lessees: int
    round_us: float
    messages: int  # control messages per round, the program and its acknowledgments included


def measure_barriers(
    lessees: tuple[int, ...] = LESSEES, rounds: int = ROUNDS, repeats: int = REPEATS
) -> tuple[BarrierCost, ...]:
    return tuple(_measure(count, rounds, repeats) for count in lessees)


class _InTurns(Strategy):
    """First in, first out; the lessor forwards everything, to one lessee after the other."""

    def __init__(self, lessees: range) -> None:
        self._lessees = lessees
        self._forwarded = 0
        self._queue: deque[RunnableMessage] = deque()

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        if self._lessees and context.id == _HOME and not message.critical:
            self._forwarded += 1
            return self._lessees[self._forwarded % len(self._lessees)]
        self._queue.append(message)
        return None

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:  # noqa: ARG002
        return self._queue.popleft() if self._queue else None


class _Bench:
    """A source, a lessor and its lessees, and a network that delivers at once."""

    def __init__(self, lessees: int) -> None:
        directory = Directory()
        directory.add_job([sum_spec(_ACTOR, _HOME, SOURCE)])
        self._lessees = range(1, lessees + 1)
        self._workers = [Worker(worker, directory, _InTurns(self._lessees)) for worker in range(lessees + 1)]
        self._source = self._workers[_HOME].add_source(SOURCE, (_ACTOR,))
        self.delivered = 0

    def fill(self) -> None:
        """Give every lessee one message, or the lessor if there is none."""
        for _ in self._lessees or (_HOME,):
            self._source.emit(Output(_ACTOR, 1))
        self.settle()

    def hold_round(self) -> float:
        """Seconds from the emission of a critical message until everything is at rest."""
        self.delivered = 0
        begin = process_time()
        self._source.emit(CriticalOutput(_ACTOR, 1))
        self.settle()
        return process_time() - begin

    def settle(self) -> None:
        """Deliver and run until nothing is left."""
        workers = self._workers
        while True:
            in_flight: list[Message] = []
            for worker in workers:
                while worker.next() is not None:
                    worker.apply()
                    worker.finish()
                if worker.outgoing:
                    in_flight += worker.outgoing
                    worker.outgoing.clear()
            if not in_flight:
                return
            for message in in_flight:
                self.delivered += 1
                workers[message.worker].receive(message)


def _measure(lessees: int, rounds: int, repeats: int) -> BarrierCost:
    bench = _Bench(lessees)
    means = []
    for _ in range(repeats):
        seconds = 0.0
        for _ in range(rounds):
            bench.fill()
            seconds += bench.hold_round()
        means.append(seconds / rounds * 1e6)
    return BarrierCost(lessees, median(means), bench.delivered)
