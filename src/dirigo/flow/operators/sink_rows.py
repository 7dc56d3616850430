"""The last actor of a stream: it hands rows to a sink's writer, in the order of each channel."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa

from dirigo.flow.event_time.watermark import END
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.operators.operator import Operator
from dirigo.flow.plan.states import WholeState
from dirigo.flow.sinks.sink import Sink, Writer


class SinkRows(Operator):
    """One writer per partition, opened with the first thing that it has to write, or at the end."""

    kind = "sink"
    is_ordered = True
    keeps_users_objects = True

    def __init__(self, name: str, schema: pa.Schema, sink: Sink) -> None:
        super().__init__(name, schema, None)
        self.sink = sink
        self._open: list[Writer] = []  # in this process, and not closed

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_open": []}

    def abandon(self) -> None:
        """The job ends without its last rows: have all writers of this process let go."""
        for writer in self._open:
            with suppress(Exception):
                writer.abandon()
        self._open.clear()

    def describe(self) -> str:
        return f"sink {self.sink.name}"

    def new_states(self) -> WholeState[list[Writer]]:
        return WholeState(list, lambda writers: sum(writer.held_bytes() for writer in writers))

    def on_rows(self, states: WholeState[list[Writer]], port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        writer = self._writer(states, emitter)
        writer.write(batch)
        writer.flush()

    def on_watermark(self, states: WholeState[list[Writer]], before_ms: int, now_ms: int, emitter: Emitter) -> None:
        if now_ms >= END:
            writer = self._writer(states, emitter)
            writer.close()
            self._open.remove(writer)

    def on_critical(self, states: Any, payload: Any, emitter: Emitter) -> bool:
        return True  # nobody is downstream

    def _writer(self, states: WholeState[list[Writer]], emitter: Emitter) -> Writer:
        if not states.value:
            states.value.append(self.sink.open(self.schema, emitter.partition))
            self._open.append(states.value[0])
        return states.value[0]
