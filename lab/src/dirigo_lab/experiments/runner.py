"""Runs all settings of an experiment over all seeds: in the simulator on all cores, or on one cluster on Spark.

What comes back is in the order of the settings, and of the seeds within each, whatever ended first. A run that fails is
named, and ends the others. However this ends, no process that it started is left.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from dirigo.errors import DirigoError
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.costs.stolen_time import stolen_s
from dirigo_lab.experiments.experiment import Experiment, Labels, Outcome, Scale, Size
from dirigo_lab.experiments.registry import experiment_named

_STOLEN_MOST = 0.05  # of all cores, by other guests of the machine, before a run on Spark is repeated
_TRIES_MOST = 3

Kept = Callable[[Sequence[Outcome]], None]
Progress = Callable[[int, int, str], None]  # runs done, runs in all, and the setting of which this tells


class RunError(DirigoError):
    """A run failed: which, and why. ``details``: a traceback, if the reason is not one that we foresaw."""

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(sentence, details)  # both, or it could not come from another process
        self.details = details

    def __str__(self) -> str:
        return str(self.args[0])


def run(
    experiment: Experiment,
    scale: Scale,
    size: Size,
    seeds: Sequence[int],
    costs: RuntimeCosts,
    *,
    progress: Progress | None = None,
    processes: int | None = None,
    cluster: Any = None,
    kept: Kept | None = None,
) -> list[Outcome]:
    """All runs of an experiment.

    ``processes``: of the simulator, by default one per core. ``cluster``: one whose workers are ready, if there is one.
    ``kept``: given what there is after each run on Spark, since all of them take long.
    """
    told, keep = progress or _silent, kept or _forget
    if scale is Scale.PAPER:
        with simulations(processes) as begun:
            begun.begin(experiment, size, seeds, costs)
            return begun.outcomes(experiment, told)
    if cluster is not None:
        return _on_cluster(cluster, experiment, size, seeds, costs, told, keep)
    if experiment.spark_workers is None:
        raise RunError(f"{experiment.name} runs in the simulator only.")
    from dirigo.spark.cluster import Cluster

    with Cluster(experiment.spark_workers) as own:
        own.wait_ready()
        return _on_cluster(own, experiment, size, seeds, costs, told, keep)


def label_text(labels: Labels) -> str:
    """A setting, for people."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in labels.items()
    )


# --- in the simulator ------------------------------------------------------------------------------------------------------


class Simulations:
    """Runs of several experiments, on the same processes: the next one begins while the last runs of one are not over."""

    def __init__(self, processes: int | None = None) -> None:
        """``processes``: by default one per core."""
        self._processes = processes or os.cpu_count() or 1
        self._pool: ProcessPoolExecutor | None = None
        self._begun: dict[str, list[_Run]] = {}  # of each experiment that nobody has asked for yet
        self._all: dict[tuple[Any, ...], _Run] = {}  # of all experiments, by what makes a run what it is

    def begin(self, experiment: Experiment, size: Size, seeds: Sequence[int], costs: RuntimeCosts) -> None:
        """All settings over all seeds, after what was begun before."""
        # An experiment that is not in the registry from the start is put there when its module is imported.
        module = type(experiment).__module__
        runs = self._begun[experiment.name] = [
            _Run((module, experiment.name, dict(labels), seed, size, costs))
            for labels in experiment.settings(Scale.PAPER, size)
            for seed in seeds
        ]
        for run in runs:
            other = experiment.same_as(run.labels, size)
            _, name, labels, seed, _, _ = run.task
            run.same = None if other is None else self._all.get(_key(*other, seed, size, costs))
            self._all[_key(name, labels, seed, size, costs)] = run
        self._submit([run for run in runs if run.same is None])

    def outcomes(self, experiment: Experiment, told: Progress) -> list[Outcome]:
        """Wait for all runs of an experiment. If one fails, the others that have not begun do not."""
        runs = self._begun.pop(experiment.name)
        alone = [run for run in runs if run.same is not None and run.is_lost]
        for run in alone:
            run.same = None
        self._submit(alone)
        pending = {run.future: run for run in runs}
        told(0, len(runs), "")
        try:
            while pending:
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    run = pending.pop(future)
                    self._wait_for(run)
                    told(len(runs) - len(pending), len(runs), label_text(run.labels))
        finally:
            for future in pending:
                future.cancel()
        return [replace(run.future.result(), labels=run.labels) for run in runs]

    def _wait_for(self, run: _Run) -> None:
        try:
            run.future.result()
        except BrokenProcessPool as error:
            self._begin_anew()
            what = f"{_named(run.task[1], run.labels, run.task[3])}, or a run beside it, lost its process"
            raise RunError(f"{what}; perhaps memory was short.") from error

    def _begin_anew(self) -> None:
        """Other experiments do not fail along with one that lost a process."""
        assert self._pool is not None
        self._pool.shutdown(wait=True)
        self._pool = None
        for runs in self._begun.values():
            self._submit([run for run in runs if run.same is None and (not run.future.done() or run.is_lost)])

    def _submit(self, runs: Sequence[_Run]) -> None:
        if self._pool is None:
            # A forked child could inherit a lock that a progress display holds.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._processes, mp_context=context, initializer=_end_with_parent)
        with _ctrl_c_later():
            # The last settings tend to be the largest: begun first, none of them keeps one core busy alone at the end.
            for run in reversed(runs):
                run.submitted = self._pool.submit(_simulate, *run.task)

    def close(self) -> None:
        """Until all processes are gone."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


class _Run:
    """One run of a setting, somewhere in the pool."""

    __slots__ = ("same", "submitted", "task")

    def __init__(self, task: tuple[str, str, Labels, int, Size, RuntimeCosts]) -> None:
        self.task = task
        self.same: _Run | None = None  # of another experiment, which need not be simulated twice
        self.submitted: Future[Outcome]

    @property
    def future(self) -> Future[Outcome]:
        return self.submitted if self.same is None else self.same.future

    @property
    def is_lost(self) -> bool:
        """Whether it was kept from having an outcome, which it would have if it were begun again."""
        if self.future.cancelled():
            return True
        return self.future.done() and isinstance(self.future.exception(), BrokenProcessPool)

    @property
    def labels(self) -> Labels:
        return self.task[2]


def _key(name: str, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> tuple[Any, ...]:
    return (name, tuple(sorted(labels.items())), seed, size, costs)


@contextmanager
def simulations(processes: int | None = None) -> Iterator[Simulations]:
    """Processes that end as soon as they are not needed, in the middle of a run too, which can take minutes."""
    others = set(multiprocessing.active_children())
    made = Simulations(processes)
    try:
        yield made
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        made.close()


def _simulate(module: str, name: str, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
    """One run, in a process of the pool."""
    gc.disable()  # looking through millions of objects again and again takes a fifth of the time, and finds nothing
    try:
        with _failures_named(name, labels, seed):
            importlib.import_module(module)
            return _checked(experiment_named(name).simulate(labels, seed, size, costs), labels, seed)
    finally:
        gc.collect()  # the whole simulation, which is over


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Processes that are started meanwhile never get Ctrl-C, which a terminal sends to all: this one ends them, quietly.

    Here it comes a moment later, when none of them is half started.
    """
    pressed: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    # Blocking is what new processes inherit. Another thread may take the signal all the same, so it has to be kept as well.
    handler = signal.signal(signal.SIGINT, lambda sign, _: pressed.append(sign)) if is_main else None
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
    if pressed and callable(handler):
        handler(pressed[0], None)


