"""The operator around a user's function: whose states and calls are whose, and the check that they may be spread."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import gcd
from typing import Any

import pyarrow as pa

from dirigo.flow.api.duration import positive_milliseconds
from dirigo.flow.api.function import Function
from dirigo.flow.api.function_context import FunctionContext, Surroundings
from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.event_time.watermark import END
from dirigo.flow.exchange.edge import ByKey, Exchange, Onward
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.exchange.payloads import Own
from dirigo.flow.exchange.shares import Share
from dirigo.flow.operators.operator import Operator, StateMoment
from dirigo.flow.operators.process.state_columns import column_of_state, told_state, type_of_state
from dirigo.flow.operators.process.states import ProcessCapture, ProcessStates
from dirigo.flow.operators.process.timers import CLOCK, EVENT, Alone, Wake
from dirigo.flow.rows.keys import KeyColumns, in_order
from dirigo.flow.rows.row import python_values
from dirigo.flow.rows.schema import apart
from dirigo.state import NO_KEY, CurrentKey, KeyedStateSet, Lifetime, declared_states

_WHOLE: Hashable = ()  # the one key of a function whose states belong to the partition
_TTL_TIMES = {"event": EVENT, "clock": CLOCK}
_SWEEPS_PER_TTL = 4  # what has expired is removed within this part of its time to live, so that time is told seldom


class Process(Operator):
    """Rows handed to a user's function."""

    kind = "process"
    emits_per_row = True
    keeps_users_objects = True

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        time: TimeColumn | None,
        keys: tuple[str, ...],
        function: Function | type[Function] | Callable[[], Function],
        rows_schema: pa.Schema,
        rows_time: TimeColumn | None,
    ) -> None:
        """``rows_schema`` and ``rows_time`` are those of the rows that come in."""
        super().__init__(name, schema, time)
        self.keys = keys
        self.is_keyed = bool(keys)
        self._factory = _factory(function, name)
        example = self._factory()
        self._class = type(example)
        self._states = declared_states(self._class)
        self._rows_time = rows_time
        self.is_ordered = self.needs_order = example.ordered
        self._check(name, example.scope)
        self._lifetimes = {state: self._lifetime(state) for state, each in self._states.items() if each.ttl is not None}
        columns = KeyColumns(rows_schema, keys) if keys and example.scope == "key" else None
        self._key_kinds = [rows_schema.field(key).type for key in keys]
        is_per_key = columns is not None and self._keeps_something
        self._surroundings = Surroundings(name, schema, columns, rows_time, self.is_ordered, is_per_key, self._sweep_ms())

    @property
    def _keeps_something(self) -> bool:
        return bool(self._states) or self._overrides("on_timer")

    def _overrides(self, method: str) -> bool:
        return getattr(self._class, method) is not getattr(Function, method)

    def _check(self, name: str, scope: str) -> None:
        cls = self._class.__name__
        if not self._overrides("on_message") and not self._overrides("on_batch"):
            raise FlowError(f"{name}: {cls} handles no rows; give it a method on_message(self, context, row).")
        if scope not in ("key", "partition"):
            raise FlowError(f"{name}: the scope of {cls} is 'key' or 'partition', not {scope!r}.")
        if scope == "key" and not self.keys and self._keeps_something:
            what = "states" if self._states else "timers"
            raise FlowError(
                f"{name}: the {what} of {cls} belong to keys, and its rows have none; call key_by(...) before process, or "
                f'set `scope = "partition"` in {cls} if one state for all rows of a partition is meant.'
            )
        if self.is_ordered:
            return
        for state, declaration in self._states.items():
            if not declaration.combines:
                raise FlowError(
                    f"{name}: the state '{state}' of {cls} cannot be put together when the function runs at "
                    f"several workers; declare it with combine=... (for example combine=max), "
                    f"or set `ordered = True` in {cls}."
                )

    def _lifetime(self, state: str) -> Lifetime:
        declaration = self._states[state]
        what = f"{self.name}: the state '{state}' of {self._class.__name__}"
        assert declaration.ttl is not None
        length = positive_milliseconds(declaration.ttl, f"{what}: ttl")
        time = declaration.ttl_time or ("clock" if self._rows_time is None else "event")
        if time not in _TTL_TIMES:
            raise FlowError(f"{what}: ttl_time is 'event' or 'clock', not {time!r}.")
        if time == "event" and self._rows_time is None:
            raise FlowError(f"{what} expires by event time, but its rows have no time; name it at the source (time='...').")
        return Lifetime(_TTL_TIMES[time], length, is_exact=self.is_ordered)

    def _sweep_ms(self) -> int:
        """How long what has expired by the clock may stay."""
        lengths = [each.length for each in self._lifetimes.values() if each.axis == CLOCK]
        return min(lengths, default=0) // _SWEEPS_PER_TTL

    @property
    def watermark_grid_ms(self) -> int:
        grids = [each.length // _SWEEPS_PER_TTL or 1 for each in self._lifetimes.values() if each.axis == EVENT]
        if self._overrides("on_watermark") or (self._overrides("on_timer") and self._rows_time is not None):
            grids.append(1)
        return gcd(*grids)

    def describe(self) -> str:
        return f"process {self._class.__name__}"

    def exchange(self, port: int) -> Exchange:
        return ByKey(self.name, self.keys) if self.keys else Onward()

    def new_states(self) -> ProcessStates:
        current = CurrentKey(_WHOLE if self._surroundings.keys is None else NO_KEY, axes=2, listed=_listed)
        return ProcessStates(self._factory(), KeyedStateSet(self._states, current, self._lifetimes))

    def on_rows(self, states: ProcessStates, port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        self._context(states, emitter).on_rows(states.function, batch)

    def on_watermark(self, states: ProcessStates, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        context, function = self._context(states, emitter), states.function
        has_ended = now_ms >= END
        context.begin_alone(has_ended=has_ended)
        context.fire_event_timers(function, now_ms)
        context.expire(now_ms)
        if self._overrides("on_watermark"):
            context.call_each(function.on_watermark, now_ms)
        if has_ended and self._overrides("on_end"):
            context.call_each(function.on_end)
        context.finish()

    def on_alone(self, states: ProcessStates, payload: Any, emitter: Emitter) -> None:
        context = self._context(states, emitter)
        context.begin_alone()
        if isinstance(payload, Alone):
            context.call_for(payload.key, states.function.on_timer, payload.payload)
        elif isinstance(payload, Wake):
            context.fire_clock_timers(states.function, payload.due_s)
        context.finish()

    def on_critical(self, states: ProcessStates, payload: Any, emitter: Emitter) -> bool:
        if not self._overrides("on_critical"):
            return False
        context = self._context(states, emitter)
        context.begin_alone()
        context.call_each(states.function.on_critical, payload)
        context.finish()
        return not context.take_passed_on()

    # --- savepoints ----------------------------------------------------------------------------------------------------

    @property
    def state_form(self) -> str:
        """Of what it declares: code may change. A partition's states may be anything that the function does with them."""
        if not self._keeps_something:
            return ""
        states = [f"{name}: {told_state(each)}{self._told_expiry(name)}" for name, each in sorted(self._states.items())]
        keys = [f"{key}: {kind}" for key, kind in zip(self.keys, self._key_kinds, strict=True)]
        by = "partition" if self._surroundings.keys is None else "key"
        return f"per {by} ({', '.join(keys)}): {', '.join(states) or 'timers'}"

    def _told_expiry(self, state: str) -> str:
        """By which time: when each key was written is a number of milliseconds of that. How long is free to change."""
        lifetime = self._lifetimes.get(state)
        return "" if lifetime is None else f" that expires by {'event time' if lifetime.axis == EVENT else 'the clock'}"

    @property
    def can_be_divided(self) -> bool:
        return not self.state_form or self._surroundings.keys is not None

    def restore_share(self, states: ProcessStates, captures: Sequence[ProcessCapture], share: Share) -> None:
        if self._surroundings.keys is None:
            super().restore_share(states, captures, share)
        states.restore_share(captures, lambda keys: share.keys(keys, self._key_kinds, as_tuples=False))

    def share_of_timers(self, payloads: Sequence[Any], share: Share) -> list[bool]:
        """A wake-up is for whoever has something due; a wish to run alone is of one key."""
        keys = {each.payload.key for each in payloads if isinstance(each, Own) and isinstance(each.payload, Alone)}
        own = set() if self._surroundings.keys is None else set(share.keys(keys, self._key_kinds, as_tuples=False))
        return [
            not (isinstance(each, Own) and isinstance(each.payload, Alone)) or each.payload.key in own for each in payloads
        ]

    def look_at(self, partition: int, instances: Iterable[Any]) -> Iterable[tuple[Any, dict[str, Any]]]:
        """What the instances of a partition hold together, by key, or under the number of the partition."""
        whole = self.new_states()
        for instance in instances:
            whole.merge(instance.peek())
        columns = self._surroundings.keys
        if columns is None:
            return [(partition, whole.states.shown([_WHOLE])[_WHOLE])]
        held = whole.states.shown(in_order(whole.states.keys()))
        return [(_hashable(columns.shown(key)), values) for key, values in held.items()]

    def state_schema(self) -> pa.Schema | None:
        """One row per key, or the one of a partition: a column for each state. None without any."""
        if not self._states:
            return None
        columns = self._surroundings.keys
        fields = [pa.field("partition", pa.int64())] if columns is None else columns.fields()
        names = [field.name for field in fields]
        fields += [pa.field(apart(name, names), type_of_state(each)) for name, each in self._states.items()]
        return pa.schema(fields)

    def state_table(self, states: ProcessStates, moment: StateMoment) -> pa.Table:
        states.states.expire(CLOCK, moment.clock_ms)  # in event time, that has been done at the last watermark
        columns = self._surroundings.keys
        keys = [_WHOLE] if columns is None else in_order(states.states.keys())
        heading = [pa.array([moment.partition], pa.int64())] if columns is None else columns.columns(keys)
        values = [
            column_of_state(declaration, states.states.values_of(name, keys), f"the state '{name}'")
            for name, declaration in self._states.items()
        ]
        return pa.Table.from_arrays([*heading, *values], schema=self.state_schema())

    def _context(self, states: ProcessStates, emitter: Emitter) -> FunctionContext:
        context = states.context
        if context is None:
            context = states.context = FunctionContext(emitter, self._surroundings, states)
        context.attach(emitter)  # a function that was idle comes back with a new one
        return context


def _listed(values: Any) -> list[Any]:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return python_values(values)
    return values.tolist() if hasattr(values, "tolist") else list(values)  # of numpy: as Python's numbers


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key


def _factory(function: Any, name: str) -> Callable[[], Function]:
    if isinstance(function, Function):
        return lambda: copy.copy(function)
    try:
        made = function() if callable(function) else None
    except Exception as error:
        raise FlowError(
            f"{name}: {getattr(function, '__name__', function)}() cannot be made ({type(error).__name__}: {error}); "
            "hand over an instance, or a function without arguments that makes one."
        ) from error
    if not isinstance(made, Function):
        raise FlowError(f"{name}: takes a dirigo.Function (a subclass of it, or an instance), not {function!r}.")
    return function  # type: ignore[no-any-return]
