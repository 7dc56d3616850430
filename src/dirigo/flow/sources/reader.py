"""Reading a source: what it emits into the graph, batch by batch, with the watermarks in between. Hosts say when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.errors import FlowError, OperatorFailure, note_place, said
from dirigo.flow.event_time.time_column import LATEST_MS, TimeColumn, Times
from dirigo.flow.event_time.watermark import BEGINNING, END, Watermark, passes
from dirigo.flow.rows.bad_rows import Bad
from dirigo.flow.rows.own_memory import cut, owned
from dirigo.flow.sources.source import Source, SourceBatch, Split
from dirigo.kernel import Address, CriticalOutput, Output
from dirigo.state import copied

READ_PORT, BAD_PORT = 0, 1
_ALL_ROWS = 1 << 30


def newest_of(times: Times) -> int:
    """The newest of the times of some rows. A bad row must not end the stream for all others."""
    newest = int(np.max(times))
    return newest if newest <= LATEST_MS else int(np.max(times, initial=BEGINNING, where=times <= LATEST_MS))


class ReaderCapture(msgspec.Struct, frozen=True):
    """What a snapshot keeps of a reader: all that decides what it emits from there on."""

    position: Any
    """Of its split, as plain data; None only if it has ended."""
    rows: int
    newest_ms: int
    watermark: int
    is_idle: bool
    holds_time: bool
    has_ended: bool
    ends_at_once: bool = False
    """It had ended before the savepoint that the job began with, and tells only that."""


class SourceReader:
    """One split of a source, and the one actor that it feeds."""

    def __init__(self, source: Source, split: Split, place: str, target_place: str, watermark_every_ms: int) -> None:
        self.source = source
        self.split = split
        self.splits_wanted = 1  # of the source, which may give fewer
        self._place, self._target_place = place, target_place
        self.address: Address = place  # of the kernel's source; with the job in front, once the plan belongs to one
        self.target: Address = target_place
        self.watermark = BEGINNING
        self.newest_ms = BEGINNING  # event time of the newest row so far
        self.rows = 0
        self.has_ended = False
        self._time = None if source.time is None else TimeColumn.of(source.schema, source.time, source.name)
        self._every_ms = watermark_every_ms
        self.grid_ms = 1  # see Operator.watermark_grid_ms; the plan knows better
        self.latency_s = inf  # the objective of the job
        self.message_rows = _ALL_ROWS  # how many rows a message carries at most: a message is not interrupted
        self._is_idle = False
        self._holds_time = False  # the last read_batch said that more rows of its age follow
        self._quiet_since_s: float | None = None
        self._ends_at_once = False

    def __getstate__(self) -> dict[str, Any]:
        """A split stays in its process: whoever reads it opens it."""
        return {name: value for name, value in vars(self).items() if name != "split"}

    def bind(self, job: str) -> None:
        self.address, self.target = f"{job}/{self._place}", f"{job}/{self._target_place}"

    @property
    def operator(self) -> str:
        """The name of the operator that it feeds."""
        return self._target_place.rpartition("/")[0]

    def read(self, rows_max: int, now_s: float) -> Sequence[Output | CriticalOutput]:
        """What to emit now: perhaps rows, perhaps a watermark, at last the end. Empty: nothing has come, ask again later."""
        if self.has_ended:
            return ()
        if self._ends_at_once:
            told: list[Output | CriticalOutput] = []
            self.end(told, now_s)
            return told
        with self._failures_named():
            read_batch = self.split.read(rows_max)
        outputs: list[Output | CriticalOutput] = []
        if read_batch is not None:
            self._holds_time = read_batch.holds_time
            if read_batch.due_s is not None:
                now_s = read_batch.due_s
        if read_batch is not None and (read_batch.rows.num_rows or read_batch.bad or read_batch.reached_ms is not None):
            self._quiet_since_s = None
            if read_batch.bad:
                bad = [Bad(each.row, each.error) for each in read_batch.bad]
                outputs.append(self._output((BAD_PORT, bad), now_s))
            if read_batch.rows.num_rows:
                self._wake_up(outputs, now_s)
                self.rows += read_batch.rows.num_rows
                outputs += [self._output((READ_PORT, rows), now_s) for rows in self._cut(read_batch.rows)]
            if self._time is not None and (read_batch.rows.num_rows or read_batch.reached_ms is not None):
                self._note_times(self._time, read_batch)
                self._wake_up(outputs, now_s)
                self._tell_time_if_due(outputs, now_s)
        if self.split.ended:
            self.end(outputs, now_s)
        elif not outputs and read_batch is None:
            self._note_quiet(outputs, now_s)
        return outputs

    @property
    def holds_others_back(self) -> bool:
        """Whether those downstream wait for its watermarks."""
        return self._time is not None and not self._is_idle

    def end(self, outputs: list[Output | CriticalOutput], now_s: float) -> None:
        self.has_ended = True
        self.split.close()
        outputs.append(self._critical(Watermark(END), now_s, final=True))

    def capture(self) -> ReaderCapture:
        """What a snapshot keeps. It is taken between two reads."""
        position = None
        if not (self.has_ended or self._ends_at_once):
            with self._failures_named():
                # A split may give what it counts on, and others write it down later.
                position = copied(self.split.position()) if self.source.is_replayable else None
            if position is None:
                raise FlowError(f"the source '{self.source.name}' cannot be read again from a position.")
        return ReaderCapture(
            position,
            self.rows,
            self.newest_ms,
            self.watermark,
            self._is_idle,
            self._holds_time,
            self.has_ended,
            self._ends_at_once,
        )

    def restore(self, capture: ReaderCapture) -> None:
        """Go on from a capture, before anything is read. One that had ended is never read, and emits nothing.

        How long nothing has come counts anew: while nobody read, nothing could come.
        """
        self.rows = capture.rows
        self.newest_ms, self.watermark = capture.newest_ms, capture.watermark
        self._is_idle, self._holds_time = capture.is_idle, capture.holds_time
        self.has_ended, self._ends_at_once = capture.has_ended, capture.ends_at_once
        with self._failures_named():
            if capture.has_ended or capture.ends_at_once:
                self.split.close()
            else:
                self.split.seek(capture.position)

    def resume(self, capture: ReaderCapture | None) -> None:
        """Go on from a savepoint in another job. One that had ended then, or of which nothing was kept because the job had,
        tells those downstream once more that it has: they are new."""
        if capture is None or capture.has_ended or capture.ends_at_once:
            self._ends_at_once = True
            self.split.close()
        else:
            self.restore(capture)

    @contextmanager
    def _failures_named(self) -> Iterator[None]:
        """Say of which source an error is."""
        try:
            yield
        except DirigoError:
            raise
        except Exception as error:
            raise OperatorFailure(f"source '{self.source.name}' failed: {said(error)}") from error
        except BaseException as error:
            note_place(error, self.source.name, "source")
            raise

    def _cut(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Rows in messages, each with its own memory."""
        most = min(self.message_rows, self.source.rows_per_message)
        if rows.num_rows <= most:
            return [owned(rows)]
        return [cut(rows, start, most) for start in range(0, rows.num_rows, most)]

    def _output(self, payload: Any, now_s: float) -> Output:
        return Output(self.target, payload, now_s, now_s + self.latency_s)

    def _critical(self, watermark: Watermark, now_s: float, *, final: bool = False) -> CriticalOutput:
        return CriticalOutput(self.target, watermark, final=final, created=now_s, deadline=now_s + self.latency_s)

    def _note_times(self, time: TimeColumn, read_batch: SourceBatch) -> None:
        if read_batch.rows.num_rows:
            self.newest_ms = max(self.newest_ms, newest_of(time.read(read_batch.rows)))
        if read_batch.reached_ms is not None:
            self.newest_ms = max(self.newest_ms, read_batch.reached_ms)

    def _tell_time_if_due(self, outputs: list[Output | CriticalOutput], now_s: float) -> None:
        if self._holds_time:
            return
        watermark = self.newest_ms - self.source.out_of_orderness_ms
        is_due = self.grid_ms > self._every_ms or watermark >= self.watermark + self._every_ms
        if is_due:
            self._tell_time(outputs, now_s)

    def _tell_time(self, outputs: list[Output | CriticalOutput], now_s: float) -> None:
        """Emit a watermark, if it changes anything for anybody."""
        watermark = self.newest_ms - self.source.out_of_orderness_ms
        if passes(self.watermark, watermark, self.grid_ms):
            self.watermark = watermark
            outputs.append(self._critical(Watermark(watermark), now_s))

    def _wake_up(self, outputs: list[Output | CriticalOutput], now_s: float) -> None:
        """End idleness before the first row: from here on the others wait for this source again."""
        if self._is_idle:
            self._is_idle = False
            outputs.append(self._critical(Watermark(self.watermark), now_s))

    def _note_quiet(self, outputs: list[Output | CriticalOutput], now_s: float) -> None:
        """Nothing comes: tell how far time is, and after long enough do not hold up the others any more, if so asked for."""
        if self._holds_time:  # the rest of what has begun is on its way, and may be as old as what came
            return
        if self._time is not None and self.newest_ms > BEGINNING and not self._is_idle:
            self._tell_time(outputs, now_s)
        if self.source.idle_after_ms is None or self._is_idle:
            return
        if self._quiet_since_s is None:
            self._quiet_since_s = now_s
        elif (now_s - self._quiet_since_s) * 1000 >= self.source.idle_after_ms:
            self._is_idle = True
            outputs.append(self._critical(Watermark(self.watermark, is_idle=True), now_s))
