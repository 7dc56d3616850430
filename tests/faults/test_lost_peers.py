"""Two workers lose each other, more than once: it is said each time, and no job across the pair waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from dirigo.runtime.client.job import Job
from dirigo.runtime.control import Member
from dirigo.runtime.errors import JobFailed
from dirigo.runtime.transport.keys import WORKER, KeyPair, KeyRing
from dirigo.runtime.transport.payload import Schemas
from dirigo.runtime.transport.peers import CONTROL, LOST_AFTER_S, REPORT_AGAIN_S, Peers
from dirigo.runtime.transport.wire import FORMAT, PacketHead, Pressure
from faults.impatient import run_impatient_worker
from faults.proxied import ProxiedCluster
from runtime.clusters import PATIENCE_S, counting, until

OTHER = 1
TEND_S = 0.02
WAYS = [f"to worker {worker} {lane}" for worker in (0, 1) for lane in ("control", "data")]


class Place:
    """A worker with one peer that hears nothing, and a clock of its own."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.now = 100.0
        self.peers = Peers(context, KeyRing().keys_of(WORKER), 0, Schemas(), lambda: self.now)
        self.peers.incarnation = 1
        self.peers.set_members([Member(OTHER, 1, "tcp://127.0.0.1:1", "tcp://127.0.0.1:1", KeyPair.new().public)])
        self.reports: list[float] = []

    def send(self) -> None:
        self.peers.send_pressure(Pressure("job~1", 0, 0, 0, None), [OTHER])

    def acknowledge(self, number: int) -> None:
        head = PacketHead(FORMAT, OTHER, 1, 0, 1, 0, (number, 0), False, (0.0, 0.0), (), ())
        assert self.peers.accept(CONTROL, head, 0) == ""

    def tend_for(self, seconds: float) -> int:
        """How often the peer was said to be out of reach meanwhile."""
        before = len(self.reports)
        for _ in range(round(seconds / TEND_S)):
            self.now += TEND_S
            self.reports += [self.now for _ in self.peers.tend()]
        return len(self.reports) - before


@pytest.fixture
def place() -> Iterator[Place]:
    with zmq.Context() as context:
        made = Place(context)
        yield made
        made.peers.close()


def test_a_peer_that_is_lost_again_is_reported_again(place: Place) -> None:
    assert place.tend_for(2 * LOST_AFTER_S) == 0  # nothing was sent
    for number in (1, 2, 3):
        place.send()
        assert place.tend_for(LOST_AFTER_S - 1.0) == 0
        assert place.tend_for(2.0) == 1
        place.acknowledge(number)
        assert place.tend_for(2 * LOST_AFTER_S) == 0  # it is back


def test_a_peer_that_stays_lost_is_reported_on_and_on_for_jobs_that_come_later(place: Place) -> None:
    place.send()
    assert place.tend_for(LOST_AFTER_S + 0.5) == 1
    assert place.tend_for(4 * REPORT_AGAIN_S) == 4


@pytest.mark.acceptance
def test_jobs_across_a_pair_that_is_broken_twice_fail_each_time(tmp_path: Path) -> None:
    with ProxiedCluster(tmp_path, run=run_impatient_worker) as cluster:
        proxy = cluster.proxy

        def running(name: str) -> Job:
            """A job that runs, as soon as the workers have found each other again."""
            for number in range(10):
                flow, out = counting(f"{name}.{number}", rows=None)
                handle = cluster.submit(flow)
                until(lambda out=out, handle=handle: out.rows or handle.status().state == "failed", "it runs")  # type: ignore[misc]
                if out.rows:
                    return handle
            raise AssertionError("the workers do not find each other")

        for attempt in (1, 2):
            handle = running(f"attempt{attempt}")
            for way in WAYS:
                proxy.close_for(way)
            proxy.cut(proxy.connections("to worker"))
            with pytest.raises(JobFailed, match=r"worker \d cannot reach worker \d; see that .*, and submit the job again"):
                handle.wait(PATIENCE_S)
            if attempt == 2:  # it is still broken
                late = cluster.submit(counting("late", rows=None)[0])
                with pytest.raises(JobFailed, match=r"worker \d cannot reach worker \d; .*, and submit the job again"):
                    late.wait(PATIENCE_S)
            for way in WAYS:
                proxy.open_for(way)
        running("afterwards").cancel()
