"""Whether the rows of a split keep what it has promised of event time."""

from __future__ import annotations

from dirigo.flow.event_time.time_column import LATEST_MS, TimeColumn
from dirigo.flow.event_time.watermark import BEGINNING
from dirigo.flow.sources.source import Source, SourceBatch
from dirigo.testing.findings import fail


class PromisedTimes:
    """What one split has promised of event time by the rows that it has given."""

    def __init__(self, source: Source) -> None:
        self._column = None if source.time is None else TimeColumn.of(source.schema, source.time, source.name)
        self._out_of_orderness_ms = source.out_of_orderness_ms
        self._promised_ms = self._newest_ms = BEGINNING

    def note(self, who: str, number: int, found: SourceBatch) -> None:
        if self._column is None:
            return
        times = self._column.read(found.rows)
        valid = times[(times >= 0) & (times <= LATEST_MS)]
        if len(valid):
            behind_ms = self._promised_ms - int(valid.min())
            if behind_ms > 0:
                fail(
                    who,
                    f"reads a row in split {number} that is {behind_ms} ms older than its out_of_orderness of "
                    f"{self._out_of_orderness_ms} ms allows, so windows may drop it as late",
                )
            self._newest_ms = max(self._newest_ms, int(valid.max()))
        if found.reached_ms is not None:
            self._newest_ms = max(self._newest_ms, found.reached_ms)
        if not found.holds_time and self._newest_ms > BEGINNING:
            self._promised_ms = max(self._promised_ms, self._newest_ms - self._out_of_orderness_ms)
