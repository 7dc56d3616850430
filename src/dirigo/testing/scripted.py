"""Sources for tests: rows from a script with pauses and failures in it, or rows that a test hands in as it goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dirigo.errors import DirigoError
from dirigo.flow.api.duration import Duration, positive_milliseconds
from dirigo.flow.errors import FlowError
from dirigo.flow.sources.fit import fit_rows
from dirigo.flow.sources.source import Source, SourceBatch, Split


class Aborted(DirigoError):  # noqa: N818  # what happened to the source
    """A scripted source came to its ``Abort``."""


@dataclass(frozen=True)
class Pause:
    """In a script: nothing comes for a while, by the simulation's clock."""

    duration: Duration


@dataclass(frozen=True)
class Abort:
    """In a script: the source fails here, without an end of its input."""

    reason: str = "the script says so"


class ScriptedSource(Source):
    """Stands in for another source: the same columns and time, but rows from a script.

    The script may grow as the test goes. It is kept, so a split that is opened later can go on at any place of it.
    """

    def __init__(self, like: Source, script: Iterable[Any] = (), *, ends: bool = True) -> None:
        super().__init__(like.schema, name=like.name, is_bounded=True, time=like.time)
        self.out_of_orderness_ms = like.out_of_orderness_ms
        self.idle_after_ms = like.idle_after_ms
        self.script = list(script)
        self.ends = ends

    @property
    def is_replayable(self) -> bool:
        return True

    def splits(self, wanted: int) -> Sequence[Split]:  # noqa: ARG002  # a script cannot be split
        return [ScriptedSplit(self)]

    def push(self, items: Iterable[Any]) -> None:
        if self.ends:
            raise FlowError(f"the source '{self.name}' has ended; push rows before end().")
        self.script.extend(items)

    def end(self) -> None:
        self.ends = True


class ScriptedSplit(Split):
    """The one reader of a script. Its position is the place in the script, and when a pause is over."""

    def __init__(self, source: ScriptedSource) -> None:
        self._source = source
        self._place = 0
        self._number = 1  # of the next row
        self._is_closed = False

    @property
    def ended(self) -> bool:  # type: ignore[override]  # a plain attribute elsewhere
        is_over = self._source.ends and self._place >= len(self._source.script)
        return self._is_closed or (is_over and not self._is_paused())

    @property
    def is_open(self) -> bool:
        """Whether more rows may be pushed."""
        return not self._source.ends

    def read(self, rows_max: int) -> SourceBatch | None:
        if self._is_closed or self._is_paused():
            return None
        self.next_due_s = None
        script = self._source.script
        rows: list[Any] = []
        while self._place < len(script) and len(rows) < rows_max:
            item = script[self._place]
            if isinstance(item, Pause | Abort):
                if rows:
                    break
                self._place += 1
                if isinstance(item, Abort):
                    raise Aborted(f"the source '{self._source.name}' aborted: {item.reason}.")
                self.next_due_s = self.clock() + positive_milliseconds(item.duration, "Pause") / 1000
                return None
            rows.append(item)
            self._place += 1
        if not rows:
            return None
        read_batch = fit_rows(rows, self._source.schema, self._source.name, self._number)
        self._number += len(rows)
        return read_batch

    def close(self) -> None:
        self._is_closed = True

    def position(self) -> list[Any]:
        return [self._place, self._number, self.next_due_s]

    def seek(self, position: Sequence[Any]) -> None:
        self._place, self._number, self.next_due_s = position

    def _is_paused(self) -> bool:
        return self.next_due_s is not None and self.clock() < self.next_due_s
