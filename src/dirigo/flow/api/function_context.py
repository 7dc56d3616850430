"""What a function of the user's own can do while it runs: emit, set timers, ask which key is the current one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import repeat
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from dirigo.flow.api.duration import Duration, milliseconds
from dirigo.flow.errors import FlowError, RowFailure
from dirigo.flow.event_time.time_column import LATEST_MS, TimeColumn
from dirigo.flow.event_time.watermark import BEGINNING, END
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.operators.process.timers import CLOCK, EVENT, Alone, Timers, Wake
from dirigo.flow.operators.steps import fitting
from dirigo.flow.rows.bad_rows import Bad
from dirigo.flow.rows.keys import KeyColumns, in_order
from dirigo.flow.rows.own_memory import owned
from dirigo.flow.rows.row import rows_of, told
from dirigo.flow.rows.unreadable import rows_told
from dirigo.kernel import Granularity

if TYPE_CHECKING:
    from dirigo.flow.api.function import Function
    from dirigo.flow.operators.process.states import ProcessStates  # which are built on this

_GRANULARITIES = {"channel": Granularity.CHANNEL, "one": Granularity.ONE}
_SENT_AT_ONCE = 4096  # rows and requests of calls for many keys
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Surroundings:
    """What is known of a function before it runs."""

    name: str  # of the operator
    schema: pa.Schema  # of what it emits
    keys: KeyColumns | None  # that it is called by; None where everything belongs to the partition
    time: TimeColumn | None  # of its rows
    is_ordered: bool
    is_per_key: bool  # it keeps something for keys, so what runs alone is called for each of them
    sweep_ms: int  # how long what has expired by the clock may stay


class _Request(NamedTuple):
    """Something that a call asked for besides rows. It stands among the rows, and is done if the call succeeds."""

    do: Callable[[], None]


class FunctionContext:
    """What a function can do while it runs.

    Nothing leaves before the call has succeeded: a row has an outcome or an error, not both.
    """

    __slots__ = (
        "_batch",
        "_current",
        "_emitter",
        "_firing_ms",
        "_has_ended",
        "_is_alone",
        "_keys",
        "_outputs",
        "_passed_on",
        "_resting",
        "_states",
        "_surroundings",
        "_timer_requests",
        "_times",
    )

    def __init__(self, emitter: Emitter, surroundings: Surroundings, states: ProcessStates) -> None:
        self._emitter = emitter
        self._surroundings = surroundings
        self._states = states
        self._current = states.states.current
        self._resting = self._current.key  # while nothing is called for a key
        self._outputs: list[Any] = []  # rows and requests, in the order in which the function made them
        self._timer_requests: list[Callable[[], None]] = []  # apart: they have no place among the rows
        self._passed_on = False
        self._is_alone = False
        self._has_ended = False
        self._firing_ms: int | None = None  # the event time of the timers that fire
        self._batch: pa.RecordBatch | None = None
        self._keys: list[Hashable] | None = None  # of its rows, once somebody has asked
        self._times: list[int] | None = None  # so are these

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

    @property
    def key(self) -> Any:
        """The current key: a value, or a tuple where ``key_by`` names several columns."""
        columns = self._key_columns()
        hash(self._current.key)  # says it, if there is none
        return columns.shown(self._current.key)

    @property
    def keys(self) -> list[Any]:
        """In ``on_batch``, the key of each row."""
        columns = self._key_columns()
        return [columns.shown(key) for key in self._current.row_keys()]

    def _key_columns(self) -> KeyColumns:
        if self._surroundings.keys is None:
            raise FlowError(
                f"{self._surroundings.name}: there is no key here; call key_by(...) before process, and leave the "
                'function its scope = "key".'
            )
        return self._surroundings.keys

    def at_row(self, position: int) -> None:
        """In ``on_batch``: make the key of a row the current one, for ``get``, ``set``, timers and the like."""
        keys = self._current.row_keys()
        if not 0 <= position < len(keys):
            raise FlowError(f"at_row takes a position from 0 to {len(keys) - 1}, as there are rows, not {position}.")
        self._current.key = keys[position]
        if self._states.states.expires:
            self._current.now[EVENT] = self._row_numbers(EVENT)[position]
            self._states.states.expire_current(exact_only=True)

    def emit(self, row: Mapping[str, Any] | Any) -> None:
        """Send a row downstream."""
        self._outputs.append(row)

    def emit_batch(self, batch: pa.RecordBatch) -> None:
        """Send many rows downstream."""
        schema = self._surroundings.schema
        if not batch.schema.equals(schema):
            batch = batch.select(schema.names).cast(schema)
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

    # --- timers --------------------------------------------------------------------------------------------------------

    def run_alone(self, payload: Any) -> None:
        """Have ``on_timer`` called as soon as the whole state is together."""
        self._ask(self._emitter.run_alone, Alone(self._current_key(), payload))

    def set_timer(self, after: Duration, payload: Any = None, *, name: str | None = None) -> None:
        """Have ``on_timer`` called after a while, by the host's clock.

        A timer with a name replaces the key's timer of that name. In a parallel function, of those set by several workers
        the latest counts.
        """
        due = self.now_s + milliseconds(after, f"{self._surroundings.name}: set_timer") / 1000
        self._set(self._states.clock_timers, name, due, payload)

    def set_event_timer(self, at: int | datetime, payload: Any = None, *, name: str | None = None) -> None:
        """Have ``on_timer`` called when no row older than ``at`` follows: milliseconds since the epoch, or a datetime.

        Names are as with ``set_timer``. At the end of the input all event timers are due.
        """
        if self._surroundings.time is None:
            raise FlowError(
                f"{self._surroundings.name}: set_event_timer needs rows with a time; name it at the source (time='...'), or "
                "use set_timer, which goes by the clock."
            )
        at_ms = min(_milliseconds(at), END)  # what is set for later than that is due at the end as well
        if self._firing_ms is not None:  # time goes on from one timer to the next, so that there is an end
            at_ms = max(at_ms, self._firing_ms + 1)
        self._set(self._states.event_timers, name, at_ms, payload)

    def delete_timer(self, name: str) -> None:
        """Let the key's timer of this name not fire. In a parallel function only while it runs alone."""
        if not self._is_alone and not self._surroundings.is_ordered:
            raise FlowError(
                f"{self._surroundings.name}: delete_timer deletes nothing at other workers, so a parallel function "
                "cannot call it in on_message or on_batch; call it in on_timer or on_watermark, or set `ordered = True`."
            )
        key = self._current_key()
        self._timer_requests.append(partial(self._states.event_timers.delete, key, name))
        self._timer_requests.append(partial(self._states.clock_timers.delete, key, name))

    def _set(self, timers: Timers[Any], name: str | None, due: float, payload: Any) -> None:
        if name is not None and not isinstance(name, str):
            raise FlowError(f"{self._surroundings.name}: the name of a timer is a text, not {name!r}.")
        key = self._current_key()
        if not self._has_ended:  # nothing may follow the end
            replaces = self._is_alone or self._surroundings.is_ordered
            self._timer_requests.append(partial(timers.set, key, name, due, payload, replaces=replaces))

    def _current_key(self) -> Hashable:
        key = self._current.key
        hash(key)  # says it, if there is none
        return key

    def _ask(self, do: Callable[..., None], *arguments: Any, **options: Any) -> None:
        self._outputs.append(_Request(partial(do, *arguments, **options)))

    # --- for the operator that runs the function: rows -----------------------------------------------------------------

    def attach(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def on_rows(self, function: Function, batch: pa.RecordBatch) -> None:
        self._is_alone = False
        self._take_up(batch)
        self._current.begin_batch(self._row_keys, self._row_numbers)
        if self._states.states.expires:
            self._set_times(self._emitter.watermark)
        try:
            function.on_batch(self, batch)
        except RowFailure:
            raise
        except Exception as error:  # user code may raise anything
            self._take_back(0, 0)
            self._emitter.bad([Bad(row, error) for row in rows_told(batch)], self._surroundings.name)
        finally:
            self._current.end_batch()
            self._current.key = self._resting
        self.finish()

    def each_row(self, function: Function, batch: pa.RecordBatch) -> None:
        """Call ``on_message`` for each row, with its key as the current one."""
        outer = (self._batch, self._keys, self._times)
        if batch is not self._batch:  # the function has made another one of it
            self._take_up(batch)
        current, on_message, outputs, requests = self._current, function.on_message, self._outputs, self._timer_requests
        keys: Iterable[Hashable] = repeat(current.key) if self._surroundings.keys is None else self._row_keys()
        times = self._row_numbers(EVENT) if self._states.states.expires else None
        before = current.key
        for position, (row, current.key) in enumerate(zip(rows_of(batch), keys, strict=False)):
            if times is not None:
                current.now[EVENT] = times[position]
                self._states.states.expire_current(exact_only=True)
            made, requested = len(outputs), len(requests)
            try:
                on_message(self, row)
            except Exception as error:  # user code may raise anything
                self._take_back(made, requested)
                self._emitter.bad([Bad(told(row), error)], self._surroundings.name)
        current.key = before
        self._batch, self._keys, self._times = outer

    def _take_up(self, batch: pa.RecordBatch) -> None:
        self._batch, self._keys, self._times = batch, None, None

    def _row_keys(self) -> list[Hashable]:
        if self._keys is None:
            assert self._batch is not None
            columns = self._surroundings.keys
            self._keys = [self._resting] * self._batch.num_rows if columns is None else columns.read(self._batch)
        return self._keys

    def _row_numbers(self, axis: int) -> list[int]:
        """When each row is, in milliseconds."""
        assert self._batch is not None
        time = self._surroundings.time
        if axis == CLOCK or time is None:
            return [self._current.now[axis]] * self._batch.num_rows
        if self._times is None:
            times = time.read(self._batch)
            is_known = (times >= 0) & (times <= LATEST_MS)
            self._times = np.where(is_known, times, self._current.now[EVENT]).tolist()
        return self._times

    # --- for the operator that runs the function: calls that run alone -------------------------------------------------

    def begin_alone(self, *, has_ended: bool = False) -> None:
        self._is_alone = True
        self._has_ended = has_ended
        self._set_times(self._emitter.watermark)

    def call_each(self, method: Callable[..., None], *arguments: Any) -> None:
        """Call a method for every key that holds something; once where nothing belongs to keys."""
        if not self._surroundings.is_per_key:
            self._call(method, *arguments)
            return
        for key in in_order(self._states.keys()):
            self.call_for(key, method, *arguments)

    def call_for(self, key: Hashable, method: Callable[..., None], *arguments: Any) -> None:
        self._current.key = key
        self._call(method, *arguments)
        self._current.key = self._resting
        if len(self._outputs) >= _SENT_AT_ONCE:
            self._flush()

    def fire_event_timers(self, function: Function, now_ms: int) -> None:
        """Those due up to now, in the order of their times, those set meanwhile among them."""
        timers, expires = self._states.event_timers, self._states.states.expires
        now = self._current.now[EVENT]
        while (due := timers.take_next(now_ms)) is not None:
            self._firing_ms = self._current.now[EVENT] = due[0]
            for item in due[1]:
                self._fire(function, timers, item, due[0], expires)
        self._firing_ms = None
        self._current.now[EVENT] = now

    def fire_clock_timers(self, function: Function, due_s: float) -> None:
        """Those due by now; what they set is left for the next time."""
        now_s = max(self.now_s, due_s)
        if self._states.wake_s <= now_s:
            self._states.wake_s = inf
        timers, expires = self._states.clock_timers, self._states.states.expires
        due = []
        while (at := timers.take_next(now_s)) is not None:
            due.append(at)
        for number, items in due:
            for item in items:
                self._fire(function, timers, item, number, expires)
        self._states.states.expire(CLOCK, int(now_s * 1000))

    def _fire(self, function: Function, timers: Timers[Any], item: Any, due: float, expires: bool) -> None:
        payload = timers.pop(item, due)
        if payload is None:
            return
        if expires:
            self._current.key = item[0]
            self._states.states.expire_current()
        self.call_for(item[0], function.on_timer, payload[0])

    def expire(self, now_ms: int) -> None:
        """Time has moved: forget what was not written for long. At the end that is as of the last row."""
        states = self._states.states
        if states.expires:
            newest = states.newest(EVENT)
            if now_ms >= END:
                now_ms = BEGINNING if newest is None else newest
            states.expire(EVENT, now_ms)
            states.expire(CLOCK, self._current.now[CLOCK])
            self._current.now[EVENT] = max(self._current.now[EVENT], now_ms)

    def _set_times(self, watermark_ms: int) -> None:
        """When it is for what has no row: at the watermark; before the first one, when the newest row was."""
        newest = self._states.states.newest(EVENT)
        self._current.now[EVENT] = watermark_ms if newest is None else max(watermark_ms, newest)
        self._current.now[CLOCK] = int(self.now_s * 1000)

    def _call(self, method: Callable[..., None], *arguments: Any) -> None:
        """Call one of the function's methods that run alone. What it fails on is no row, but it is reported like one."""
        before = len(self._outputs)
        try:
            method(self, *arguments)
        except RowFailure:
            raise
        except Exception as error:  # user code may raise anything
            self._take_back(before, 0)
            call = f"{method.__name__}({', '.join(repr(each) for each in arguments)})"
            if self._surroundings.is_per_key:
                call += f" for the key {self.key!r}"
            self._emitter.bad([Bad(call, error, "the call")], self._surroundings.name)
        self._apply_timer_requests()

    def pass_on(self) -> None:
        self._passed_on = True

    def take_passed_on(self) -> bool:
        passed_on, self._passed_on = self._passed_on, False
        return passed_on

    # --- afterwards ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Send what the calls so far emitted, do what they asked for, and see to it that what is due later comes up."""
        self._apply_timer_requests()
        self._flush()
        states = self._states
        due_s = states.clock_timers.next_due()
        if self._surroundings.sweep_ms:
            expiry_ms = states.states.next_expiry(CLOCK)
            if expiry_ms is not None:
                sweep_s = (expiry_ms + self._surroundings.sweep_ms) / 1000
                due_s = sweep_s if due_s is None else min(due_s, sweep_s)
        if due_s is not None and due_s < states.wake_s and not self._has_ended:
            states.wake_s = due_s
            self._emitter.set_timer(due_s, Wake(due_s))

    def _apply_timer_requests(self) -> None:
        if self._timer_requests:
            for request in self._timer_requests:
                request()
            self._timer_requests.clear()

    def _take_back(self, made: int, requested: int) -> None:
        del self._outputs[made:]
        del self._timer_requests[requested:]

    def _flush(self) -> None:
        outputs = self._outputs[:]
        self._outputs.clear()
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
            batch = fitting(rows, self._surroundings.schema, bad)
            self._emitter.bad(bad, self._surroundings.name)
            self._emitter.rows(batch)


def _milliseconds(at: Any) -> int:
    if isinstance(at, datetime):
        return ((at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - _EPOCH) // _MS
    try:
        return operator.index(at)
    except TypeError:
        raise FlowError(f"set_event_timer takes milliseconds since the epoch or a datetime, not {at!r}.") from None
