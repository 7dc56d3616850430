"""The load of ``read-heavy``, the same in the simulator and on Spark: updates, reads, watermarks, and who schedules them."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from random import Random

from dirigo.scheduling import RejectSendRandom, Strategy

UPDATE, READ, TIME = 0, 1, 2  # what comes
UPDATES, READS = "updates", "reads"  # as jobs of an outcome
WORKERS = 4
UPDATES_PER_S = 250
# On Spark the same workers also read rows, tell reads from updates and collect results: with as many updates, reads would
# wait for that and not for each other.
UPDATES_PER_S_ON_SPARK = 150
UPDATE_S = 0.01
READ_S = 0.0002
WATERMARK_EVERY_S = 1.0


def strategy() -> Strategy:
    """Messages at all workers, whatever they cost: reads and updates alike."""
    return RejectSendRandom(WORKERS - 1)


def arrivals(
    reads_per_s: float, seconds: float, seed: int, updates_per_s: float = UPDATES_PER_S
) -> Iterator[tuple[float, int]]:
    """(when, what), in the order of time."""
    updates = _at_random(updates_per_s, seconds, Random(f"{seed} updates"), UPDATE)
    reads = _at_random(reads_per_s, seconds, Random(f"{seed} reads"), READ)
    watermarks = ((number * WATERMARK_EVERY_S, TIME) for number in range(1, int(seconds / WATERMARK_EVERY_S) + 1))
    return merge(updates, reads, watermarks)


def _at_random(per_s: float, seconds: float, rng: Random, kind: int) -> Iterator[tuple[float, int]]:
    at_s = rng.expovariate(per_s)
    while at_s < seconds:
        yield at_s, kind
        at_s += rng.expovariate(per_s)
