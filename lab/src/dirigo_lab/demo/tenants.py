"""Two tenants of one pool: one for whom every result is urgent, and one with much to do and a key that is hot.

What their messages take is emulated, so that a pool of several workers means something on a machine with two cores: a bid
costs so many milliseconds of a worker's time, in which it sleeps, or computes if it is told to. Everything else is real.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from dirigo import SLO, Dataflow, shaped, to_nothing, to_parquet
from dirigo.flow.errors import FlowError
from dirigo.flow.sources import Source
from dirigo.flow.sources import load_shapes as loads
from dirigo.flow.sources.load_shapes import Load
from dirigo.nexmark import sources
from dirigo_lab.nexmark.queries import QUERIES

BID_MS = 3.0
CPU_BID_MS = 6.0  # enough that what the runtime itself computes for a bid, on the same cores, does not matter much


@dataclass(frozen=True)
class Tenant:
    """A Nexmark query over bids, with a load, an objective and what a bid costs."""

    query: str
    bids_per_s: float
    bid_ms: float  # of a worker's time
    latency_ms: int
    splits: int
    window_bids: int  # how many bids fall into the 10 s of a window: event time passes as quickly as bids come
    works_at: str  # the operator whose messages cost that much
    throughput: float | None = None  # an objective as well
    load: str = "pareto"  # or constant
    alpha: float = 2.5
    burst_every: str = "500ms"
    seed: int = 0
    cpu: bool = False
    partitions: int = 4

    def at(self, factor: float) -> Tenant:
        """The same with so many times the load."""
        return replace(self, bids_per_s=self.bids_per_s * factor)

    @property
    def rate(self) -> int:
        """Events per second of event time."""
        return max(1, round(self.window_bids / 10 * 50 / 46))

    def events(self, seconds: float) -> int:
        """As many events as hold the bids of this time."""
        return round(self.bids_per_s * seconds * 50 / 46)

    def utilisation(self, workers: int) -> float:
        """Which share of a pool it needs on average."""
        return self.bids_per_s * self.bid_ms / 1000 / workers

    def flow(self, seconds: float, out: Path | None = None, *, is_shaped: bool = True) -> Dataflow:
        """Its query over the bids of so many seconds, released along its load or, if not shaped, as they are read."""
        slo = SLO(latency=f"{self.latency_ms}ms", throughput=self.throughput)
        flow = Dataflow(
            self.query, slo=slo, splits=self.splits, partitions=self.partitions, combines_early=self.works_at == "bids"
        )
        rows = QUERIES[self.query].function(flow, _Bids(self, self.events(seconds), is_shaped))
        rows.sink(to_nothing() if out is None else to_parquet(out / self.query, mode="overwrite"))
        flow.emulate(self._operator(flow), per_row=f"{round(self.bid_ms * 1000)}us", cpu=self.cpu)
        return flow

    def _operator(self, flow: Dataflow) -> str:
        return next(node.name for node in flow.nodes if node.name.startswith(self.works_at))

    def shape(self) -> Load:
        if self.load == "constant":
            return loads.constant(self.bids_per_s)
        return loads.pareto(self.bids_per_s, self.alpha, every=self.burst_every, seed=self.seed)


class _Bids:
    """Bids released along a tenant's load; its query reads nothing else."""

    def __init__(self, tenant: Tenant, events: int, is_shaped: bool) -> None:
        self._tenant = tenant
        self._events = events
        self._is_shaped = is_shaped

    def bids(self, *columns: str) -> Source:
        # Small blocks, so that the splits move through event time together although bids come slowly.
        bids = sources.bids(self._events, self._tenant.rate, columns or None, block_events=50)
        return shaped(bids, self._tenant.shape()) if self._is_shaped else bids

    def persons(self, *_columns: str) -> Source:
        raise self._no_others()

    def auctions(self, *_columns: str) -> Source:
        raise self._no_others()

    def _no_others(self) -> FlowError:
        return FlowError(f"a tenant reads bids only, but {self._tenant.query} reads more; choose another query.")


def urgent(workers: int, *, cpu: bool = False) -> Tenant:
    """q7: the highest bids of every window, due within an objective that ``dirigo slo calibrate`` gave."""
    bid_ms = CPU_BID_MS if cpu else BID_MS
    share = 0.25
    rate = share * workers * 1000 / bid_ms
    return Tenant("q7", rate, bid_ms, 150, workers, round(138 / bid_ms) * workers, "bids", cpu=cpu, seed=7)


def bulk(workers: int, *, cpu: bool = False) -> Tenant:
    """q12_event: bids per bidder; three of four bids are by one bidder, who is another one every few seconds."""
    bid_ms = CPU_BID_MS if cpu else BID_MS
    share = 0.35
    rate = share * workers * 1000 / bid_ms
    return Tenant("q12_event", rate, bid_ms, 2_000, 1, round(345 * workers / bid_ms), "aggregate", cpu=cpu, seed=12)
