"""What is kept of the rows of a window: partial tables that can be put together in any order, and how they get there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from dirigo.flow.aggregates.base import plain, plain_type
from dirigo.flow.event_time.time_column import Times
from dirigo.flow.event_time.windows import Span
from dirigo.flow.exchange.edge import ByKey, Edge
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.exchange.partitions import partition_of, split
from dirigo.flow.operators.windows.ranking import Rows
from dirigo.flow.rows.bad_rows import Bad, try_each_part
from dirigo.flow.rows.schema import apart

WINDOW_START, WINDOW_END = "window_start", "window_end"
ALL_SLOTS = -1  # the port on which several tables of a summary come together, as (slot, table)
RAW_ROWS = -2  # the port on which rows come that their sender has not summarised


class Summary(Protocol):
    """What a window keeps of its rows: partial tables that can be put together in any order, and their outcome."""

    output_schema: pa.Schema

    @property
    def slots(self) -> int: ...

    def partial_schema(self, slot: int) -> pa.Schema: ...

    def partial(self, batch: pa.RecordBatch, panes: Times | int) -> list[pa.RecordBatch]: ...

    def merge(self, slot: int, batch: pa.RecordBatch) -> pa.RecordBatch: ...

    def finish(self, partials: Sequence[pa.RecordBatch]) -> pa.RecordBatch: ...


def form_of(summary: Summary) -> str:
    """What a summary keeps: its partial tables, whose columns say what they mean."""
    tables = "; ".join(
        ", ".join(f"{field.name}: {field.type}" for field in summary.partial_schema(slot)) for slot in range(summary.slots)
    )
    return f"{getattr(summary, 'keeps', type(summary).__name__)}: {tables}"


def summable(batch: pa.RecordBatch, summary: Summary, operator: str, cause: Exception, emitter: Emitter) -> pa.RecordBatch:
    """The rows of a batch that can be summarised, where the whole batch could not; the others are bad."""

    def tried(part: pa.RecordBatch) -> pa.RecordBatch:
        summary.partial(part, 0)
        return part

    good, bad = try_each_part(tried, batch, cause)
    if not bad:
        raise cause  # no row is to blame
    emitter.bad(bad, operator)
    return pa.concat_batches(good) if good else batch.slice(0, 0)


def spread_slots(exchange: ByKey, partials: Sequence[pa.RecordBatch], edge: Edge, emitter: Emitter) -> None:
    """Send all tables of a summary, those for one partition in one message: they mean something only together."""
    if len(partials) == 1:
        exchange.spread(partials[0], edge, 0, emitter)
        return
    targets = edge.targets
    by_target: dict[int, list[tuple[int, pa.RecordBatch]]] = {}
    for slot, partial in enumerate(partials):
        if len(targets) == 1:
            by_target.setdefault(0, []).append((slot, partial))
        elif partial.num_rows:
            numbers = partition_of([partial.column(key) for key in exchange.keys], len(targets))
            for partition, part in split(partial, numbers, len(targets)):
                by_target.setdefault(partition, []).append((slot, part))
    for partition, parts in by_target.items():
        emitter.send(targets[partition], ALL_SLOTS, [part for part in parts if part[1].num_rows])


def shown_schema(summary: Summary, keys: Sequence[str], bounds: pa.DataType | None) -> pa.Schema:
    """What ``finish`` gives, which of a function of all rows is these rows, and the bounds of its window behind it."""
    schema: pa.Schema = summary.rows_schema if isinstance(summary, Rows) else summary.output_schema
    fields = [field for key in keys for field in schema if field.name == key]
    fields += [field for field in schema if field.name not in keys]
    for name in () if bounds is None else (WINDOW_START, WINDOW_END):
        fields.append(pa.field(apart(name, schema.names), bounds))
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in fields])


def shown(rows: pa.RecordBatch, bounds: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Rows that ``finish`` gave and the bounds of their windows, as one batch of ``shown_schema``."""
    names = schema.names[: len(schema) - len(bounds)]
    return pa.RecordBatch.from_arrays([*(plain(rows.column(name)) for name in names), *bounds], schema=schema)


@runtime_checkable
class EndsInUserCode(Protocol):
    """A summary that calls a user's function at the end of a window, which may fail and may want to know the window."""

    def finish_window(self, partials: Sequence[pa.RecordBatch], span: Span | None, bad: list[Bad]) -> pa.RecordBatch: ...


def finished(
    summary: Summary, partials: Sequence[pa.RecordBatch], span: Span | None, operator: str, emitter: Emitter
) -> pa.RecordBatch:
    """The outcome of a window; what a user's function failed on goes to the emitter."""
    if not isinstance(summary, EndsInUserCode):
        return summary.finish(partials)
    bad: list[Bad] = []
    result = summary.finish_window(partials, span, bad)
    emitter.bad(bad, operator)
    return result
