"""What one data message costs in the kernel and the FIFO strategy, with no barrier under way.

Measured is the whole way at one worker: receive, enqueue, next, pre_apply, a function that emits one output, prepare_send,
finish, post_apply. The bare call of that function is measured apart and subtracted; the message that comes in is made
beforehand, because decoding it is the transport's cost, and the message that goes out is made within. Every actor has had a
message before: activation is not counted. Measured is processor time, so that whatever else runs on the machine does not
count; it still costs caches.

Whether the cost is flat in the number of actors is asked twice. Once with the fewest of them busy while the most are
present: that ratio is the kernel's own, and must be about 1. Once with all of them busy in turn, which is the least kind to
caches: what it adds is the machine's cost of touching ten thousand different sets of objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from time import process_time

from dirigo.kernel import Address, Context, Data, Lane, Worker
from dirigo.scheduling import Fifo
from dirigo_lab.bench.job import SOURCE, BenchRelay, no_states, relays_side_by_side

ACTORS = (10, 100, 1_000, 10_000)
MESSAGES = 20_000
REPEATS = 9
MESSAGE_US_MOST = 10.0  # the budget
FLATNESS_MOST = 1.25  # the same actors busy among the most present may cost so many times what they cost among themselves
SPREAD_MOST = 2.0  # and all of them busy in turn so many times


@dataclass(frozen=True)
class MessageCost:
    """Microseconds per message with so many actors on one worker; medians over the repeats."""

    actors: int
    whole_us: float  # the function's bare call included
    function_us: float  # that call

    @property
    def kernel_us(self) -> float:
        return self.whole_us - self.function_us


@dataclass(frozen=True)
class KernelCost:
    """The cost of a message, by number of actors."""

    costs: tuple[MessageCost, ...]  # all actors busy in turn
    among_idle: MessageCost  # the fewest busy, the most present

    @property
    def flatness(self) -> float:
        """The cost of the same busy actors among many idle ones, over their cost alone."""
        return self.among_idle.kernel_us / self.costs[0].kernel_us

    @property
    def spread(self) -> float:
        """The cost with the most actors busy in turn over the cost with the fewest."""
        return self.costs[-1].kernel_us / self.costs[0].kernel_us

    def within_budget(self) -> bool:
        dearest_us = max(cost.kernel_us for cost in self.costs)
        return dearest_us <= MESSAGE_US_MOST and self.flatness <= FLATNESS_MOST and self.spread <= SPREAD_MOST


def measure_kernel(actors: tuple[int, ...] = ACTORS, messages: int = MESSAGES, repeats: int = REPEATS) -> KernelCost:
    """Measure with each number of actors. The numbers take turns, so that a disturbance hits all of them alike."""
    benches = [_Bench(count, count, max(messages, count)) for count in actors]
    benches.append(_Bench(actors[-1], actors[0], messages))
    rounds = [[bench.run() for bench in benches] for _ in range(repeats)]
    function_us = median(_time_bare_function(messages) for _ in range(repeats))
    *costs, among_idle = (
        MessageCost(bench.actors, median(each[index] for each in rounds), function_us) for index, bench in enumerate(benches)
    )
    return KernelCost(tuple(costs), among_idle)


class _Bench:
    """One worker with many relays, all of them active."""

    def __init__(self, actors: int, busy: int, messages: int) -> None:
        self.actors = actors
        self._messages = messages
        directory, self._relays = relays_side_by_side(actors)
        self._worker = Worker(0, directory, Fifo())
        self._last_id = 0
        _pass_through(self._worker, list(self._inputs(actors)))
        self._relays = self._relays[:: actors // busy][:busy]

    def run(self) -> float:
        """Microseconds per message over one batch of them."""
        batch = list(self._inputs(self._messages))
        begin = process_time()
        _pass_through(self._worker, batch)
        return (process_time() - begin) / len(batch) * 1e6

    def _inputs(self, count: int) -> Iterator[Data]:
        """The next messages, the same number to every relay."""
        for _ in range(count // len(self._relays)):
            self._last_id += 1
            for address in self._relays:
                yield _input(address, self._last_id)


def _input(address: Address, seq: int) -> Data:
    return Data(address, 0, SOURCE, 0, Lane.INPUT, seq, 0, seq)


def _pass_through(worker: Worker, batch: list[Data]) -> None:
    """One message after the other through everything that the kernel does with it."""
    receive, choose, apply, finish, outgoing = worker.receive, worker.next, worker.apply, worker.finish, worker.outgoing
    for message in batch:
        receive(message)
        choose()
        apply()
        finish(0.0)
        outgoing.clear()


def _time_bare_function(calls: int) -> float:
    """Microseconds of the function alone, emission included."""
    context, function = Context("bench/relay/0", no_states()), BenchRelay("bench/target/0")
    begin = process_time()
    for index in range(calls):
        function.on_message(context, index)
        context.outputs.clear()
    return (process_time() - begin) / calls * 1e6