def _end_with_parent() -> None:
    """In a process of the pool: it would wait for work forever if the process that has the pool were killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="watches its parent", daemon=True).start()


# --- on Spark --------------------------------------------------------------------------------------------------------------


def _on_cluster(
    cluster: Any, experiment: Experiment, size: Size, seeds: Sequence[int], costs: RuntimeCosts, told: Progress, keep: Kept
) -> list[Outcome]:
    """One after another, and each seed through all settings: whatever the machine does meanwhile, it does to all of them."""
    settings = experiment.settings(Scale.MACHINE, size)
    total = len(settings) * len(seeds)
    found: dict[tuple[int, int], Outcome] = {}
    for place, seed in enumerate(seeds):
        for number, labels in enumerate(settings):
            told(len(found), total, label_text(labels))
            with _failures_named(experiment.name, labels, seed):
                if experiment.is_simulated(Scale.MACHINE, labels):
                    outcome = experiment.simulate(labels, seed, size, costs)
                else:
                    outcome = _undisturbed(partial(experiment.run_on_spark, cluster, labels, seed, size))
                found[number, place] = _checked(outcome, labels, seed)
            keep([found[key] for key in sorted(found)])
    told(total, total, "")
    return [found[key] for key in sorted(found)]


def _undisturbed(measure: Callable[[], Outcome]) -> Outcome:
    """Measure again if other guests of this machine took much of its cores meanwhile, whatever came out; the run of which
    they took least counts."""
    tries: list[tuple[float, Outcome]] = []
    while len(tries) < _TRIES_MOST and not (tries and tries[-1][0] <= _STOLEN_MOST):
        began_s, stolen_before_s = time.monotonic(), stolen_s()
        outcome = measure()
        cores_s = (time.monotonic() - began_s) * (os.cpu_count() or 1)
        tries.append(((stolen_s() - stolen_before_s) / cores_s, outcome))
    stolen, best = min(tries, key=lambda each: each[0])
    return replace(best, figures={**best.figures, "stolen": stolen, "tries": len(tries)})


# --- both ------------------------------------------------------------------------------------------------------------------


def _forget(outcomes: Sequence[Outcome]) -> None:
    pass


def _silent(done: int, total: int, text: str) -> None:
    pass


def _checked(outcome: Outcome, labels: Labels, seed: int) -> Outcome:
    assert dict(outcome.labels) == dict(labels), f"the outcome tells of {outcome.labels}"
    assert outcome.seed == seed, f"the outcome tells of seed {outcome.seed}"
    return outcome


def _named(name: str, labels: Labels, seed: int) -> str:
    return f"{name} ({label_text(labels)}; seed {seed})"


@contextmanager
def _failures_named(name: str, labels: Labels, seed: int) -> Iterator[None]:
    try:
        yield
    except DirigoError as error:
        raise RunError(f"{_named(name, labels, seed)} failed: {error}") from error
    except Exception as error:
        told = f"{type(error).__name__}: {error}".rstrip(": ")
        raise RunError(f"{_named(name, labels, seed)} failed: {told}", traceback.format_exc()) from error
