"""Nexmark's events, generated: the same event for the same number, however ranges of numbers are cut and on any machine.

The rules are those of Apache Beam's generator, which repeats itself, with the channels and urls of the Flink suite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.nexmark.java_random import Integers
from dirigo.nexmark.numbering import EventKind, EventOrder
from dirigo.nexmark.rows import Clock, Columns, auction_columns, bid_columns, person_columns
from dirigo.nexmark.schemas import AUCTION, BID, PERSON

RATE = 10_000
BASE_MS = 1_436_918_400_000  # midnight UTC on 15 July 2015
RATE_MOST = 1_000_000  # the time between events is a whole number of microseconds

_MakeColumns = Callable[[Integers, Clock, AbstractSet[str]], Columns]
_TABLES: dict[EventKind, tuple[str, pa.Schema, _MakeColumns]] = {
    EventKind.PERSON: ("persons", PERSON, person_columns),
    EventKind.AUCTION: ("auctions", AUCTION, auction_columns),
    EventKind.BID: ("bids", BID, bid_columns),
}


@dataclass(frozen=True)
class Generator:
    """All events of one timeline; several readers take ranges of it.

    Events stand at positions 0, 1, 2 and so on. With `out_of_order_group` 1 an event's number is its position; with a larger
    one, each group of so many positions holds its numbers in a fixed shuffled order. Everything about an event follows from
    its number, which is its `event_number`.
    """

    rate: int = RATE  # events per second of event time
    base_ms: int = BASE_MS  # time of event number 0, in milliseconds since 1970
    out_of_order_group: int = 1

    def __post_init__(self) -> None:
        for name in ("rate", "base_ms", "out_of_order_group"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise FlowError(f"{name} is {value!r}, but it must be a whole number.")
        if not 1 <= self.rate <= RATE_MOST:
            raise FlowError(
                f"rate is {self.rate:,} events per second, but Nexmark's events are whole microseconds apart: "
                f"choose a rate from 1 to {RATE_MOST:,}."
            )
        _ = self._order  # refuses group sizes that cannot be

    @cached_property
    def _clock(self) -> Clock:
        return Clock(self.base_ms, RATE_MOST // self.rate)

    @cached_property
    def _order(self) -> EventOrder:
        return EventOrder(self.out_of_order_group)

    def persons(self, first: int, last: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The persons among the events at the positions from `first` up to, not including, `last`."""
        return self._rows(EventKind.PERSON, first, last, columns)

    def auctions(self, first: int, last: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The auctions among the events at the positions from `first` up to, not including, `last`."""
        return self._rows(EventKind.AUCTION, first, last, columns)

    def bids(self, first: int, last: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The bids among the events at the positions from `first` up to, not including, `last`."""
        return self._rows(EventKind.BID, first, last, columns)

    def counts(self, first: int, last: int) -> tuple[int, int, int]:
        """How many persons, auctions and bids there are among the events from `first` up to, not including, `last`."""
        _check_range(first, last)
        persons, auctions, bids = (
            self._order.count_before(kind, last) - self._order.count_before(kind, first)
            for kind in (EventKind.PERSON, EventKind.AUCTION, EventKind.BID)
        )
        return persons, auctions, bids

    def person_range(self, first_index: int, count: int) -> tuple[int, int]:
        """The `first` and `last` for which `persons` returns `count` rows, beginning with the `first_index`-th person."""
        return self._range(EventKind.PERSON, first_index, count)

    def auction_range(self, first_index: int, count: int) -> tuple[int, int]:
        """The `first` and `last` for which `auctions` returns `count` rows, beginning with the `first_index`-th auction."""
        return self._range(EventKind.AUCTION, first_index, count)

    def bid_range(self, first_index: int, count: int) -> tuple[int, int]:
        """The `first` and `last` for which `bids` returns `count` rows, beginning with the `first_index`-th bid."""
        return self._range(EventKind.BID, first_index, count)

    def person_numbers(self, first_index: int, count: int) -> Integers:
        """The event numbers of `count` persons, beginning with the `first_index`-th, in the order in which they come."""
        return self._order.numbers_of(EventKind.PERSON, *self.person_range(first_index, count))

    def auction_numbers(self, first_index: int, count: int) -> Integers:
        """The event numbers of `count` auctions, beginning with the `first_index`-th, in the order in which they come."""
        return self._order.numbers_of(EventKind.AUCTION, *self.auction_range(first_index, count))

    def bid_numbers(self, first_index: int, count: int) -> Integers:
        """The event numbers of `count` bids, beginning with the `first_index`-th, in the order in which they come."""
        return self._order.numbers_of(EventKind.BID, *self.bid_range(first_index, count))

    def event_numbers(self, first: int, last: int) -> Integers:
        """The event numbers at the positions from `first` up to, not including, `last`."""
        _check_range(first, last)
        return self._order.numbers(first, last)

    def timestamp_ms(self, event_number: int) -> int:
        """The time of the event with this number."""
        return self._clock.time_ms(event_number)

    def watermark_ms(self, position: int) -> int:
        """The time below which no event at this position or after it lies."""
        return self._clock.time_ms(self._order.group_first(position))

    @property
    def out_of_orderness_ms(self) -> int:
        """How much older than the newest event before it an event may be; 0 for events in order."""
        return -((self.out_of_order_group - 1) * -self._clock.delay_us // 1000)

    def _range(self, kind: EventKind, first_index: int, count: int) -> tuple[int, int]:
        _check_range(first_index, first_index + count)
        first = self._order.position(kind, first_index)
        return first, self._order.position(kind, first_index + count - 1) + 1 if count else first

    def _rows(self, kind: EventKind, first: int, last: int, columns: Sequence[str] | None) -> pa.RecordBatch:
        _check_range(first, last)
        name, schema, make_columns = _TABLES[kind]
        wanted = set(schema.names if columns is None else columns)
        if unknown := wanted.difference(schema.names):
            raise FlowError(f"Nexmark's {name} have no column {min(unknown)!r}: they have {', '.join(schema.names)}.")
        if not wanted:
            raise FlowError(
                f"Nexmark's {name} were asked for without any column: name one or more of {', '.join(schema.names)}."
            )
        made = make_columns(self._order.numbers_of(kind, first, last), self._clock, wanted)
        fields = [field for field in schema if field.name in wanted]
        return pa.RecordBatch.from_arrays([made[field.name] for field in fields], schema=pa.schema(fields))


def _check_range(first: int, last: int) -> None:
    if not 0 <= first <= last:
        raise FlowError(f"events {first} to {last} were asked for, but the start is at least 0 and the end not before it.")
