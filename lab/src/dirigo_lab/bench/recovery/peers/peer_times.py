"""Kills a peer again and again, and measures as with ours: from the kill to the first new result, and all are checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from dirigo_lab.bench.recovery.keyed_rows import StateShape
from dirigo_lab.bench.recovery.kills import STEADY_S, shape_of
from dirigo_lab.bench.recovery.peers.row_files import RowFiles, ToldFiles

PATIENCE_S = 300.0  # with a state of 1 GB on a busy machine
_LOOKED_AT_EACH_S = 2.0

Progress = Callable[[str], None]


class MeasuredPeer(Protocol):
    """Somebody else's service that runs the job: rows from a folder, results to another."""

    name: str
    killed: str  # what is killed
    newest_only: bool  # one result for rows of a key that were taken together

    def start(self, folder: Path, rows: Path, told: Path, shape: StateShape) -> None: ...

    def kill(self, number: int) -> float:
        """Kill, and see to it that what was killed is there again. The time of day in milliseconds when that was."""

    def is_whole(self) -> bool:
        """Whether all processes are there. Raises if the job has failed."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class PeerTimes:
    """Seconds from the kill until the first result of a row that fell due later was there."""

    name: str
    killed: str
    state_mb: int
    shown_s: tuple[float, ...]
    wrong: tuple[str, ...]

    @property
    def median_s(self) -> float:
        return float(np.median(self.shown_s)) if self.shown_s else float("nan")

    @property
    def p99_s(self) -> float:
        return float(np.percentile(self.shown_s, 99)) if self.shown_s else float("nan")


def measure_peer(tell: Progress, peer: MeasuredPeer, folder: Path, state_mb: int, kills: int) -> PeerTimes:
    """A peer that does not come back, or ends, is told of as wrong, with the kills that it has survived until then."""
    shape = shape_of(state_mb)
    shown_s: list[float] = []
    rows = RowFiles(folder / "rows", shape)
    told = ToldFiles(folder / "told", rows, newest_only=peer.newest_only)
    wrong: list[str] = []
    try:
        tell(f"{peer.name} makes a state of {state_mb} MB")
        rows.load()
        peer.start(folder, rows.folder, told.folder, shape)
        _until(peer, lambda: _has_told(told, shape.keys), "the state is made")
        with rows:
            done = 0
            for number in range(kills):
                _until_steady(peer, told)
                rows.forget(done)  # not by their age: a query that begins again may be away for long
                done = rows.end
                time.sleep(0.37 * number % 1.0)  # not always at the same distance from a checkpoint
                tell(f"{peer.name}, {peer.killed} killed, {number + 1} of {kills} with a state of {state_mb} MB")
                shown_s.append(_away_s(peer, told, peer.kill(number)))
            _until_steady(peer, told)
            rows.stop()
            _until(peer, partial(_has_all, told), f"all results are there; {told.missing()} are missing")
    except (RuntimeError, TimeoutError, OSError) as error:
        wrong.append(str(error))
    finally:
        peer.close()
    return PeerTimes(peer.name, peer.killed, state_mb, tuple(shown_s), (*told.wrong, *wrong))


def _away_s(peer: MeasuredPeer, told: ToldFiles, killed_ms: float) -> float:
    _until(peer, lambda: told.first_due_after(killed_ms) is not None, "a result after the kill")
    came_ms = told.first_due_after(killed_ms)
    assert came_ms is not None
    return round((came_ms - killed_ms) / 1000, 3)


def _until_steady(peer: MeasuredPeer, told: ToldFiles) -> None:
    _until(peer, peer.is_whole, "all processes are there", pause_s=0.5)
    steady_ms = (time.time() + STEADY_S) * 1000
    _until(peer, lambda: told.first_due_after(steady_ms) is not None, "results are there")


def _has_told(told: ToldFiles, count: int) -> bool:
    told.look()
    return told.count >= count


def _has_all(told: ToldFiles) -> bool:
    told.look()
    return not told.missing()


def _until(peer: MeasuredPeer, condition: Callable[[], bool], what: str, pause_s: float = 0.02) -> None:
    end = time.monotonic() + PATIENCE_S
    next_look = time.monotonic() + _LOOKED_AT_EACH_S
    while not condition():
        now = time.monotonic()
        if now > end:
            raise TimeoutError(f"{peer.name}: in vain for {PATIENCE_S:g} s: {what}")
        if now > next_look:  # seldom, because it starts a process, or asks the peer
            peer.is_whole()
            next_look = now + _LOOKED_AT_EACH_S
        time.sleep(pause_s)
