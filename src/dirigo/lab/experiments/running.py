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

from dirigo.kernel import DirigoError
from dirigo.lab.experiments.costs import Costs
from dirigo.lab.experiments.experiment import Experiment, Labels, Outcome, Scale, Size
from dirigo.lab.experiments.registry import experiment_named
from dirigo.lab.experiments.stolen_time import stolen_s

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
    costs: Costs,
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
        return _simulated(experiment, size, seeds, costs, told, processes)
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


def _simulated(
    experiment: Experiment, size: Size, seeds: Sequence[int], costs: Costs, told: Progress, processes: int | None
) -> list[Outcome]:
    tasks = [(labels, seed) for labels in experiment.settings(Scale.PAPER, size) for seed in seeds]
    if not tasks:
        return []
    found: dict[int, Outcome] = {}
    with _pool(min(processes or os.cpu_count() or 1, len(tasks))) as pool:
        # An experiment that is not in the registry from the start is put there when its module is imported.
        who = (type(experiment).__module__, experiment.name)
        with _ctrl_c_later():
            # The last settings tend to be the largest: begun first, none of them keeps one core busy alone at the end.
            pending: dict[Future[Outcome], int] = {
                pool.submit(_simulate, *who, dict(labels), seed, size, costs): number
                for number, (labels, seed) in reversed(list(enumerate(tasks)))
            }
        told(0, len(tasks), "")
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=pending.__getitem__):
                number = pending.pop(future)
                labels, seed = tasks[number]
                try:
                    found[number] = future.result()
                except BrokenProcessPool as error:
                    what = f"{_named(experiment.name, labels, seed)}, or a run beside it, lost its process"
                    raise RunError(f"{what}; perhaps memory was short.") from error
                told(len(found), len(tasks), label_text(labels))
    return [found[number] for number in range(len(tasks))]


def _simulate(module: str, name: str, labels: Labels, seed: int, size: Size, costs: Costs) -> Outcome:
    """One run, in a process of the pool."""
    gc.disable()  # looking through millions of objects again and again takes a fifth of the time, and finds nothing
    try:
        with _failures_named(name, labels, seed):
            importlib.import_module(module)
            return _checked(experiment_named(name).simulate(labels, seed, size, costs), labels, seed)
    finally:
        gc.collect()  # the whole simulation, which is over


@contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end as soon as they are not needed, in the middle of a run too, which can take minutes."""
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")  # a forked child could inherit a lock that a progress display holds
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent)
    try:
        yield pool
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)  # until all of them are gone


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
    cluster: Any, experiment: Experiment, size: Size, seeds: Sequence[int], costs: Costs, told: Progress, keep: Kept
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
