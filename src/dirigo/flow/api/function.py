"""A function of the user's own, with managed states, timers and critical messages: the actor underneath the operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import pyarrow as pa

from dirigo.flow.api.duration import Duration, milliseconds
from dirigo.flow.errors import RowFailure
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.operators.steps import fitting
from dirigo.flow.rows.bad_rows import Bad
from dirigo.flow.rows.own_memory import owned
from dirigo.flow.rows.row import Row, rows_of, told
from dirigo.flow.rows.unreadable import rows_told
from dirigo.kernel import Granularity

_GRANULARITIES = {"channel": Granularity.CHANNEL, "one": Granularity.ONE}


class Function:
    """Subclass it, declare states as class attributes, and override what you need.

    ``on_message`` may run at several workers at once, each with a partial state of its own; everything else runs alone, with
    the whole state. Set ``ordered = True`` if the function must see its rows one after the other at one place.
    Keep nothing in attributes of your own: an idle function is thrown away, only its states stay.
    """

    ordered: ClassVar[bool] = False

    def on_message(self, context: FunctionContext, row: Row) -> None:
        """A row has come."""
        raise NotImplementedError(f"{type(self).__name__} must say in on_message (or on_batch) what happens to a row")

    def on_batch(self, context: FunctionContext, batch: pa.RecordBatch) -> None:
        """Many rows have come: override this instead of ``on_message`` to work on Arrow columns."""
        for row in rows_of(batch):
            context.on_row(self, row)

    def on_watermark(self, context: FunctionContext, time_ms: int) -> None:
        """No row older than ``time_ms`` follows."""

    def on_timer(self, context: FunctionContext, payload: Any) -> None:
        """A timer of this function is due, or something that it asked to run alone."""

    def on_critical(self, context: FunctionContext, payload: Any) -> None:  # noqa: ARG002
        """A critical message of a function upstream. By default it is passed on.

        A barrier with ``granularity="one"`` has a message of each upstream partition; it is passed on once, with the first.
        """
        context.pass_on()

    def on_end(self, context: FunctionContext) -> None:
        """All inputs have ended."""


class _Request(NamedTuple):
    """Something that a call asked for besides rows. It stands among the rows, and is done if the call succeeds."""

    do: Callable[[], None]


class FunctionContext:
    """What a function can do while it runs.

    Nothing leaves before the call has succeeded: a row has an outcome or an error, not both.
    """

    __slots__ = ("_emitter", "_name", "_outputs", "_passed_on", "_schema")

    def __init__(self, emitter: Emitter, name: str, schema: pa.Schema) -> None:
        self._emitter = emitter
        self._name = name
        self._schema = schema
        self._outputs: list[Any] = []  # rows and requests, in the order in which the function made them
        self._passed_on = False

    @property
    def now_s(self) -> float:
        """The host's clock, in seconds."""
        return self._emitter.context.now

    @property
    def watermark_ms(self) -> int:
        """How far event time has come."""
        return self._emitter.watermark

    @property
    def partition(self) -> int:
        return self._emitter.partition

    def emit(self, row: Mapping[str, Any] | Any) -> None:
        """Send a row downstream."""
        self._outputs.append(row)

    def emit_batch(self, batch: pa.RecordBatch) -> None:
        """Send many rows downstream."""
        if not batch.schema.equals(self._schema):
            batch = batch.select(self._schema.names).cast(self._schema)
        self._ask(self._emitter.rows, owned(batch))

    def emit_critical(self, payload: Any, *, granularity: Literal["channel", "one"] = "channel") -> None:
        """Send a critical message to every function downstream. It runs there alone, after all that was emitted before, and
        before all that is emitted after it.

        With ``granularity="one"`` it waits for the others that send to the same function: the first of each make the first
        barrier, the second of each the second, and so on. Whoever has ended is not waited for.
        """
        if granularity not in _GRANULARITIES:
            raise ValueError(f"granularity is 'channel' or 'one', not {granularity!r}")
        for to in self._emitter.downstreams:
            self._ask(self._emitter.context.emit_critical, to, payload, granularity=_GRANULARITIES[granularity])

    def run_alone(self, payload: Any) -> None:
        """Have ``on_timer`` called as soon as the whole state is together."""
        self._ask(self._emitter.run_alone, payload)

    def set_timer(self, after: Duration, payload: Any = None) -> None:
        """Have ``on_timer`` called after a while, by the host's clock."""
        due = self.now_s + milliseconds(after, f"{self._name}: set_timer") / 1000
        self._ask(self._emitter.set_timer, due, payload)

    def _ask(self, do: Callable[..., None], *arguments: Any, **options: Any) -> None:
        self._outputs.append(_Request(partial(do, *arguments, **options)))

    # --- for the operator that runs the function -----------------------------------------------------------------------

    def attach(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def on_row(self, function: Function, row: Row) -> None:
        before = len(self._outputs)
        try:
            function.on_message(self, row)
        except Exception as error:  # user code may raise anything
            del self._outputs[before:]
            self._emitter.bad([Bad(told(row), error)], self._name)

    def on_rows(self, function: Function, batch: pa.RecordBatch) -> None:
        try:
            function.on_batch(self, batch)
        except RowFailure:
            raise
        except Exception as error:  # user code may raise anything
            self._outputs.clear()
            self._emitter.bad([Bad(row, error) for row in rows_told(batch)], self._name)
        self.flush()

    def on_event(self, method: Callable[..., None], *arguments: Any) -> None:
        """Call one of the function's methods that run alone. What it fails on is no row, but it is reported like one."""
        try:
            method(self, *arguments)
        except RowFailure:
            raise
        except Exception as error:  # user code may raise anything
            self._outputs.clear()
            call = f"{method.__name__}({', '.join(repr(each) for each in arguments)})"
            self._emitter.bad([Bad(call, error, "the call")], self._name)
        self.flush()

    def pass_on(self) -> None:
        self._passed_on = True

    def take_passed_on(self) -> bool:
        passed_on, self._passed_on = self._passed_on, False
        return passed_on

    def flush(self) -> None:
        """Send what the calls so far emitted, and do what they asked for, in order."""
        outputs, self._outputs = self._outputs, []
        rows: list[Any] = []
        for output in outputs:
            if type(output) is _Request:
                self._send(rows)
                rows = []
                output.do()
            else:
                rows.append(output)
        self._send(rows)

    def _send(self, rows: list[Any]) -> None:
        if rows:
            bad: list[Bad] = []
            batch = fitting(rows, self._schema, bad)
            self._emitter.bad(bad, self._name)
            self._emitter.rows(batch)
