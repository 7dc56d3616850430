"""Runs over processes: in order, repeatable, and with a name for what fails."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dirigo_lab.experiments import runner
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Experiment, Labels, Outcome, Scale, Size
from dirigo_lab.experiments.registry import EXPERIMENTS, UnknownExperimentError, experiment_named
from dirigo_lab.experiments.runner import RunError, _ctrl_c_later, run, simulations
from experiments.pretended import COSTS, Borrowing, Endless, Failing, Pretended, Vanishing, outcome_of

SEEDS = (0, 1, 2)


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    others = set(multiprocessing.active_children())  # of a cluster that other tests share
    yield
    assert set(multiprocessing.active_children()) <= others


@pytest.fixture(autouse=True)
def nobody_steals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other guests of the machine must not have runs repeated here."""
    monkeypatch.setattr(runner, "stolen_s", lambda: 0.0)


def simulated(experiment: Experiment, *seeds: int, processes: int = 2, **options: Any) -> list[Outcome]:
    return run(experiment, Scale.PAPER, Size.QUICK, seeds, COSTS, processes=processes, **options)


def all_latencies(outcomes: list[Outcome]) -> list[list[float]]:
    return [latencies.latency_ms.tolist() for outcome in outcomes for latencies in outcome.latencies]


def test_outcomes_come_in_the_order_of_settings_and_seeds_and_progress_is_told() -> None:
    told: list[tuple[int, int, str]] = []
    outcomes = simulated(Pretended(), *SEEDS, progress=lambda *news: told.append(news))
    settings = Pretended().settings(Scale.PAPER, Size.QUICK)
    assert [(outcome.labels, outcome.seed) for outcome in outcomes] == [(each, seed) for each in settings for seed in SEEDS]
    assert [done for done, _, _ in told] == list(range(13))
    assert {total for _, total, _ in told} == {12}
    assert {text for _, _, text in told[1:]} == {
        f"strategy {name}, workers {workers}, load 0.5" for name in ("fifo", "reject_send") for workers in (2, 8)
    }


def test_a_seed_repeats_exactly_whatever_else_runs() -> None:
    alone = simulated(Pretended(), 1, processes=1)
    beside = [outcome for outcome in simulated(Pretended(), 0, 1) if outcome.seed == 1]
    assert all_latencies(alone) == all_latencies(beside)
    assert not np.array_equal(alone[0].latencies[0].latency_ms, alone[1].latencies[0].latency_ms)


def test_the_setting_that_failed_is_named_and_no_process_is_left() -> None:
    with pytest.raises(RunError) as raised:
        simulated(Failing(), 4)
    sentence = "failing (strategy fifo, workers 2, load 0.5; seed 4) failed: ZeroDivisionError: 1 by nothing"
    assert str(raised.value) == sentence
    assert "in simulate" in raised.value.details


@pytest.mark.parametrize(
    ("broken", "why"), [(Failing(), "ZeroDivisionError"), (Vanishing(), "lost its process; perhaps memory was short")]
)
def test_an_experiment_that_fails_takes_no_other_with_it(broken: Experiment, why: str) -> None:
    told: list[tuple[int, int, str]] = []
    with simulations(2) as begun:
        for experiment in (broken, Pretended()):
            begun.begin(experiment, Size.QUICK, SEEDS, COSTS)
        with pytest.raises(RunError, match=why):
            begun.outcomes(broken, lambda *_: None)
        outcomes = begun.outcomes(Pretended(), lambda *news: told.append(news))
    assert all_latencies(outcomes) == all_latencies(simulated(Pretended(), *SEEDS))
    assert told[-1][:2] == (12, 12)


@pytest.mark.parametrize(("other", "is_borrowed"), [(Pretended(), True), (Vanishing(), False)])
def test_a_run_that_another_experiment_has_made_is_not_made_again(other: Experiment, is_borrowed: bool) -> None:
    borrowing = Borrowing(other.name)
    with simulations(2) as begun:
        for experiment in (other, borrowing):
            begun.begin(experiment, Size.QUICK, SEEDS, COSTS)
        with nullcontext() if is_borrowed else pytest.raises(RunError):
            begun.outcomes(other, lambda *_: None)
        outcomes = begun.outcomes(borrowing, lambda *_: None)
    settings = borrowing.settings(Scale.PAPER, Size.QUICK)
    assert [(outcome.labels, outcome.seed) for outcome in outcomes] == [(each, seed) for each in settings for seed in SEEDS]
    assert all_latencies(outcomes) == all_latencies(simulated(Pretended(), *SEEDS))
    borrowed = [outcome.labels for outcome in outcomes if "own" not in outcome.figures]
    assert borrowed == ([settings[-1]] * len(SEEDS) if is_borrowed else [])


