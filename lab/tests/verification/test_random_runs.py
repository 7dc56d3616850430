"""Random runs hold, repeat exactly, count what they met, and catch mistakes."""

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from dirigo.kernel import CriticalOutput, Output
from dirigo.kernel.lessor import Lessor
from dirigo.sim.delay import uniform
from dirigo.sim.network import DeliveryOrder, Network
from dirigo_lab.verification.checker import ViolationError
from dirigo_lab.verification.guided import Freedom
from dirigo_lab.verification.mutants import mutant_named
from dirigo_lab.verification.random.reference import sequential
from dirigo_lab.verification.random.report import RandomReport
from dirigo_lab.verification.random.run import RandomRun, run, run_many
from dirigo_lab.verification.random.world import Mind, RandomActor, RandomWorld

SEEDS = range(60)

# Within how many seeds random runs notice each, with room to spare.
CAUGHT_WITHIN = {
    "cut-off-by-one": 20,
    "forget-forward-cut": 20,
    "lose-a-partial": 20,
    "reply-while-running": 100,
    "drop-early-request": 60,
    "release-unchecked": 20,
    "returns-overtaken": 60,
    "intents-last": 60,
    "stale-grant": 60,
    "old-view": 60,
    "wait-for-the-ended": 60,
    "any-unsync": 400,
}


@pytest.fixture(scope="module")
def report() -> RandomReport:
    return run_many(SEEDS)


def test_random_runs_hold_and_leave_nothing_out(report: RandomReport) -> None:
    assert report.violations == []
    assert report.ok
    assert report.runs == len(SEEDS)
    assert report.unmet == []
    assert report.hollow_runs < len(SEEDS) // 4


def test_the_same_seed_gives_the_same_result() -> None:
    assert [run(seed) for seed in range(8)] == [run(seed) for seed in range(8)]


def test_a_run_is_the_same_in_another_process() -> None:
    """Where strings have other hashes."""
    program = "from dirigo_lab.verification.random.run import run_many; print(run_many(range(8)).to_json())"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert found == {f"{run_many(range(8)).to_json()}\n"}


def test_reports_of_several_processes_add_up(report: RandomReport) -> None:
    halves = [run_many(range(30)), run_many(range(30, 60))]
    sent = [pickle.loads(pickle.dumps(half)) for half in halves]
    assert sent[0] + sent[1] == report
    assert (sent[1] + sent[0]).to_json() == report.to_json()


def test_progress_is_told() -> None:
    told: list[int] = []
    run_many(range(30), told.append)
    assert told == [25, 30]


# --- the guard -----------------------------------------------------------------------------------------------------------


def test_a_report_of_calm_runs_is_hollow() -> None:
    calm = run_many(range(15), calm=True)
    assert calm.violations == []
    assert calm.totals["executed"] > 100
    assert calm.totals["rounds"] > 10
    assert calm.hollow_runs == calm.runs
    assert calm.is_hollow()
    assert not calm.ok
    assert run(0, calm=True).hollow


def test_a_report_of_nothing_is_hollow() -> None:
    assert not RandomReport().ok


# --- mistakes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CAUGHT_WITHIN)
def test_a_mutant_is_caught(name: str) -> None:
    with mutant_named(name).applied(), pytest.raises(ViolationError, match=r"seed \d+: "):
        run_all(CAUGHT_WITHIN[name])


def run_all(count: int) -> None:
    for seed in range(count):
        with suppress(IndexError, KeyError):  # a mistaken kernel may crash as well, which does not count
            run(seed)


def test_a_report_names_the_seeds_that_failed() -> None:
    with mutant_named("merge-twice").applied():
        failed = run_many(range(3))
    assert failed.runs == 3
    assert not failed.ok
    assert [violation.seed for violation in failed.violations] == [0, 1, 2]
    assert str(failed.violations[0]).startswith("seed 0 violates consolidated-state: ")
    assert pickle.loads(pickle.dumps(failed)) == failed


def test_a_crash_is_not_taken_for_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(Lessor, "on_program", crash)
    with pytest.raises(RuntimeError, match="out of order") as caught:
        run(3)
    assert "in the random run with seed 3" in caught.value.__notes__


# --- found here ----------------------------------------------------------------------------------------------------------


def asks_first(seed: int) -> RandomWorld:
    """One source, A and B. At its critical message A asks to run alone, and only then passes the critical message on."""
    return RandomWorld(
        "asks-first",
        "a critical message asks to run alone before its outputs",
        (RandomActor("A", ("B",), upstreams=("s",), alone_in_critical="before"), RandomActor("B", (), upstreams=("A",))),
        {"s": ((CriticalOutput("A", "c1/s"),), (Output("A", "2/s"),))},
        seed=seed,
        workers_count=2,
        placement={"s": 0, "A": 0, "B": 0},
        candidates={"A": (1,), "B": ()},
        sends_to={"s": ("A",)},
        times={"s": (0.0, 0.0)},
        minds=(Mind("chaos"), Mind("chaos")),
        allowed=Freedom(forward={"A": (1,)}),
        network=Network(uniform(0.0, 1.0), order=DeliveryOrder.NONE),
        service=lambda _message, rng: rng.random() * 3.0,
    )


def check(world: RandomWorld) -> None:
    random_run = RandomRun(world)
    random_run.execute()
    random_run.compare(sequential(world))


def test_nothing_overtakes_a_critical_message_that_runs_alone_first() -> None:
    for seed in range(20):
        check(asks_first(seed))


def test_a_critical_message_may_run_alone_after_its_outputs() -> None:
    for seed in range(20):
        world = asks_first(seed)
        first, second = world.random_actors()
        check(replace(world, actors=(replace(first, alone_in_critical="after"), second)))
