"""A model of who takes snapshots, small and shaped like the controller: ask, collect, write the manifest, commit the sinks.

What lasts is in ``ModelStorage`` and nowhere else. Everything else is gone with a crash, which may come between any two of
these steps. Every report names the generation that it comes from, because one of an earlier generation may come late.

The actors of a sink write rows as they run. At the cut they *prepare* what they have written since the cut before: it is on
disk, and nobody sees it. It is *committed*, which makes it visible, once the manifest is on disk that lists it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dirigo_lab.verification.snapshots.naming import CaptureInWorld

Rows = tuple[str, ...]
Prepared = tuple[str, int]  # a sink, and the snapshot whose cut prepared it


class ScriptPosition(NamedTuple):
    """How far a source was at the cut, in steps of its script."""

    steps: int
    has_ended: bool


@dataclass(frozen=True)
class ModelManifest:
    """One snapshot that exists."""

    number: int
    positions: Mapping[str, ScriptPosition]
    captures: Mapping[str, CaptureInWorld]  # by the letter of an actor
    sinks: frozenset[str]


@dataclass
class ModelStorage:
    """What lasts."""

    manifests: list[ModelManifest] = field(default_factory=list)
    prepared: dict[Prepared, Rows] = field(default_factory=dict)
    committed: dict[Prepared, Rows] = field(default_factory=dict)

    def newest(self) -> ModelManifest | None:
        return self.manifests[-1] if self.manifests else None

    def prepare(self, sink: str, number: int, rows: Rows) -> None:
        self.prepared[sink, number] = self.prepared.get((sink, number), ()) + rows

    def commit(self, sink: str, number: int) -> None:
        """Make visible what was prepared for a snapshot; a second time it does nothing.

        It includes what was prepared for earlier ones that gave way: their rows are before the cut of this one.
        """
        for prepared in self.prepared_for(sink, number):
            self.committed[prepared] = self.prepared.pop(prepared)

    def prepared_for(self, sink: str, number: int) -> list[Prepared]:
        return [(name, of) for name, of in self.prepared if name == sink and of <= number]

    def begin_again(self) -> ModelManifest | None:
        """What a recovery does first: finish what the newest manifest lists, and forget what no manifest does."""
        newest = self.newest()
        if newest is not None:
            for sink in newest.sinks:
                self.commit(sink, newest.number)
        self.forget_unlisted()
        return newest

    def forget_unlisted(self) -> None:
        self.prepared.clear()


@dataclass
class SnapshotUnderWay:
    """The snapshot that is being taken."""

    number: int
    positions: dict[str, ScriptPosition] = field(default_factory=dict)
    captures: dict[str, CaptureInWorld] = field(default_factory=dict)


class ModelCoordinator:
    """Takes the snapshots of one generation, one at a time."""

    def __init__(
        self,
        generation: int,
        storage: ModelStorage,
        upstreams: Mapping[str, Collection[str]],  # of each actor, by letters; those without an entry are sources
        sinks: frozenset[str],
        later: Callable[[Callable[[], None]], None],  # does something after a while
        step: Callable[[str], None],  # called between any two steps: here a crash may come
        captured_at_rest: Callable[[str], CaptureInWorld | None],  # of an actor that has ended; None if it has not yet
    ) -> None:
        self._generation = generation
        self.storage = storage
        self._upstreams = upstreams
        self.sources = {name for names in upstreams.values() for name in names} - upstreams.keys()
        self._sinks = sinks
        self._later = later
        self._step = step
        self._captured_at_rest = captured_at_rest
        newest = storage.newest()
        self._last = newest.number if newest is not None else 0
        self.under: SnapshotUnderWay | None = None
        self.voids = 0
        self.ignored = 0  # reports of earlier generations

    def order(self) -> int:
        """Begin the next snapshot; the caller passes it on to the sources."""
        assert self.under is None
        self._last += 1
        self.under = SnapshotUnderWay(self._last)
        return self._last

    # --- reports -------------------------------------------------------------------------------------------------------

    def on_position(self, generation: int, number: int, source: str, position: ScriptPosition) -> None:
        if (under := self._concerned(generation, number)) is not None:
            under.positions[source] = position
            self._look()

    def on_capture(self, generation: int, number: int, actor: str, capture: CaptureInWorld) -> None:
        if (under := self._concerned(generation, number)) is not None:
            under.captures[actor] = capture
            self._look()

    def on_void(self, generation: int, number: int) -> None:
        """The snapshot gave way somewhere: it will never be whole."""
        if self._concerned(generation, number) is not None:
            self.under = None
            self.voids += 1

    def _concerned(self, generation: int, number: int) -> SnapshotUnderWay | None:
        """The snapshot that a report is about, unless it comes from somewhere else."""
        self._step("report")
        if not self.is_own(generation):
            self.ignored += 1
            return None
        return self.under if self.under is not None and self.under.number == number else None

    def is_own(self, generation: int) -> bool:
        return generation == self._generation

    # --- from the captures to what is visible ----------------------------------------------------------------------------

    def _look(self) -> None:
        under = self.under
        assert under is not None
        if self.is_whole(under):
            self._later(lambda: self._write(under))

    def is_whole(self, under: SnapshotUnderWay) -> bool:
        """Whether every source has told where it is, and every actor that the barrier reaches has captured itself."""
        return under.positions.keys() >= self.sources and under.captures.keys() >= self._reached(under)

    def _reached(self, under: SnapshotUnderWay) -> set[str]:
        """The actors that get a barrier: those with an upstream that passes one on."""
        alive = {source for source, position in under.positions.items() if not position.has_ended}
        for actor, upstreams in self._upstreams.items():  # in the order of the graph
            if not alive.isdisjoint(upstreams):
                alive.add(actor)
        return alive - under.positions.keys()

    def _write(self, under: SnapshotUnderWay) -> None:
        """Write the manifest, from which the snapshot exists."""
        if self.under is not under:
            return
        self._step("manifest")
        captures = dict(under.captures)
        for actor in self._upstreams.keys() - self._reached(under):
            capture = self._captured_at_rest(actor)
            if capture is None:  # the last barrier has not run there yet
                self._later(lambda: self._write(under))
                return
            captures[actor] = capture
        self.put_on_disk(ModelManifest(under.number, dict(under.positions), captures, self._sinks))
        self.under = None
        self._step("commit")
        self._commit(sorted(self._sinks), under.number)

    def put_on_disk(self, manifest: ModelManifest) -> None:
        self.storage.manifests.append(manifest)

    def _commit(self, sinks: Iterable[str], number: int) -> None:
        """One sink after the other, each in a step of its own."""
        first, *others = [*sinks] or [""]
        self.storage.commit(first, number)
        self._step("commit")
        if others:
            self._later(lambda: self._commit(others, number))
