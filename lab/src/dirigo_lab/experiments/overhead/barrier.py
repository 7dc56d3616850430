"""What a barrier costs, by the number of lessees and the size of their states: what both overhead experiments share.

One source feeds one function. Some time before each barrier every lessee gets one message, and writes a state of a given
size; just before the barrier the lessor gets one too. So lessees are done when they are asked: what is measured is the
protocol, not work that is left over. The same is run on simulated workers here, and on real ones in ``overhead_on_spark``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dirigo.kernel import (
    Context,
    CriticalOutput,
    CriticalRun,
    Directory,
    FunctionSpec,
    Message,
    Output,
    States,
    actor_address,
)
from dirigo.kernel.interface.message import SyncReply, SyncRequest, SyncRequestAck, Unsync
from dirigo.scheduling import for_worker
from dirigo.sim.cluster import FetchTime, SimulatedCluster
from dirigo.sim.delay import Delay, exponential
from dirigo.sim.feed import Emission
from dirigo.sim.network import Network
from dirigo.sim.service import ServiceTimes
from dirigo.state import StateSet, ValueState
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Labels, Latencies, Outcome, Size
from dirigo_lab.experiments.overhead.barrier_clock import BarrierClock, TimedRound, timed_rounds
from dirigo_lab.experiments.overhead.forwarding_in_turn import ForwardingInTurn

BLOCKED, WHOLE = "blocked to unsync", "start to unsync"  # what is measured, as jobs of an outcome
KB = 1024
PAPER_MOST_MS = 20.0  # what a barrier takes in the paper, with states up to 64 KB: "below 20 ms"
EVERY_S = 0.1  # from one barrier to the next, beside the time in which states move
WARM_UP_ROUNDS = 3
ROUNDS = {Size.FULL: 1_000, Size.QUICK: 100, Size.TINY: 30}
_ROWS_BEFORE_S = 0.05  # long enough before a barrier for messages to be done
_HOLDER = "holder"
_SOURCE, _FUNCTION = actor_address("overhead", "source"), actor_address("overhead", _HOLDER)
_HOME = 0
# As on two real workers, where the median is 0.7 ms and the 99th percentile 1.5 ms: most of a hop is always the same.
_LEAST_SHARE, _MORE_SHARE = 0.79, 0.3
_EVENTS_MAX = 1_000_000_000


@dataclass(frozen=True)
class Setting:
    """Who takes part in each barrier, and with how much."""

    lessees: int
    state_bytes: int


def simulate(setting: Setting, rounds: int, labels: Labels, seed: int, costs: RuntimeCosts) -> Outcome:
    """Hold so many barriers in the simulator."""
    directory = Directory()
    directory.add_job([FunctionSpec(_FUNCTION, _HOME, _holder(setting.state_bytes), _states, (_SOURCE,))])
    clock = BarrierClock(lambda: cluster.now)
    strategy = ForwardingInTurn(_HOLDER, setting.lessees)
    cluster = SimulatedCluster(
        setting.lessees + 1,
        directory,
        lambda _worker, _rng: for_worker(strategy),
        network=Network(hop_delay(costs)),
        service=ServiceTimes(lambda message, _rng: costs.critical_s if message.critical else costs.message_s),
        seed=seed,
        observer=lambda _worker: clock,
        fetch_s=fetching(costs),
    )
    cluster.source(_SOURCE, _HOME, (_FUNCTION,)).play(_emissions(setting, rounds + WARM_UP_ROUNDS, costs))
    cluster.run(max_events=_EVENTS_MAX)
    return outcome(timed_rounds(clock.marks), setting, labels, seed)


def hop_delay(costs: RuntimeCosts) -> Delay:
    """A hop of about the measured length, sometimes longer."""
    return exponential(_MORE_SHARE * costs.hop_s, _LEAST_SHARE * costs.hop_s)


def fetching(costs: RuntimeCosts) -> FetchTime:
    """What it takes the fetcher to take in a message of a barrier, and its sender to have it sent among others."""

    def seconds(message: Message | None, is_awake: bool) -> float:
        assert message is not None, "loads are told with messages only"
        kind = type(message)
        if kind is SyncRequestAck:
            return 0.0  # it comes in the packet of the reply, as these lessees have nothing left to do when they are asked
        if isinstance(message, SyncReply):
            moved = sum(map(len, message.partial.values.values()))
            # What a message takes that comes alone is mostly waking up.
            return (costs.reply_s if is_awake else costs.fetch_s) + moved / costs.state_bytes_per_s
        if kind is SyncRequest or kind is Unsync:
            # The simulator sends to all at once, but a worker to one after the other, in the order of their numbers. That
            # a message is sent later comes to the same as that it is taken in later: its receiver has nothing else to do.
            return costs.fetch_s + (message.worker - _HOME - 1) * costs.send_s
        return costs.fetch_s

    return seconds


def outcome(rounds: Sequence[TimedRound], setting: Setting, labels: Labels, seed: int) -> Outcome:
    """From the rounds of a run, without the first ones."""
    complete = [each for each in rounds if each.lessees == setting.lessees][WARM_UP_ROUNDS:]
    began_s = complete[0].started_s if complete else 0.0
    blocked = ((each.unsynced_s - began_s, each.blocked_ms) for each in complete)
    whole = ((each.unsynced_s - began_s, each.whole_ms) for each in complete)
    latencies = [Latencies.of(BLOCKED, float("inf"), blocked), Latencies.of(WHOLE, float("inf"), whole)]
    return Outcome(labels, seed, latencies, {"rounds": len(complete)})


def assumptions_in_simulation(size: Size, costs: RuntimeCosts) -> list[str]:
    """What both experiments assume."""
    p99_s = (_LEAST_SHARE + 4.6 * _MORE_SHARE) * costs.hop_s
    barriers = (
        f"{ROUNDS[size]:,} barriers, one every {EVERY_S * 1000:g} ms, later if large states move. Each lessee has got one "
        f"message {_ROWS_BEFORE_S * 1000:g} ms before, and is done with it; the lessor gets one just before, which it "
        "finishes first. The paper does not say what its instances had left to do."
    )
    hops = (
        f"A hop takes {costs.hop_s * 1000:.2f} ms in the median and {p99_s * 1000:.2f} ms at the 99th percentile, with the "
        "shape that was measured between two real workers."
    )
    workers = (
        f"A worker takes in one message after the other, {costs.fetch_s * 1e6:.0f} µs each, replies that come meanwhile "
        f"{costs.reply_s * 1e6:.0f} µs each, and partial states at {costs.state_bytes_per_s / 1e6:.0f} MB/s, packing and "
        "combining included. Of several messages at once, each "
        f"leaves {costs.send_s * 1e6:.0f} µs after the one before it. A critical message takes "
        f"{costs.critical_s * 1e6:.0f} µs."
    )
    return [barriers, hops, workers]


def _emissions(setting: Setting, rounds: int, costs: RuntimeCosts) -> Iterator[Emission]:
    every_s = EVERY_S + setting.lessees * setting.state_bytes / costs.state_bytes_per_s
    for number in range(1, rounds + 1):
        barrier_s = number * every_s
        for _ in range(setting.lessees):
            yield barrier_s - _ROWS_BEFORE_S, Output(_FUNCTION, None, barrier_s - _ROWS_BEFORE_S)
        yield barrier_s, Output(_FUNCTION, None, barrier_s)
        yield barrier_s, CriticalOutput(_FUNCTION, number, created=barrier_s)


_HELD = ValueState(bytes, default=b"", combine=max)


def _states() -> States:
    return StateSet({"held": _HELD})


def _holder(state_bytes: int) -> Any:
    content = bytes(state_bytes)
    return lambda states: _Holder(cast(StateSet, states), content)


class _Holder:
    """Writes its state with every message, and gives it up at a barrier."""

    __slots__ = ("_content", "_held")

    def __init__(self, states: StateSet, content: bytes) -> None:
        self._held = states.cell("held")
        self._content = content

    def on_message(self, context: Context, payload: Any) -> None:  # noqa: ARG002
        self._held.set(self._content)

    def on_critical(self, context: Context, critical: CriticalRun) -> None:  # noqa: ARG002
        self._held.set(b"")
