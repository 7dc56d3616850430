"""What a job was given: how many results and messages were within its objective, how late the others were, and why.

Kept by whoever executes, for every message, so it is a handful of additions. Latencies are counted in buckets that grow with
the latency: cheap to note, to send and to add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import frexp

import msgspec

from dirigo.kernel import RunnableMessage, Trail

CAUSES = ("source", "hop", "barrier", "queue", "executing")  # where the time of something late went

_PER_OCTAVE = 16  # a bucket is 1/16 of the way to twice the latency, so a figure is off by 3 % at most
_SMALLEST_S = 1e-6


class Late(msgspec.Struct, array_like=True):
    """What was late, and the seconds that it spent, by cause."""

    count: int = 0
    source: float = 0.0  # not read when it was due, or not sent
    hop: float = 0.0  # between workers
    barrier: float = 0.0  # held until a barrier was over, or the barrier itself
    queue: float = 0.0  # ready, while others ran
    executing: float = 0.0

    def note(self, count: int, latency_s: float, trail: Trail) -> None:
        hop, barrier, queue, executing = trail
        self.count += count
        self.hop += hop * count
        self.barrier += barrier * count
        self.queue += queue * count
        self.executing += executing * count
        self.source += max(0.0, latency_s - hop - barrier - queue - executing) * count

    def add(self, other: Late) -> None:
        self.count += other.count
        self.source += other.source
        self.hop += other.hop
        self.barrier += other.barrier
        self.queue += other.queue
        self.executing += other.executing

    def shares(self) -> dict[str, float]:
        """Cause -> its share of the time; empty if nothing was late."""
        total = sum(getattr(self, cause) for cause in CAUSES)
        return {cause: round(getattr(self, cause) / total, 4) for cause in CAUSES} if total else {}


class Account(msgspec.Struct, array_like=True):
    """One job at one worker, or over all of them. A result is a row that has come to a sink."""

    results: int = 0
    messages: int = 0
    latencies: dict[int, int] = {}  # bucket -> results
    late_results: Late = msgspec.field(default_factory=Late)
    late_messages: Late = msgspec.field(default_factory=Late)

    def note(self, message: RunnableMessage, now: float, trail: Trail, results: int) -> None:
        """A message was executed; ``results``: the rows that it brought to a sink."""
        latency_s = now - message.created
        is_late = now > message.deadline
        self.messages += 1
        if is_late:
            self.late_messages.note(1, latency_s, trail)
        if results:
            self.results += results
            bucket = bucket_of(latency_s)
            self.latencies[bucket] = self.latencies.get(bucket, 0) + results
            if is_late:
                self.late_results.note(results, latency_s, trail)

    def add(self, other: Account) -> None:
        self.results += other.results
        self.messages += other.messages
        for bucket, count in other.latencies.items():
            self.latencies[bucket] = self.latencies.get(bucket, 0) + count
        self.late_results.add(other.late_results)
        self.late_messages.add(other.late_messages)

    def report(self) -> Satisfaction:
        return Satisfaction(
            results=_share(self.results, self.late_results.count),
            messages=_share(self.messages, self.late_messages.count),
            late_results=self.late_results.count,
            late_messages=self.late_messages.count,
            why_results=self.late_results.shares(),
            why_messages=self.late_messages.shares(),
        )


class Satisfaction(msgspec.Struct, frozen=True):
    """How well a job's objective was met."""

    results: float | None = None  # share within the latency; None before there are any
    messages: float | None = None
    late_results: int = 0
    late_messages: int = 0
    why_results: dict[str, float] = {}  # where the time of late ones went: shares by cause
    why_messages: dict[str, float] = {}


def summed(accounts: Iterable[Account]) -> Account:
    total = Account()
    for account in accounts:
        total.add(account)
    return total


def _share(count: int, late: int) -> float | None:
    return round(1.0 - late / count, 6) if count else None


# --- buckets of latencies --------------------------------------------------------------------------------------------------


def bucket_of(seconds: float) -> int:
    """The bucket of a latency; whatever is below a microsecond, or negative because of clocks, is in the first."""
    if seconds <= _SMALLEST_S:
        return 0
    mantissa, exponent = frexp(seconds / _SMALLEST_S)
    return exponent * _PER_OCTAVE + int((mantissa - 0.5) * 2 * _PER_OCTAVE)


def milliseconds_of(bucket: int) -> float:
    """The middle of a bucket."""
    exponent, step = divmod(bucket, _PER_OCTAVE)
    return (0.5 + (step + 0.5) / (2 * _PER_OCTAVE)) * 2.0**exponent * _SMALLEST_S * 1000


def percentiles(counts: Mapping[int, int]) -> dict[str, float]:
    """p50, p95, p99 and the largest, in milliseconds; nothing without any count."""
    total = sum(counts.values())
    if not total:
        return {}
    ranks = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1.0}
    found: dict[str, float] = {}
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        for name, share in ranks.items():
            if name not in found and seen >= share * total:
                found[name] = round(milliseconds_of(bucket), 3)
    return found