def test_a_run_that_failed_fails_whoever_wants_it() -> None:
    with simulations(2) as begun:
        for experiment in (Failing(), Borrowing("failing")):
            begun.begin(experiment, Size.QUICK, SEEDS, COSTS)
        for experiment in (Failing(), Borrowing()):
            with pytest.raises(RunError, match=r"failing \(strategy fifo.*ZeroDivisionError"):
                begun.outcomes(experiment, lambda *_: None)


def test_without_the_other_experiment_all_runs_are_made() -> None:
    assert all("own" in outcome.figures for outcome in simulated(Borrowing(), *SEEDS))


def test_what_hybrid_borrows_is_there_and_is_the_others_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    hybrid = EXPERIMENTS["hybrid"]
    others = [hybrid.same_as(labels, Size.FULL) for labels in hybrid.settings(Scale.PAPER, Size.FULL)]
    borrowed = [other for other in others if other is not None]
    assert [name for name, _ in borrowed] == ["skew", "transient"]
    assert all(labels in EXPERIMENTS[name].settings(Scale.PAPER, Size.FULL) for name, labels in borrowed)
    made = outcome_of({"strategy": "fifo", "workers": 2, "load": 0.5}, 5)
    asked: list[tuple[Any, ...]] = []

    def simulate(_: Experiment, *task: Any) -> Outcome:
        asked.append(task)
        return made

    for name, _ in borrowed:
        monkeypatch.setattr(type(EXPERIMENTS[name]), "simulate", simulate)
    for labels, other in zip(hybrid.settings(Scale.PAPER, Size.FULL), others, strict=True):
        if other is not None:
            assert hybrid.simulate(labels, 5, Size.FULL, COSTS) == replace(made, labels=labels)
            assert asked.pop() == (other[1], 5, Size.FULL, COSTS)


def test_an_interrupt_ends_runs_that_would_take_long() -> None:
    began = time.monotonic()
    others = set(multiprocessing.active_children())
    running = threading.Event()

    def interrupted(done: int, total: int, setting: str) -> None:
        assert set(multiprocessing.active_children()) - others
        running.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulated(Endless(), 0, progress=interrupted)
    assert running.is_set()
    assert time.monotonic() - began < 300  # half of what one of them takes


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Whatever runs in the background of a shell ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def other_thread() -> Iterator[threading.Thread]:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield thread
    over.set()
    thread.join()


