"""A windowed job as experiments in the simulator run it: sources, a map each, window functions, perhaps one for the whole.

It is the job of the paper's section 5.2 (map, local maxima, global maximum) and, without the last stage, one that
counts as Nexmark's q12 does.
The functions are the kernel's own, over plain numbers: what is measured is who waits for whom, and a run has millions of
messages.

A window is closed at each function when all its upstream actors have told that it is over; a result is a window closed at
the last stage. Its latency runs from the moment at which the window was over at the sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dirigo.flow.sources.load_shapes import Load
from dirigo.kernel import (
    Address,
    Context,
    CriticalOutput,
    CriticalRun,
    FunctionSpec,
    JobProperties,
    Objective,
    Output,
    States,
    WorkerId,
    actor_address,
)
from dirigo.sim.feed import Emission
from dirigo.state import StateSet, ValueState

_BLOCK = 1024  # rows whose times are looked up at once
_KEYS = 7919  # by which rows of one source are scattered over window functions


@dataclass(frozen=True)
class WindowJob:
    """What a job is, and what comes in. Sources, their maps, and window functions are at the ``homes``, in turn."""

    name: str
    loads: Sequence[Load]  # of each source
    homes: Sequence[WorkerId]
    windows: int  # window functions
    map_s: float
    window_s: float
    window_every_s: float
    objective_s: float = float("inf")
    rows_per_s: float | None = None  # a throughput objective
    shuffles: bool = False  # a map sends to all window functions, by key; otherwise to one of them
    has_whole: bool = True  # a last function combines all window functions' results
    map_lessees_max: int = 0
    window_lessees_max: int = 64
    whole_s: float = 0.0002
    first_home: int = 0  # of the window functions: the index among ``homes``
    hot_share: float = 0.0  # of the rows that go to one window function, if shuffled

    def source(self, index: int) -> Address:
        return actor_address(self.name, "source", index)

    def map(self, index: int) -> Address:
        return actor_address(self.name, "map", index)

    def window(self, index: int) -> Address:
        return actor_address(self.name, "window", index)

    @property
    def whole(self) -> Address:
        return actor_address(self.name, "whole")

    def home(self, index: int) -> WorkerId:
        return self.homes[index % len(self.homes)]

    def window_home(self, index: int) -> WorkerId:
        """Window functions are spread evenly over the homes."""
        step = max(1, len(self.homes) // self.windows)
        return self.homes[(self.first_home + index * step) % len(self.homes)]

    def targets(self, index: int) -> tuple[Address, ...]:
        """Where a map sends to."""
        if self.shuffles:
            return tuple(self.window(window) for window in range(self.windows))
        return (self.window(index % self.windows),)

    def choice(self, payload: int, targets: int) -> int:
        """Which of its targets a map sends a row to."""
        if self.hot_share and payload // _KEYS % 1000 < 1000 * self.hot_share:
            return 0
        return payload % targets


class RunningJob:
    """One run of a job: its actors, and what it has delivered."""

    def __init__(self, job: WindowJob) -> None:
        self.job = job
        self.results: list[tuple[float, float]] = []  # (when, latency) in seconds
        self.closed: list[float] = []  # windows just closed at the last stage: when they were over at the sources
        self.properties = JobProperties(job.name, job.name, Objective(job.objective_s, job.rows_per_s))

    def specs(self) -> Iterator[FunctionSpec]:
        job = self.job
        maps = range(len(job.loads))
        upstreams: dict[Address, list[Address]] = {job.window(index): [] for index in range(job.windows)}
        for index in maps:
            targets = job.targets(index)
            for target in targets:
                upstreams[target].append(job.map(index))
            yield self._spec(
                job.map(index), job.home(index), _Map(targets, job), (job.source(index),), targets, job.map_lessees_max
            )
        whole = (job.whole,) if job.has_whole else ()
        for index in range(job.windows):
            address = job.window(index)
            progress = _Progress(len(upstreams[address]))
            behaviour = _Window(self, progress, job.whole if job.has_whole else None)
            yield self._spec(
                address, job.window_home(index), behaviour, tuple(upstreams[address]), whole, job.window_lessees_max
            )
        if job.has_whole:
            behaviour = _Window(self, _Progress(job.windows), None)
            yield self._spec(job.whole, job.homes[0], behaviour, tuple(upstreams), (), 0)

    def _spec(
        self,
        address: Address,
        home: WorkerId,
        behaviour: _Map | _Window,
        upstreams: tuple[Address, ...],
        downstreams: tuple[Address, ...],
        lessees_max: int,
    ) -> FunctionSpec:
        return FunctionSpec(
            address,
            home,
            lambda states: behaviour.bound_to(cast(StateSet, states)),
            _states,
            upstreams,
            downstreams,
            lessees_max=lessees_max,
            job=self.properties,
        )

    def emissions(self, index: int, until_s: float, phase: float) -> Iterator[Emission]:
        """What a source emits: rows when its load says, and at the end of each window that it is over.

        ``phase``, from 0 to 1, is how far a source is on the way to its first row at the beginning.
        """
        job = self.job
        to = job.map(index)
        load, objective_s, every_s = job.loads[index], job.objective_s, job.window_every_s
        window, over_s = 1, every_s
        first = 0
        while True:
            times = load.due(np.arange(first, first + _BLOCK, dtype=np.float64) + phase).tolist()
            for number, at in enumerate(times):
                while over_s <= min(at, until_s):
                    yield over_s, CriticalOutput(to, window, created=over_s, deadline=over_s + objective_s)
                    window += 1
                    over_s = window * every_s
                if at >= until_s:
                    return
                yield at, Output(to, (index + first + number) * _KEYS, at, at + objective_s)
            first += _BLOCK


_BEST = ValueState(int, default=0, combine=max)


def _states() -> States:
    return StateSet({"best": _BEST})


class _Progress:
    """How many upstream actors have told that a window is over. Only the lessor looks, in CRITICAL."""

    def __init__(self, upstreams: int) -> None:
        self._upstreams = upstreams
        self._told: Counter[int] = Counter()

    def is_over(self, window: int) -> bool:
        """One more has told; whether that was the last one."""
        self._told[window] += 1
        if self._told[window] < self._upstreams:
            return False
        del self._told[window]
        return True


class _Map:
    """Passes rows on to the window function of their key, and the ends of windows to all."""

    __slots__ = ("_job", "_targets")

    def __init__(self, targets: tuple[Address, ...], job: WindowJob) -> None:
        self._targets = targets
        self._job = job

    def bound_to(self, states: StateSet) -> _Map:  # noqa: ARG002 - it has none
        return self

    def on_message(self, context: Context, payload: Any) -> None:
        targets = self._targets
        context.emit(targets[self._job.choice(payload, len(targets)) if len(targets) > 1 else 0], payload)

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        for target in self._targets:
            context.emit_critical(target, critical.payload)


class _Window:
    """Keeps the largest row, and passes it on when a window is over."""

    __slots__ = ("_best", "_downstream", "_progress", "_run")

    def __init__(self, run: RunningJob, progress: _Progress, downstream: Address | None) -> None:
        self._run = run
        self._progress = progress
        self._downstream = downstream
        self._best: Any = None

    def bound_to(self, states: StateSet) -> _Window:
        bound = _Window(self._run, self._progress, self._downstream)
        bound._best = states.cell("best")
        return bound

    def on_message(self, context: Context, payload: Any) -> None:  # noqa: ARG002
        self._best.add(payload)

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        if not self._progress.is_over(critical.payload):
            return
        if self._downstream is None:
            self._run.closed.append(critical.created)
            return
        context.emit(self._downstream, self._best.get())
        context.emit_critical(self._downstream, critical.payload)
