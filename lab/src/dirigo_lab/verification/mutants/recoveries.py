"""Mistakes of those who take snapshots, commit sinks and recover: in the models of the random runs with crashes.

The rules are not the kernel's. What is mistaken here is a small model (``random.coordinator``, and the host's part of
``random.recovery``), which has the steps of the real controller in the same order. So these mutants show that the runs with
crashes would notice such a mistake; that the real one makes none is for its own tests to show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dirigo.kernel import Kept
from dirigo_lab.verification.mutants.mutant import mutant
from dirigo_lab.verification.random import generations
from dirigo_lab.verification.random.coordinator import (
    ModelCoordinator,
    ModelManifest,
    ModelStorage,
    ScriptPosition,
    SnapshotUnderWay,
)
from dirigo_lab.verification.random.recovery import GenerationRun, SourceInRun
from dirigo_lab.verification.snapshots.naming import CaptureInWorld


@mutant(
    "position-after-the-read",
    "a source takes its position down one step after the barrier",
    SourceInRun,
    "begin",
    needs_crash=True,
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: SourceInRun, number: int) -> ScriptPosition:
        position: ScriptPosition = original(self, number)
        return position if position.has_ended else ScriptPosition(min(position.steps + 1, len(self.script)), False)

    return mistaken


@mutant(
    "position-before-the-read",
    "a source takes its position down one step before the barrier",
    SourceInRun,
    "begin",
    needs_crash=True,
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: SourceInRun, number: int) -> ScriptPosition:
        position: ScriptPosition = original(self, number)
        return position if position.has_ended else ScriptPosition(max(position.steps - 1, 0), False)

    return mistaken


@mutant(
    "committed-before-the-manifest",
    "sinks make visible what they have prepared as soon as it is on disk",
    ModelStorage,
    "prepare",
    needs_crash=True,
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: ModelStorage, sink: str, number: int, rows: Any) -> None:
        original(self, sink, number, rows)
        self.commit(sink, number)

    return mistaken


@mutant(
    "manifest-without-all",
    "the manifest is written when the sources have told where they are, whoever has captured itself by then",
    ModelCoordinator,
    "is_whole",
    needs_crash=True,
)
def _(_original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: ModelCoordinator, under: SnapshotUnderWay) -> bool:
        return under.positions.keys() >= self.sources

    return mistaken


@mutant(
    "commit-not-finished",
    "a recovery does not make visible what the newest manifest lists",
    ModelStorage,
    "begin_again",
    needs_crash=True,
)
def _(_original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: ModelStorage) -> ModelManifest | None:
        self.forget_unlisted()
        return self.newest()

    return mistaken


@mutant(
    "unlisted-kept",
    "a recovery keeps what was prepared for a snapshot that does not exist",
    ModelStorage,
    "forget_unlisted",
    needs_crash=True,
)
def _(_original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _self: None


@mutant(
    "void-rows-lost",
    "what was prepared for a snapshot that gave way elsewhere is never made visible",
    ModelStorage,
    "prepared_for",
    needs_crash=True,
)
def _(_original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, sink, number: [(name, of) for name, of in self.prepared if name == sink and of == number]


@mutant(
    "old-messages-accepted",
    "a generation has the id of the one before it, so messages of that are taken for its own",
    generations,
    "job_id",
    needs_crash=True,
)
def _(_original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _generation: "job"


@mutant(
    "old-reports-accepted",
    "captures of an earlier generation are taken for those of this one",
    ModelCoordinator,
    "is_own",
    needs_crash=True,
)
def _(_original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _self, _generation: True


@mutant(
    "ended-not-restored",
    "actors that have ended are restored without knowing it, and wait for their upstreams",
    GenerationRun,
    "restore_actor",
    needs_crash=True,
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: GenerationRun, letter: str, capture: CaptureInWorld) -> None:
        original(self, letter, CaptureInWorld(capture.content, Kept((), capture.kept.timers)))

    return mistaken


@mutant(
    "void-waited-for",
    "the coordinator goes on waiting for a snapshot that gave way",
    ModelCoordinator,
    "on_void",
    needs_crash=True,
)
def _(_original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _self, _generation, _number: None
