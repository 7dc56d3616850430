"""All of it, one thing after the other, and the figures together."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from statistics import median
from tempfile import TemporaryDirectory

from dirigo_lab.bench.recovery.keyed_rows import StateShape
from dirigo_lab.bench.recovery.kills import AwayTimes, Bystander, measure_away, measure_bystander
from dirigo_lab.bench.recovery.local_service import LocalService
from dirigo_lab.bench.recovery.peers.flink import HOW_TO_GET_IT, FlinkPeer
from dirigo_lab.bench.recovery.peers.peer_times import MeasuredPeer, PeerTimes, measure_peer
from dirigo_lab.bench.recovery.peers.started import ending_in_order
from dirigo_lab.bench.recovery.peers.structured_streaming import StructuredStreamingPeer
from dirigo_lab.bench.recovery.steady_costs import (
    LargeState,
    Lateness,
    Throughput,
    measure_large_state,
    measure_lateness,
    measure_throughput,
)
from dirigo_lab.bench.service.structured_streaming import write_bid_files

QUERIES = ("q7", "q12_event")
THROUGHPUT_LEAST = 0.95  # with a snapshot every second over without
LATER_MOST_MS = 10.0  # at p99 and half load
AWAY_MOST_S = {1: 1.0, 100: 1.5, 1000: 3.0}  # median, by megabytes of state
BYSTANDER_MOST = 1.5  # times its p99 while its neighbour is well

Progress = Callable[[str], None]


@dataclass(frozen=True)
class RecoverySizes:
    """How much is measured."""

    states: tuple[tuple[int, int], ...] = ((1, 20), (100, 20), (1000, 20))  # (megabytes, kills)
    events: int = 40_000_000
    repeats: int = 5
    latency_s: float = 20.0
    turns: int = 2
    half: float = 0.5  # of what a query takes from files
    state_mb: int = 1000
    state_s: float = 20.0
    bystander_kills: int = 10
    calm_s: float = 20.0
    has_peers: bool = False
    flink: Path | None = None  # an environment with Flink; None leaves it out

    def with_kills(self, kills: int) -> RecoverySizes:
        """As often with each state, and of the bystander's neighbour."""
        return replace(self, states=tuple((size, kills) for size, _ in self.states), bystander_kills=kills)


QUICK_RECOVERY = RecoverySizes(
    states=((1, 5), (100, 3)),
    events=10_000_000,
    repeats=3,
    latency_s=10.0,
    turns=1,
    state_mb=50,
    state_s=8.0,
    bystander_kills=3,
    calm_s=10.0,
)


@dataclass(frozen=True)
class RecoveryFigures:
    """Everything that was measured of snapshots and recovery."""

    away: tuple[AwayTimes, ...]
    peers: tuple[PeerTimes, ...]
    throughputs: tuple[Throughput, ...]
    latenesses: tuple[Lateness, ...]
    large: tuple[LargeState, ...]
    bystander: Bystander
    load: tuple[float, float]  # of the machine, over the last minute: before and after

    def over_budget(self) -> tuple[str, ...]:
        over = [f"{each.query} with snapshots" for each in self.throughputs if each.ratio < THROUGHPUT_LEAST]
        over += [f"{each.query}'s p99" for each in self.latenesses if each.p99_ms > each.without_p99_ms + LATER_MOST_MS]
        over += [
            f"recovery with {each.state_mb} MB"
            for each in self.away
            if each.medians[2] > AWAY_MOST_S.get(each.state_mb, float("inf"))
        ]
        over += [f"{each.wrong[0]} with {each.state_mb} MB" for each in self.away if each.wrong]
        over += [f"{each.name} with {each.state_mb} MB: {each.wrong[0]}" for each in self.peers if each.wrong]
        if self.bystander.ratio > BYSTANDER_MOST or self.bystander.wrong:
            over.append("the bystander")
        return tuple(over)


def measure_recovery(tell: Progress, sizes: RecoverySizes) -> RecoveryFigures:
    before = os.getloadavg()[0]
    with TemporaryDirectory(prefix="dirigo-bench-") as name:
        folder = Path(name)
        away = [measure_away(tell, folder / f"away-{size}", size, kills) for size, kills in sizes.states]
        peers = measure_peers(tell, folder / "peers", sizes) if sizes.has_peers else ()
        bystander = measure_bystander(tell, folder / "bystander", sizes.bystander_kills, sizes.calm_s)
        tell("writing bids to files")
        bids = write_bid_files(folder / "events", sizes.events)
        throughputs, latenesses = [], []
        with LocalService(folder / "without", 2, None) as without, LocalService(folder / "with", 2, 1.0) as with_them:
            for query in QUERIES:
                found = measure_throughput(tell, without, with_them, query, folder / "events", bids, sizes.repeats)
                throughputs.append(found)
                rate = int(median(found.without) * sizes.half)
                latenesses.append(measure_lateness(tell, without, with_them, query, rate, sizes.latency_s, sizes.turns))
            large = [
                measure_large_state(tell, without, with_them, what, shape, sizes.state_s)
                for what, shape in large_shapes(sizes.state_mb).items()
            ]
    return RecoveryFigures(
        tuple(away), peers, tuple(throughputs), tuple(latenesses), tuple(large), bystander, (before, os.getloadavg()[0])
    )


def measure_peers(tell: Progress, folder: Path, sizes: RecoverySizes) -> tuple[PeerTimes, ...]:
    """With the same states, and killed as often as ours; what one leaves on the disk is gone before the next begins."""
    if sizes.flink is None:
        tell(HOW_TO_GET_IT)
    found = []
    for state_mb, kills in sizes.states:
        peers: list[MeasuredPeer] = [StructuredStreamingPeer(whole_query=whole) for whole in (False, True)]
        if sizes.flink is not None:
            peers.append(FlinkPeer(sizes.flink))
        for peer in peers:
            folder.mkdir()
            with ending_in_order():
                found.append(measure_peer(tell, peer, folder, state_mb, kills))
            rmtree(folder, ignore_errors=True)
    return tuple(found)


def large_shapes(state_mb: int) -> dict[str, StateShape]:
    """States of which a hundredth changes per second: of all keys in turn, and of the same few keys all the time."""
    keys = state_mb * 1_000_000 // 10_000
    per_s = max(1, keys // 100)
    few = state_mb * 1_000_000 // 200_000  # keys of 200 kB, so that those that change lie in few of the 64 actors
    return {
        "all keys in turn, 4 actors": StateShape(keys, 10_000, per_s),
        "the same 1 % of the keys, 64 actors": StateShape(few, 200_000, max(1, few // 100), max(1, few // 100), 64),
    }
