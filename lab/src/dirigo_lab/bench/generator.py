"""How many events per second the Nexmark generator makes on one core: all columns of all three kinds."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time

from dirigo.nexmark.generator import Generator

EVENTS = 1_000_000
REPEATS = 5
EVENTS_AT_ONCE = 50_000
EVENTS_PER_S_LEAST = 2_000_000.0  # the budget


@dataclass(frozen=True)
class GeneratorCost:
    """Persons, auctions and bids of one range of events, generated chunk by chunk."""

    events: int
    seconds: float  # of processor time, the best of the repeats

    @property
    def events_per_s(self) -> float:
        return self.events / self.seconds

    def within_budget(self) -> bool:
        return self.events_per_s >= EVENTS_PER_S_LEAST


def measure_generator(events: int = EVENTS, repeats: int = REPEATS) -> GeneratorCost:
    """Generate the same events some times."""
    generator = Generator()
    _generate(generator, EVENTS_AT_ONCE)  # makes the tables of texts, which is done once per process
    return GeneratorCost(events, min(_run_once(generator, events) for _ in range(repeats)))


def _run_once(generator: Generator, events: int) -> float:
    begin = process_time()
    made = _generate(generator, events)
    elapsed = process_time() - begin
    if made != events:
        raise RuntimeError(f"the benchmark's generator made {made} events instead of {events}")
    return elapsed


def _generate(generator: Generator, events: int) -> int:
    made = 0
    for first in range(0, events, EVENTS_AT_ONCE):
        last = min(first + EVENTS_AT_ONCE, events)
        for make in (generator.persons, generator.auctions, generator.bids):
            made += make(first, last).num_rows
    return made
