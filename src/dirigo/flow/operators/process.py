"""The operator around a user's function: its states, its calls, and the check that they may be spread over workers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from dirigo.flow.api.function import Function, FunctionContext
from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.event_time.watermark import END
from dirigo.flow.exchange.edge import ByKey, Exchange, Onward
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.operators.operator import Operator
from dirigo.flow.rows.held_bytes import held_bytes
from dirigo.state import StateSet, bind, declared_states


class ProcessStates:
    """The managed states of one instance, and the function bound to them."""

    __slots__ = ("context", "function", "states")

    def __init__(self, function: Function, states: StateSet) -> None:
        self.function = function
        self.states = states
        self.context: FunctionContext | None = None
        bind(function, states)

    def take(self) -> Any:
        return self.states.take()

    def merge(self, partial: Any) -> None:
        self.states.merge(partial)

    def is_identity(self) -> bool:
        return self.states.is_identity()

    def size_bytes(self) -> int:
        return self.states.size_bytes()

    def held_bytes(self) -> int:
        return sum(held_bytes(value) for value in self.states.values())

    def view(self) -> Any:
        return self.states.view()

    def install_view(self, view: Any) -> None:
        self.states.install_view(view)


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
    ) -> None:
        super().__init__(name, schema, time)
        self.keys = keys
        self.is_keyed = bool(keys)
        self._factory = _factory(function, name)
        example = self._factory()
        self._class = type(example)
        self._states = declared_states(self._class)
        self.is_ordered = self.needs_order = example.ordered
        self._check(name)

    def _check(self, name: str) -> None:
        cls = self._class
        if cls.on_message is Function.on_message and cls.on_batch is Function.on_batch:
            raise FlowError(f"{name}: {cls.__name__} handles no rows; give it a method on_message(self, context, row).")
        if self.is_ordered:
            return
        for state, declaration in self._states.items():
            if not declaration.combines:
                raise FlowError(
                    f"{name}: the state '{state}' of {cls.__name__} cannot be put together when the function runs at "
                    f"several workers; declare it with combine=... (for example combine=max), "
                    f"or set `ordered = True` in {cls.__name__}."
                )

    @property
    def watermark_grid_ms(self) -> int:
        return 0 if self._class.on_watermark is Function.on_watermark else 1

    def describe(self) -> str:
        return f"process {self._class.__name__}"

    def exchange(self, port: int) -> Exchange:
        return ByKey(self.name, self.keys) if self.keys else Onward()

    def new_states(self) -> ProcessStates:
        return ProcessStates(self._factory(), StateSet(self._states))

    def on_rows(self, states: ProcessStates, port: int, batch: pa.RecordBatch, emitter: Emitter) -> None:
        self._context(states, emitter).on_rows(states.function, batch)

    def on_watermark(self, states: ProcessStates, before_ms: int, now_ms: int, emitter: Emitter) -> None:
        context = self._context(states, emitter)
        context.on_event(states.function.on_watermark, now_ms)
        if now_ms >= END:
            context.on_event(states.function.on_end)

    def on_alone(self, states: ProcessStates, payload: Any, emitter: Emitter) -> None:
        self._context(states, emitter).on_event(states.function.on_timer, payload)

    def on_critical(self, states: ProcessStates, payload: Any, emitter: Emitter) -> bool:
        context = self._context(states, emitter)
        context.on_event(states.function.on_critical, payload)
        return not context.take_passed_on()

    def _context(self, states: ProcessStates, emitter: Emitter) -> FunctionContext:
        context = states.context
        if context is None:
            context = states.context = FunctionContext(emitter, self.name, self.schema)
        context.attach(emitter)  # a function that was idle comes back with a new one
        return context


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
