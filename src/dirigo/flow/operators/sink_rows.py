"""The last actor of a stream: it hands rows to a sink's writer, in the order of each channel.

What whoever runs a job with snapshots calls, of each sink's operator in each process. ``prepared`` is what ``capture``
returned: plain data, or None where a writer has nothing to commit.

1. ``hold_back(generation)``: before anything of the generation runs.
2. ``restore(prepared)`` of the new states: on the worker thread, before the first message, in a generation that goes on from
   a snapshot. It commits what the snapshot has prepared, so ``commit`` need not be called for it.
3. ``capture()`` of the states: on the worker thread, at the barrier of a snapshot. A sink's actor that has ended gets no
   barrier: ``ended()`` has what those prepared last, from the moment at which their last message has run.
4. ``sync(prepared)``: on another thread, before the manifest is written. If it raises, the snapshot must not be committed.
5. ``commit(prepared)``: on the worker thread, once the manifest is on the disk, in the order of snapshots; some may be left
   out, and any may be repeated. It works for any partition, also for one whose actor was elsewhere, or is no more.
6. At the end of the job, a last snapshot, committed as any other. Then, or if the job fails or is cancelled,
   ``abandon()``; if only the generation ends, ``let_go()`` instead. Before either, ``commit`` gets what was committed.

Without snapshots there is only ``abandon()``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.errors import OperatorFailure, failure_of
from dirigo.flow.event_time.watermark import END
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.operators.operator import Operator
from dirigo.flow.plan.states import WholeState
from dirigo.flow.sinks.sink import Sink, Writer
from dirigo.state import copied

_ROLL: Final = "roll"


class OpenPart:
    """The writer of one partition."""

    __slots__ = ("has_ended", "partition", "prepared", "waits_to_roll", "writer")

    def __init__(self, partition: int, writer: Writer) -> None:
        self.partition = partition
        self.writer = writer
        self.waits_to_roll = False  # there is a timer
        self.has_ended = False
        self.prepared: Any = None  # last, when it has ended

    def capture(self) -> Any:
        if self.has_ended:
            return self.prepared
        return self._cut(has_ended=False)

    def end(self) -> None:
        self.writer.close()
        self.prepared = self._cut(has_ended=True)
        self.has_ended = True

    def _cut(self, *, has_ended: bool) -> Any:
        cut = copied(self.writer.cut())  # it may be what the writer goes on with, and others write it down later
        return None if cut is None else {"partition": self.partition, "cut": cut, "has_ended": has_ended}


class SinkStates(WholeState[list[OpenPart]]):
    """At most one writer, which is opened with the first thing that it has to write, or at the end."""

    __slots__ = ("_operator",)

    def __init__(self, operator: SinkRows) -> None:
        super().__init__(list, lambda parts: sum(part.writer.held_bytes() for part in parts))
        self._operator = operator

    def capture(self) -> Any:
        """What the writer has prepared; None if it has nothing that can be committed.

        A writer that fails here may have lost its rows, and the next snapshot would be without them. So it fails the job.
        """
        try:
            return self.value[0].capture() if self.value else None
        except DirigoError as error:
            raise OperatorFailure(str(error)) from error
        except Exception as error:  # a sink is somebody's code
            raise failure_of(self._operator.name, error) from error

    def restore(self, captured: Any) -> None:
        if captured is not None:
            self.value = [self._operator.resumed(captured)]


class SinkRows(Operator):
    """One writer per partition."""

    kind = "sink"
    is_ordered = True
    keeps_users_objects = True

    def __init__(self, name: str, schema: pa.Schema, sink: Sink) -> None:
        super().__init__(name, schema, None)
        self.sink = sink
        self._generation: int | None = None  # of a job with snapshots
        self._open: dict[int, OpenPart] = {}  # in this process, and not over; by partition

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_open": {}, "_generation": None}

    def describe(self) -> str:
        return f"sink {self.sink.name}"

    def new_states(self) -> SinkStates:
        return SinkStates(self)

    def on_rows(self, states: SinkStates, port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        part = states.value[0] if states.value else self._opened(states, emitter)
        writer = part.writer
        writer.write(batch)
        writer.flush()
        if self._generation is None and not part.waits_to_roll and (wait_ms := writer.roll_every_ms) is not None:
            part.waits_to_roll = True
            emitter.set_timer(emitter.context.now + wait_ms / 1000, _ROLL)

    def on_alone(self, states: SinkStates, payload: Any, emitter: Emitter) -> None:
        for part in states.value:
            part.waits_to_roll = False
            if self._generation is None:
                part.writer.roll()

    def on_watermark(self, states: SinkStates, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        if now_ms >= END:
            part = states.value[0] if states.value else self._opened(states, emitter)
            if self._generation is None:
                part.writer.close()
                part.has_ended = True
            else:
                part.end()
            if part.prepared is None:
                del self._open[part.partition]

    def on_critical(self, states: Any, payload: Any, emitter: Emitter) -> bool:
        return True  # nobody is downstream

    # --- the ends of a job ---------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """The job ends without its last rows: have all writers of this process let go, and show nothing more."""
        for part in self._open.values():
            with suppress(Exception):
                part.writer.abandon()
        self._open.clear()

    def let_go(self) -> None:
        """This process goes on no longer, but the job will, from a snapshot: what was prepared stays."""
        for part in self._open.values():
            with suppress(Exception):
                part.writer.let_go()
        self._open.clear()

    # --- snapshots -----------------------------------------------------------------------------------------------------

    def hold_back(self, generation: int) -> None:
        """The job takes snapshots, and this is how often it has begun before: 0 is the first time."""
        self._generation = generation

    def ended(self) -> dict[int, Any]:
        """What partitions that have ended here prepared last, as long as that has not been committed."""
        return {partition: part.prepared for partition, part in tuple(self._open.items()) if part.has_ended}

    def sync(self, prepared: Any) -> None:
        """Bring to the disk what was prepared."""
        if prepared is not None:
            part = self._open.get(prepared["partition"])
            writer = self._new_writer(prepared["partition"]) if part is None else part.writer
            writer.sync(prepared["cut"])
            if part is None:
                writer.let_go()

    def commit(self, prepared: Any) -> None:
        """The snapshot is committed: make visible what was prepared for it."""
        if prepared is None:
            return
        part = self._open.get(prepared["partition"])
        writer = self._new_writer(prepared["partition"]) if part is None else part.writer
        writer.commit(prepared["cut"])
        if part is None:
            writer.let_go()
        elif part.has_ended and prepared["has_ended"]:
            writer.let_go()
            del self._open[part.partition]

    def resumed(self, prepared: Any) -> OpenPart:
        """The writer that goes on in place of the one that prepared this."""
        part = self._added(prepared["partition"])
        part.writer.resume(prepared["cut"])
        part.has_ended = prepared["has_ended"]
        if part.has_ended:
            part.prepared = prepared
        return part

    def _opened(self, states: SinkStates, emitter: Emitter) -> OpenPart:
        part = self._added(emitter.partition)
        states.value.append(part)
        return part

    def _added(self, partition: int) -> OpenPart:
        part = self._open[partition] = OpenPart(partition, self._new_writer(partition))
        return part

    def _new_writer(self, partition: int) -> Writer:
        writer = self.sink.open(self.schema, partition)
        if self._generation is not None:
            writer.hold_back(self._generation)
        return writer
