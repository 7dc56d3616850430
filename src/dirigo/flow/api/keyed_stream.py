"""Keyed streams: what can be done for each key on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from dirigo.flow.aggregates.base import Aggregate
from dirigo.flow.api.arguments import require_function
from dirigo.flow.api.duration import Duration, milliseconds
from dirigo.flow.api.function import Function
from dirigo.flow.api.stream import Stream
from dirigo.flow.api.windowed_stream import By, WindowedStream
from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.windows import WholeStream, Window
from dirigo.flow.operators.scan import Scan
from dirigo.flow.operators.windows.row_functions import GroupFunction
from dirigo.flow.rows.row import Row
from dirigo.flow.rows.schema import SchemaLike

Emit = Literal["end", "watermark"]

_FOR_ROWS = ("map", "flat_map", "filter", "split", "select", "with_columns", "drop", "rename", "map_batches")


class KeyedStream:
    """Rows by key."""

    def __init__(self, stream: Stream, keys: tuple[str, ...]) -> None:
        self._stream = stream
        self._keys = keys

    if not TYPE_CHECKING:  # or a type checker would take any name for granted

        def __getattr__(self, name: str) -> Any:
            is_for_rows = name in (
                "map",
                "flat_map",
                "filter",
                "split",
                "select",
                "with_columns",
                "drop",
                "rename",
                "map_batches",
            )
            hint = f"; call {name} before key_by" if is_for_rows else ""
            raise AttributeError(f"a stream by key has no '{name}'{hint}; it has {', '.join(_offered(self))}")

    def window(self, window: Window, *, allowed_lateness: Duration = "0ms") -> WindowedStream:
        """Windows for each key."""
        return WindowedStream(self._stream, self._keys, window, milliseconds(allowed_lateness, "allowed_lateness"))

    def aggregate(
        self, /, *aggregates: Aggregate | Mapping[str, Aggregate], emit: Emit = "end", **named: Aggregate
    ) -> Stream:
        """One row per key over the whole stream: when the input ends, or, of keys that changed, at every watermark."""
        return self._whole(emit).aggregate(*aggregates, **named)

    def top(
        self, n: int, by: By, *, ties: bool = False, rank: str | None = None, emit: Emit = "end", name: str | None = None
    ) -> Stream:
        """The n best rows of each key over the whole stream."""
        return self._whole(emit).top(n, by, ties=ties, rank=rank, name=name)

    def apply(self, function: GroupFunction, schema: SchemaLike, *, name: str | None = None) -> Stream:
        """A function of all rows of each key, when the input ends."""
        return self._whole("end").apply(function, schema, name=name)

    def reduce(self, function: Callable[[Row, Row], Any], *, emit: Emit = "end", name: str | None = None) -> Stream:
        """The rows of each key combined two by two, in any order; one row per key, as of ``aggregate``."""
        return self._whole(emit).reduce(function, name=name)

    def scan(self, function: Callable[[Any, Row], Any], *, name: str | None = None) -> Stream:
        """A running result per key: each row combined with what its key has come to, emitted at once, in order."""
        stream = self._stream
        name = stream.flow.name_for("scan", name)
        require_function(function, name, "of two rows")
        work = Scan(name, stream.schema, stream.time, self._keys, function)
        return stream._operator(work, stream.output)

    def process(
        self,
        function: Function | type[Function] | Callable[[], Function],
        schema: SchemaLike,
        *,
        name: str | None = None,
        time: str | None = None,
    ) -> Stream:
        """A function of your own; rows with the same key meet in the same partition."""
        return self._stream._process(function, schema, self._keys, name, time)

    def _whole(self, emit: Emit) -> WindowedStream:
        if emit not in ("end", "watermark"):
            raise FlowError(f"key_by on '{self._stream.name}': emit is 'end' or 'watermark', not {emit!r}.")
        return WindowedStream(self._stream, self._keys, WholeStream(), emits_updates=emit == "watermark")


def _offered(keyed: KeyedStream) -> list[str]:
    return [name for name in vars(type(keyed)) if not name.startswith("_")]
