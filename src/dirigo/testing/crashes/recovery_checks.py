"""Finding out whether a flow survives crashes: run it under chaos, take snapshots, crash it, and go on from the last one."""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from random import Random
from typing import Any

import cloudpickle

from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.errors import CaptureFailure
from dirigo.flow.plan.states import StageCapture
from dirigo.testing.crashes.generations import Crash, Generation
from dirigo.testing.crashes.snapshots_taken import SnapshotTaken
from dirigo.testing.equality import explained, held_rows, multiset
from dirigo.testing.simulation import run

SEEDS = 20
WORKERS = (1, 2, 3, 4)
STRATEGIES = ("chaos",)
_CRASHES_MOST = 3
_MODULES_OF_OURS = ("builtins", "collections", "dirigo.", "msgspec", "numpy", "pyarrow")

Rows = list[dict[str, Any]]


class Recoveries(Counter[str]):
    """What was tested, counted: "crashes", "from a snapshot", "from the beginning", "snapshots", "void snapshots"."""


def check_recovery(
    flow: Dataflow,
    rows: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
    *,
    seeds: int | Iterable[int] = SEEDS,
    strategies: Sequence[Any] = STRATEGIES,
    batches: int = 25,
    rows_per_read: int | None = None,
    compared: Callable[[Rows], Any] | None = None,
    float_digits: int | None = 12,
    partitions: Sequence[int] = (),
) -> Recoveries:
    """Run a flow once on one worker, and then with crashes under chaos; every sink must get the same rows each time.

    A run with crashes takes snapshots at random moments, is thrown away at a random moment, and goes on from the last
    snapshot that was complete, on another number of workers; this up to three times. ``strategies`` are those that schedule,
    one for each seed in turn. The input is cut into about ``batches`` reads of random sizes, or into reads of
    ``rows_per_read`` rows: what comes late depends on that. ``compared`` makes of a sink's rows what has to be the same; by
    default it is all rows in any order, with ``float_digits`` significant digits (None: all). With ``partitions``, each run
    goes on as a new job does from a savepoint, with one of these numbers of partitions.

    A difference raises AssertionError with the seed and the rows. Returns how much was tested.
    """
    held = held_rows(rows)
    sequential = run(flow, held) if rows_per_read is None else run(flow, held, rows_max=rows_per_read)
    compare = compared or (lambda found: multiset(found, float_digits))
    expected = {sink: compare(sequential.rows(sink)) for sink in sequential.sinks}
    read = max(sum(reader.rows for reader in sequential.job.readers), 1)
    recoveries = Recoveries()
    events = 0
    for number, seed in enumerate(range(seeds) if isinstance(seeds, int) else seeds):
        options: dict[str, Any] = {"strategy": strategies[number % len(strategies)]}
        options["rows_max"] = rows_per_read or max(2 * read // batches, 1)
        crashing = _CrashingRun(flow, held, seed, options, is_cut_at_random=rows_per_read is None)
        crashing.partitions = partitions
        crashing.events = events = events or crashing.count_events()
        last = crashing.finish()
        recoveries.update(crashing.recoveries)
        for sink, wanted in expected.items():
            found = compare(last.rows(sink))
            if found != wanted:
                difference = explained(wanted, found) if compared is None else f"  {wanted!r}\n  but found {found!r}"
                raise AssertionError(
                    f"the sink '{sink}' of '{flow.name}' gets other rows when it recovers from crashes (seed {seed}).\n"
                    f"{difference}\n  {'; then '.join(crashing.story)}"
                )
    if not recoveries["from a snapshot"]:
        raise AssertionError(
            f"'{flow.name}' never recovered from a snapshot, so nothing was tested; give it more rows or more seeds."
        )
    return recoveries


class _CrashingRun:
    """One run of a flow over several generations."""

    def __init__(self, flow: Dataflow, rows: Any, seed: int, options: dict[str, Any], *, is_cut_at_random: bool) -> None:
        self._flow = flow
        self._rows = rows
        self._seed = seed
        self._options = options
        self._is_cut_at_random = is_cut_at_random
        self._rng = Random(f"{seed} crashes")
        self.partitions: Sequence[int] = ()
        self.events = 0  # that it takes to come to the end, about
        self.recoveries = Recoveries()
        self.story: list[str] = []

    def count_events(self) -> int:
        return self._generation(0, None, 0.0).count_events()

    def finish(self) -> Generation:
        """The generation that came to the end."""
        snapshot: SnapshotTaken | None = None
        now_s = 0.0
        for number in range(_CRASHES_MOST):
            generation = self._generation(number, snapshot, now_s)
            generation.crash_after(self._rng.randrange(self.events // 8, self.events))
            try:
                generation.finish()
            except Crash:
                self._note(generation)
                snapshot, now_s = read_again(generation.last_complete), generation.now_s
            else:
                self._note(generation)
                return generation
        generation = self._generation(_CRASHES_MOST, snapshot, now_s)
        generation.finish()
        self._note(generation)
        return generation

    def _generation(self, number: int, snapshot: SnapshotTaken | None, now_s: float) -> Generation:
        workers = self._rng.choice(WORKERS)
        twin = copy(self._flow)
        twin.name = f"{self._flow.name}.{number}"  # what is kept must not depend on it
        if self.partitions:
            twin.partitions = self._rng.choice(self.partitions)
        generation = Generation(
            twin,
            self._rows,
            workers=workers,
            seed=self._seed * (_CRASHES_MOST + 1) + number,
            begins_at_s=now_s,
            is_cut_at_random=self._is_cut_at_random,
            **self._options,
        )
        if number:
            self.recoveries["from the beginning" if snapshot is None else "from a snapshot"] += 1
            self.story.append(f"recovered on {workers} workers from {snapshot or 'the beginning'}")
        if snapshot is not None and self.partitions:
            self.story[-1] += f" with {twin.partitions} partitions"
            generation.go_on_as_another_job(snapshot)
        elif snapshot is not None:
            generation.go_on_from(snapshot)
        return generation

    def _note(self, generation: Generation) -> None:
        self.recoveries["crashes"] += generation.has_crashed
        self.recoveries["snapshots"] += generation.completed
        self.recoveries["void snapshots"] += generation.voided
        if generation.has_crashed:
            self.story.append(f"crashed at t={generation.now_s:.4f} with {generation.completed} snapshots")


def read_again(snapshot: SnapshotTaken | None) -> SnapshotTaken | None:
    """A snapshot as another process finds it: written as late as possible, by somebody who knows no class of the user's."""
    if snapshot is None:
        return None
    captures = {place: _written_and_read(capture) for place, capture in snapshot.captures.items()}
    kept = {place: pickle.loads(cloudpickle.dumps(each)) for place, each in snapshot.kept.items()}
    readers = {place: pickle.loads(pickle.dumps(each)) for place, each in snapshot.readers.items()}
    return SnapshotTaken(snapshot.number, snapshot.plan, readers, captures, kept, snapshot.rows)


def _written_and_read(capture: StageCapture | None) -> StageCapture | None:
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(capture, protocol=5, buffer_callback=buffers.append)
    copies = [bytes(buffer.raw()) for buffer in buffers]
    read: StageCapture | None = _WithoutUsers(io.BytesIO(content), buffers=copies).load()
    return read


class _WithoutUsers(pickle.Unpickler):
    """Reads what a process without the user's code can read."""

    def find_class(self, module: str, name: str) -> Any:
        if not f"{module}.".startswith(_MODULES_OF_OURS):
            raise CaptureFailure(f"a capture can be read only with {module}.{name}, which is not Dirigo's.")
        return super().find_class(module, name)
