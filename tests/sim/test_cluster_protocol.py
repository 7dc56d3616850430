"""Whatever the network does and whatever the strategies choose, the job's results are those of a sequential run."""

from collections.abc import Callable

import pytest

from dirigo.errors import DirigoError
from dirigo.kernel.barrier import Upstream
from dirigo.kernel.instance import Instance
from dirigo.kernel.lessee import Lessee
from dirigo.sim.delay import exponential, pareto, uniform
from dirigo.sim.network import DeliveryOrder, Network
from sim.cluster_jobs import HOMES, LEDGER, RELAY, Run, chaotic_run

SEEDS = range(12)
NETWORKS: dict[str, Callable[[], Network]] = {
    "in step": lambda: Network(0.0),
    "ordered": lambda: Network(0.005),
    "ordered, uneven": lambda: Network(pareto(0.001, 1.1, most_s=1.0), local=exponential(0.001)),
    "unordered ties": lambda: Network(0.0, order=DeliveryOrder.NONE),
    "unordered": lambda: Network(uniform(0.0, 0.03), local=uniform(0.0, 0.01), order=DeliveryOrder.NONE),
    "unordered, uneven": lambda: Network(
        pareto(0.0005, 0.8, most_s=2.0), local=pareto(0.0005, 0.8), order=DeliveryOrder.NONE
    ),
    "one slow link": lambda: Network(0.001, links={(1, 2): 0.1, (2, 1): 0.05}, order=DeliveryOrder.NONE),
}


def check(run: Run) -> None:
    """Run, and compare with the sequential fold."""
    run.cluster.run(max_events=100_000)
    assert run.cluster.unfinished() == []
    assert run.entries(RELAY) == run.expected()
    assert run.entries(LEDGER) == run.expected()
    for worker in run.cluster.workers.values():
        for address, participant in worker.participants.items():
            if isinstance(participant, Instance) and HOMES[address] != worker.id:
                assert participant.states.is_identity(), f"{participant.name} still has a part of the state"


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_results_are_those_of_a_sequential_run(network: Callable[[], Network]) -> None:
    leased = 0
    for seed in SEEDS:
        run = chaotic_run(seed, network())
        check(run)
        leased += sum(len(worker.participants) for worker in run.cluster.workers.values()) - len(HOMES)
    assert leased > len(SEEDS), "the strategies forwarded next to nothing, so this test shows nothing"


@pytest.mark.parametrize("order", DeliveryOrder)
def test_control_messages_that_come_twice_do_no_harm(order: DeliveryOrder) -> None:
    for seed in SEEDS:
        run = chaotic_run(seed, Network(uniform(0.0, 0.02), order=order, duplicates=0.5), scale_ins=3)
        check(run)
        assert run.cluster.metrics.duplicates > 20


@pytest.mark.parametrize("order", DeliveryOrder)
def test_scaling_in_changes_no_result(order: DeliveryOrder) -> None:
    for seed in SEEDS:
        check(chaotic_run(seed, Network(uniform(0.0, 0.02), order=order), scale_ins=8))


@pytest.mark.parametrize("order", DeliveryOrder)
def test_barriers_of_all_sources_and_of_one_do_not_wait_for_each_other(order: DeliveryOrder) -> None:
    for seed in SEEDS:
        check(chaotic_run(seed, Network(uniform(0.0, 0.02), order=order), barriers=4))


def test_clogs_and_freezes_change_no_result() -> None:
    for seed in SEEDS:
        network = Network(exponential(0.002), order=DeliveryOrder.NONE)
        run = chaotic_run(seed, network)
        rng = run.cluster.rng("faults")
        for _ in range(4):
            begin = rng.random() * 0.2
            network.clog((rng.randrange(5), rng.randrange(5)), begin, begin + 0.1)
            network.clog(rng.randrange(5), begin, begin + 0.02)
            run.cluster.freeze(rng.randrange(5), begin, begin + 0.05)
        run.cluster.slow(3, 20.0)
        check(run)


def test_a_kernel_that_ignores_its_cuts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Upstream, "is_pending", lambda *_: False)
    assert failures() > len(SEEDS) // 2


def test_a_kernel_that_replies_while_a_message_runs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What applying user code at the end of its service time is for."""
    original = Lessee._is_drained

    def is_drained_too_early(lessee: Lessee) -> bool:
        running, lessee.running = lessee.running, None
        counted = lessee._channel_of(running) if running is not None else None  # type: ignore[arg-type]
        if counted is not None:
            counted.done += 1
        try:
            return original(lessee)
        finally:
            lessee.running = running
            if counted is not None:
                counted.done -= 1

    monkeypatch.setattr(Lessee, "_is_drained", is_drained_too_early)
    assert failures() > 0


def failures() -> int:
    failed = 0
    for seed in SEEDS:
        try:
            check(chaotic_run(seed, Network(uniform(0.0, 0.02), order=DeliveryOrder.NONE)))
        except (AssertionError, DirigoError):
            failed += 1
    return failed


def test_an_error_names_the_seed_and_the_time() -> None:
    run = chaotic_run(7, Network())

    def fail() -> None:
        raise RuntimeError("user code failed")

    run.cluster.at(0.05, fail)
    with pytest.raises(RuntimeError) as caught:
        run.cluster.run()
    assert "seed 7, at t=0.05" in caught.value.__notes__[0]
