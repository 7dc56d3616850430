"""Windowed streams: what can be made of the rows of each window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dirigo.flow.aggregates.base import Aggregate
from dirigo.flow.api.arguments import named_aggregates, require_function
from dirigo.flow.api.stream import Stream
from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.windows import Session, Sliding, Tumbling, WholeStream, Window
from dirigo.flow.operators.operator import Operator
from dirigo.flow.operators.windows.aggregation import Aggregation
from dirigo.flow.operators.windows.ranking import Ranking
from dirigo.flow.operators.windows.row_functions import Applied, Folded, GroupFunction
from dirigo.flow.operators.windows.sessions import Sessions
from dirigo.flow.operators.windows.summary import Summary
from dirigo.flow.operators.windows.windowed import Windowed
from dirigo.flow.rows.row import Row
from dirigo.flow.rows.schema import SchemaLike, as_schema, require_columns

By = str | Sequence[str]


class WindowedStream:
    """Rows by window and, if there are keys, by key."""

    def __init__(
        self,
        stream: Stream,
        keys: tuple[str, ...],
        window: Window | WholeStream,
        lateness_ms: int = 0,
        emits_updates: bool = False,
    ) -> None:
        if not isinstance(window, Tumbling | Sliding | Session | WholeStream):
            raise FlowError(f"window on '{stream.name}': takes Tumbling, Sliding or Session, not {window!r}.")
        if isinstance(window, Session) or (window.time == "event" and not isinstance(window, WholeStream)):
            stream._required_time(f"a window on '{stream.name}'")
        elif window.time == "processing" and lateness_ms:
            raise FlowError(f"a window on '{stream.name}': nothing is late by the clock; leave allowed_lateness out.")
        self._stream = stream
        self._keys = keys
        self._window = window
        self._lateness_ms = lateness_ms
        self._emits_updates = emits_updates

    if not TYPE_CHECKING:  # or a type checker would take any name for granted

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"a windowed stream has no '{name}'; say first what becomes of the rows of a window: "
                "aggregate, reduce, apply or top"
            )

    def aggregate(self, /, *aggregates: Aggregate | Mapping[str, Aggregate], **named: Aggregate) -> Stream:
        """One row per window and key: ``aggregate(bids=count(), highest=max("price"))``. Without any, just the keys.

        ``count().alias("bids")`` says the same as ``bids=count()``.
        """
        name = self._name("aggregate", None)
        given = named_aggregates(aggregates, named, name)
        time = None if self._stream.time is None else self._stream.time.name
        summary = Aggregation(self._stream.schema, self._keys, given, time)
        return self._made(name, summary, f"aggregate {', '.join(given)}" if given else "distinct")

    def reduce(self, function: Callable[[Row, Row], Any], *, name: str | None = None) -> Stream:
        """Rows combined two by two, in any order: the function must be associative and commutative."""
        name = self._name("reduce", name)
        require_function(function, name, "of two rows")
        return self._made(name, Folded(name, self._stream.schema, self._keys, function), "reduce")

    def apply(self, function: GroupFunction, schema: SchemaLike, *, name: str | None = None) -> Stream:
        """A function of all rows of a window and key (a ``Group``), which gives any number of rows. All rows are kept."""
        name = self._name("apply", name)
        require_function(function, name, "of a Group")
        summary = Applied(name, self._stream.schema, self._keys, function, as_schema(schema, name))
        return self._made(name, summary, f"apply {getattr(function, '__name__', 'function')}")

    def top(
        self,
        n: int,
        by: By,
        *,
        ties: bool = False,
        rank: str | None = None,
        window_columns: bool = False,
        name: str | None = None,
    ) -> Stream:
        """The n best rows of each window and key: ``top(3, by="-price")``, the largest first with a minus.

        Rows that are equal in all of ``by`` are told apart by their other columns; with ``ties`` all of them count as one.
        """
        name = self._name("top", name)
        orders = [_order(column) for column in ([by] if isinstance(by, str) else by)]
        require_columns(self._stream.schema, [column for column, _ in orders], name)
        summary = Ranking(self._stream.schema, self._keys, n, orders, ties=ties, rank=rank)
        return self._made(name, summary, f"top {n}", window_columns)

    def _made(self, name: str, summary: Summary, described: str, window_columns: bool = True) -> Stream:
        time, combines_early = self._stream.time, self._stream.flow.combines_early
        operator: Operator
        if isinstance(self._window, Session):
            assert time is not None
            operator = Sessions(
                name, time, self._keys, self._window, summary, self._lateness_ms, window_columns, combines_early
            )
        else:
            operator = Windowed(
                name,
                time,
                self._keys,
                self._window,
                summary,
                lateness_ms=self._lateness_ms,
                window_columns=window_columns,
                emits_updates=self._emits_updates,
                combines_early=combines_early,
                described=described,
            )
        self._refuse_twice(summary, name, window_columns)
        return self._stream._operator(operator, self._stream.output)

    def _refuse_twice(self, summary: Summary, name: str, window_columns: bool) -> None:
        names = summary.output_schema.names
        if window_columns and not isinstance(self._window, WholeStream) and {"window_start", "window_end"} & set(names):
            raise FlowError(f"{name}: its rows have a column window_start or window_end already; rename that one first.")

    def _name(self, kind: str, name: str | None) -> str:
        return self._stream.flow.name_for(kind, name)


def _order(column: str) -> tuple[str, bool]:
    """A column to order by, and whether the largest comes first."""
    return (column[1:], True) if column.startswith("-") else (column, False)