def test_ctrl_c_waits_until_all_processes_are_started_whatever_thread_takes_it(
    interruptible: None, other_thread: threading.Thread
) -> None:
    assert other_thread.ident is not None
    steps = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with _ctrl_c_later():
            signal.pthread_kill(other_thread.ident, signal.SIGINT)
            time.sleep(0.1)
            assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())  # as processes would inherit it
            steps.append("started")
        steps.append("went on")
    assert steps == ["started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


class PretendedCluster:
    def __init__(self) -> None:
        self.runs: list[tuple[int, str, int]] = []


def test_on_a_cluster_settings_alternate_and_outcomes_are_in_order_all_the_same() -> None:
    cluster = PretendedCluster()
    told: list[tuple[int, int, str]] = []
    outcomes = run(
        Pretended(), Scale.MACHINE, Size.QUICK, (0, 1), COSTS, cluster=cluster, progress=lambda *news: told.append(news)
    )
    once = [("reject_send", 8), ("reject_send", 2), ("fifo", 8), ("fifo", 2)]
    assert cluster.runs == [(seed, *setting) for seed in (0, 1) for setting in once]
    found = [(outcome.labels["strategy"], outcome.labels["workers"], outcome.seed) for outcome in outcomes]
    assert found == [(*setting, seed) for setting in once for seed in (0, 1)]
    assert told[0] == (0, 8, "strategy reject_send, workers 8, load 0.5")
    assert told[-1] == (8, 8, "")


def test_settings_of_a_cluster_that_are_simulated_go_by_the_costs_that_are_given() -> None:
    given: list[RuntimeCosts] = []

    class Both(Pretended):
        def is_simulated(self, scale: Scale, labels: Labels) -> bool:
            return labels["workers"] == 2

        def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
            given.append(costs)
            return outcome_of(labels, seed)

    cluster = PretendedCluster()
    run(Both(), Scale.MACHINE, Size.QUICK, (0,), COSTS, cluster=cluster)
    assert given == [COSTS, COSTS]
    assert {workers for _, _, workers in cluster.runs} == {8}


def test_on_a_cluster_too_the_setting_that_failed_is_named() -> None:
    class Broken(Pretended):
        def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
            raise OSError("no more of it")

    with pytest.raises(
        RunError, match=r"pretended \(strategy reject_send, workers 8, load 0.5; seed 7\) failed: OSError: no"
    ):
        run(Broken(), Scale.MACHINE, Size.QUICK, (7,), COSTS, cluster=PretendedCluster())


def test_what_ran_on_a_cluster_before_a_failure_is_kept() -> None:
    class Short(Pretended):
        def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
            if labels["strategy"] == "fifo":
                raise OSError("no more of it")
            return super().run_on_spark(cluster, labels, seed, size)

    kept: list[Sequence[Outcome]] = []
    with pytest.raises(RunError):
        run(Short(), Scale.MACHINE, Size.QUICK, (7,), COSTS, cluster=PretendedCluster(), kept=kept.append)
    assert [[outcome.labels["workers"] for outcome in each] for each in kept] == [[8], [8, 2]]


def test_an_experiment_for_the_simulator_only_starts_no_spark() -> None:
    with pytest.raises(RunError, match="failing runs in the simulator only"):
        run(Failing(), Scale.MACHINE, Size.QUICK, (0,), COSTS)


def test_an_unknown_name_gives_the_nearest_and_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(EXPERIMENTS):
        monkeypatch.delitem(EXPERIMENTS, name)
    experiments = {"skew": Pretended(), "span": Failing()}
    for name, experiment in experiments.items():
        monkeypatch.setitem(EXPERIMENTS, name, experiment)
    assert experiment_named("span") is experiments["span"]
    with pytest.raises(UnknownExperimentError) as raised:
        experiment_named("skw")
    assert str(raised.value) == "there is no experiment 'skw'; did you mean 'skew'? All of them: skew, span."
    with pytest.raises(UnknownExperimentError, match=r"'0000'; all of them: skew, span\."):
        experiment_named("0000")


@pytest.mark.parametrize(
    ("stolen", "tries", "kept"),
    [
        ([0.0], 1, 0),
        ([0.04], 1, 0),
        ([0.3, 0.01], 2, 1),
        ([0.3, 0.1, 0.2], 3, 1),  # enough is enough
    ],
)
def test_a_run_on_spark_is_repeated_while_others_take_the_cores(
    monkeypatch: pytest.MonkeyPatch, stolen: list[float], tries: int, kept: int
) -> None:
    """Each run takes a second of all cores, of which so much is stolen."""
    cores = os.cpu_count() or 1
    now, taken = [0.0], [0.0]
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(runner, "stolen_s", lambda: taken[0])
    runs: list[int] = []

    class Disturbed(Pretended):
        def settings(self, scale: Scale, size: Size) -> list[Labels]:
            return super().settings(scale, size)[:1]

        def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
            now[0] += 1.0
            taken[0] += stolen[len(runs)] * cores
            runs.append(len(runs))
            return replace(super().run_on_spark(cluster, labels, seed, size), figures={"run": runs[-1]})

    (outcome,) = run(Disturbed(), Scale.MACHINE, Size.QUICK, (0,), COSTS, cluster=PretendedCluster())
    assert len(runs) == tries
    assert outcome.figures["run"] == kept
    assert outcome.figures["tries"] == tries
    assert outcome.figures["stolen"] == pytest.approx(stolen[kept])
