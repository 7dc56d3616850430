"""Nexmark's generated events as sources of dataflows: one source for each kind, all on one timeline."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.schema import require_columns
from dirigo.flow.sources.generator import GeneratorSource
from dirigo.nexmark.generator import RATE, Generator
from dirigo.nexmark.numbering import EVENTS_PER_EPOCH, EventKind
from dirigo.nexmark.schemas import AUCTION, BID, PERSON

TIME_COLUMN = "date_time"
# Large, because the generator is several times as quick with many rows at once; yet made within a few milliseconds.
BLOCK_EVENTS = 17_800

_KINDS = {EventKind.PERSON: ("persons", PERSON), EventKind.AUCTION: ("auctions", AUCTION), EventKind.BID: ("bids", BID)}


class EventSource(GeneratorSource):
    """The events of one kind among the first `events` of the timeline, in the order of the generator.

    Blocks of the timeline are dealt out to the splits in turn, so that all splits move through event time together. Only the
    `columns` that are asked for are generated; without `date_time` among them, the stream has no time.
    """

    def __init__(
        self, kind: EventKind, generator: Generator, events: int, columns: Sequence[str] | None, block_events: int
    ) -> None:
        name, schema = _KINDS[kind]
        if events < 0:
            raise FlowError(f"{name}: {events} events were asked for; ask for 0 or more.")
        if block_events < EVENTS_PER_EPOCH:
            raise FlowError(
                f"{name}: a block of {block_events} events may hold no {name}; make it {EVENTS_PER_EPOCH} events or more."
            )
        if columns is not None:
            require_columns(schema, columns, name)
            schema = pa.schema([schema.field(column) for column in dict.fromkeys(columns)])
        super().__init__(
            _RowMaker(kind, generator, tuple(schema.names)),
            schema,
            dict(zip(EventKind, generator.counts(0, events), strict=True))[kind],
            block=block_events * kind.width // EVENTS_PER_EPOCH,
            time=TIME_COLUMN if TIME_COLUMN in schema.names else None,
            out_of_orderness=f"{generator.out_of_orderness_ms}ms",
            idle_after=None,
            name=name,
        )
        self.default_name = name
        self.generator = generator
        self.events = events


class _RowMaker:
    """Makes the rows `first` to `first + count - 1` of one kind, with some of their columns. It can be pickled."""

    def __init__(self, kind: EventKind, generator: Generator, columns: tuple[str, ...]) -> None:
        self.kind = kind
        self.generator = generator
        self.columns = columns

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        generator, columns = self.generator, self.columns
        if self.kind is EventKind.PERSON:
            rows = generator.persons(*generator.person_range(first, count), columns)
        elif self.kind is EventKind.AUCTION:
            rows = generator.auctions(*generator.auction_range(first, count), columns)
        else:
            rows = generator.bids(*generator.bid_range(first, count), columns)
        return rows.select(list(columns))  # the generator keeps to its own order of columns


def persons(
    events: int,
    rate: int = RATE,
    columns: Sequence[str] | None = None,
    *,
    out_of_order_group: int = 1,
    block_events: int = BLOCK_EVENTS,
) -> EventSource:
    """The persons who register among the first `events` events, `rate` events per second of event time."""
    return EventSource(EventKind.PERSON, _generator(rate, out_of_order_group), events, columns, block_events)


def auctions(
    events: int,
    rate: int = RATE,
    columns: Sequence[str] | None = None,
    *,
    out_of_order_group: int = 1,
    block_events: int = BLOCK_EVENTS,
) -> EventSource:
    """The auctions that open among the first `events` events, `rate` events per second of event time."""
    return EventSource(EventKind.AUCTION, _generator(rate, out_of_order_group), events, columns, block_events)


def bids(
    events: int,
    rate: int = RATE,
    columns: Sequence[str] | None = None,
    *,
    out_of_order_group: int = 1,
    block_events: int = BLOCK_EVENTS,
) -> EventSource:
    """The bids among the first `events` events, `rate` events per second of event time."""
    return EventSource(EventKind.BID, _generator(rate, out_of_order_group), events, columns, block_events)


def _generator(rate: int, out_of_order_group: int) -> Generator:
    return Generator(rate=rate, out_of_order_group=out_of_order_group)
