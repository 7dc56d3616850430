"""What is wrong with a snapshot is found: each test breaks one thing that is kept, and the check must say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dirigo import DirigoError
from dirigo.flow.event_time.watermark import BEGINNING, ChannelProgress, ChannelWatermarks
from dirigo.flow.operators.joins.join import _Side
from dirigo.flow.operators.process.states import ProcessStates
from dirigo.flow.operators.process.timers import Timers
from dirigo.flow.operators.windows.partial_store import PartialStore
from dirigo.flow.operators.windows.windowed import WindowState
from dirigo.flow.plan.stage import StageBehaviour
from dirigo.flow.plan.states import StageCapture, StageStates
from dirigo.flow.sources.reader import ReaderCapture, SourceReader
from dirigo.kernel import Context, CriticalRun, Kept
from dirigo.kernel.lessor import Lessor
from dirigo.state import Pickled, capture_of
from flow.recovery.test_operators_recover import check

SEEDS = range(20)
_FOUND = "gets other rows when it recovers|came to a standstill|can be read only with .*Basket, which is not Dirigo's"
Breaks = Callable[[pytest.MonkeyPatch], None]


def closed_windows_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """So that windows of the clock are emitted twice."""
    patch.setattr(WindowState, "restore", lambda states, captured: PartialStore.restore(states, captured[1] or {}))


def ended_upstreams_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """So that the next snapshot waits for ever."""
    restore = Lessor.restore
    patch.setattr(Lessor, "restore", lambda lessor, kept: restore(lessor, Kept((), kept.timers)))


def watermarks_of_channels_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """So that a channel that has ended holds all others back."""

    def restore(progress: ChannelWatermarks, captured: ChannelProgress) -> None:
        progress.watermark = captured.watermark

    patch.setattr(ChannelWatermarks, "restore", restore)


def the_watermark_of_the_actor_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """So that windows that have been emitted are open again."""
    restore = StageStates.restore

    def forget(states: StageStates, captured: StageCapture) -> None:
        restore(states, captured)
        states.watermark = states.progress.watermark = BEGINNING

    patch.setattr(StageStates, "restore", forget)


def live_objects_are_shared(patch: pytest.MonkeyPatch) -> None:
    """So that what comes after the cut gets into it."""

    def shared(value: Any) -> Any:
        kept = capture_of(value)
        return kept if isinstance(kept, Pickled) else value

    patch.setattr("dirigo.state.keyed.state_set.capture_of", shared)


def users_objects_are_left_as_they_are(patch: pytest.MonkeyPatch) -> None:
    """So that writing them down runs code of the user's, and reading them needs it."""
    patch.setattr("dirigo.state.keyed.state_set.capture_of", lambda value: value)


def live_batches_are_shared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Side, "capture", lambda side: side.batches)


def timers_of_keys_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timers, "restore", lambda *_: None)


def timers_of_the_kernel_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    restore = Lessor.restore
    patch.setattr(Lessor, "restore", lambda lessor, kept: restore(lessor, Kept(kept.ended, ())))


def written_times_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    restore = ProcessStates.restore

    def forget(states: ProcessStates, captured: Any) -> None:
        restore(states, captured._replace(states=captured.states and captured.states._replace(written={})))

    patch.setattr(ProcessStates, "restore", forget)


def positions_are_a_row_behind(patch: pytest.MonkeyPatch) -> None:
    restore = SourceReader.restore

    def skip(reader: SourceReader, capture: ReaderCapture) -> None:
        restore(reader, capture)
        reader.split.read(1)

    patch.setattr(SourceReader, "restore", skip)


def users_hear_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    on_snapshot = StageBehaviour._on_snapshot

    def told(behaviour: StageBehaviour, context: Context, critical: CriticalRun) -> None:
        emitter = behaviour._emitter or behaviour._new_emitter(context)
        behaviour._operator.on_critical(behaviour._states.own, ("tell", 7), emitter)
        on_snapshot(behaviour, context, critical)

    patch.setattr(StageBehaviour, "_on_snapshot", told)


WRONG: list[tuple[Breaks, str]] = [
    (closed_windows_are_forgotten, "clock windows"),
    (ended_upstreams_are_forgotten, "a source that ends early"),
    (watermarks_of_channels_are_forgotten, "a source that ends early"),
    (the_watermark_of_the_actor_is_forgotten, "late windows"),
    (live_objects_are_shared, "InPlace"),
    (live_objects_are_shared, "Everything"),
    (users_objects_are_left_as_they_are, "InPlace"),
    (live_batches_are_shared, "join for ever"),
    (timers_of_keys_are_forgotten, "EventTimers"),
    (timers_of_keys_are_forgotten, "clock timers"),
    (timers_of_the_kernel_are_forgotten, "clock timers"),
    (written_times_are_forgotten, "Brief"),
    (positions_are_a_row_behind, "tumbling"),
    (users_hear_of_snapshots, "SYNC_ONE beside snapshots"),
]


@pytest.mark.parametrize(("breaks", "name"), WRONG, ids=lambda value: getattr(value, "__name__", value))
def test_it_is_found(breaks: Breaks, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch)
    with pytest.raises((AssertionError, DirigoError), match=_FOUND):
        check(name, SEEDS)
