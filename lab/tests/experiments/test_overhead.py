"""What barriers cost: in the simulator, where the direction of each claim must show, and on workers that are processes."""

from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from dirigo.kernel import Data, Output, WorkerId
from dirigo.kernel.interface.message import SyncReply
from dirigo.scheduling import Fifo
from dirigo.sim.cluster import SimulatedCluster
from dirigo.sim.network import Network
from dirigo.state import Partial
from dirigo_lab.experiments.experiment import Scale, Size
from dirigo_lab.experiments.overhead.barrier import BLOCKED, ROUNDS, WHOLE, Setting, fetching, hop_delay
from dirigo_lab.experiments.overhead.lessees import OverheadLessees
from dirigo_lab.experiments.overhead.on_spark import run_on_spark
from dirigo_lab.experiments.overhead.state import OverheadState
from experiments.plain_summary import COSTS, simulated
from runtime.clusters import LocalCluster
from sim.cluster_jobs import HOMES, RELAY, WORKERS, A, B, directory

LESSEES, STATE = OverheadLessees(), OverheadState()


def test_more_lessees_take_longer_but_far_less_than_a_lax_objective() -> None:
    summary = simulated(LESSEES)
    claims = {claim.text: claim for claim in LESSEES.claims(Scale.PAPER, summary)}
    assert claims["a barrier takes less than a tenth of a lax objective"].holds
    assert claims["with 32 and 64 lessees it takes longer, in milliseconds"].holds
    medians = [row["p50"] for row in summary.all(job=BLOCKED)]
    assert medians == sorted(medians)
    assert medians[4] < 2 * medians[0]  # 16 lessees
    contradicted = [claim for claim in claims.values() if not claim.holds]
    assert [claim.text for claim in contradicted] == [
        "up to 16 lessees a barrier takes about as long as with one",
        "with 32 and 64 lessees it takes longer, by a share",
    ]
    assert all(claim.why for claim in contradicted)
    assert all(row.results == ROUNDS[Size.TINY] for row in summary.all(job=WHOLE))


def test_what_a_user_feels_begins_before_the_lessor_is_blocked() -> None:
    outcome = LESSEES.simulate({"lessees": 4}, 0, Size.TINY, COSTS)
    blocked, whole = outcome.latencies
    assert (blocked.job, whole.job) == (BLOCKED, WHOLE)
    # The lessor runs a message when the barrier comes.
    assert np.allclose(whole.latency_ms - blocked.latency_ms, COSTS.message_s * 1000)


def test_large_states_take_longer_and_small_ones_do_not() -> None:
    summary = simulated(STATE)
    claims = {claim.text: claim for claim in STATE.claims(Scale.PAPER, summary)}
    assert claims["up to 64 KB a barrier hardly depends on the size of the states"].holds
    assert claims["in milliseconds, large states cost no more than there"].holds
    medians = {row.labels["state_kb"]: row["p50"] for row in summary.all(job=BLOCKED)}
    assert medians[4] < 1.1 * medians[1]
    assert medians[4096] > 5 * medians[512] > 5 * medians[64]


@pytest.mark.parametrize("experiment", [LESSEES, STATE])
def test_a_seed_repeats_itself_and_another_one_differs(experiment: OverheadLessees | OverheadState) -> None:
    labels = experiment.settings(Scale.PAPER, Size.TINY)[1]
    first, again, other = (experiment.simulate(labels, seed, Size.TINY, COSTS).latencies[0].latency_ms for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_hop_takes_what_was_measured_in_the_median() -> None:
    delay, rng = hop_delay(COSTS), Random(0)
    assert np.median([delay(rng) for _ in range(10_000)]) == pytest.approx(COSTS.hop_s, rel=0.02)


def test_a_partial_state_takes_the_fetcher_its_bytes() -> None:
    reply = SyncReply("job/sum/0", 0, 1, 1, Partial({"held": bytes(1_000_000)}), (), 0)
    assert fetching(COSTS)(reply, False) == pytest.approx(COSTS.fetch_s + 0.004)
    assert fetching(COSTS)(reply, True) == pytest.approx(COSTS.reply_s + 0.004)


def test_what_arrives_first_is_taken_in_first() -> None:
    """In the simulator, where a function says what taking in costs: a slow way does not hold up those who come after it."""
    delivered: list[tuple[float, Any]] = []

    def trace(now: float, what: str, worker: WorkerId, message: Any) -> None:
        if what == "deliver" and worker == HOMES[RELAY]:
            delivered.append((round(now, 6), message.payload))

    network = Network(links={(HOMES[A], HOMES[RELAY]): 1.0, (HOMES[B], HOMES[RELAY]): 0.1})
    fetch_s = {("a", 1): 0.2, ("b", 2): 0.3, ("b", 3): 0.3}
    cluster = SimulatedCluster(
        WORKERS,
        directory((A, B)),
        lambda *_: Fifo(),
        network=network,
        trace=trace,
        fetch_s=lambda message, _is_awake: fetch_s[cast(Data, message).payload],
    )
    cluster.source(A, HOMES[A], (RELAY,)).emit_at(0.0, Output(RELAY, ("a", 1)))
    later = cluster.source(B, HOMES[B], (RELAY,))
    later.emit_at(0.1, Output(RELAY, ("b", 2)))
    later.emit_at(0.1, Output(RELAY, ("b", 3)))
    cluster.run(until=2.0)
    assert delivered == [(0.5, ("b", 2)), (0.8, ("b", 3)), (1.2, ("a", 1))]


def test_barriers_are_timed_on_real_workers(tmp_path: Path) -> None:
    rounds = 5
    with LocalCluster(tmp_path, 3) as cluster:
        outcome = run_on_spark(cluster, Setting(2, 1024), rounds, {"lessees": 2}, 7)
    blocked, whole = outcome.latencies
    assert 0 < outcome.figures["rounds"] <= rounds
    assert len(blocked.latency_ms) == len(whole.latency_ms) == outcome.figures["rounds"]
    assert (blocked.latency_ms > 0).all()
    assert (whole.latency_ms >= blocked.latency_ms).all()
