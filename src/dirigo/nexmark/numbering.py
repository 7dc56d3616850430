"""Which event numbers are persons, auctions and bids, and in which order the events come.

Every 50 consecutive numbers hold one person, three auctions and 46 bids, in this order. Out of order, the numbers of each
group of consecutive events are shuffled within the group; the data of an event depends on its number alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from dirigo.flow.errors import FlowError
from dirigo.nexmark.java_random import Integers

EVENTS_PER_EPOCH = 50
AUCTIONS_PER_EPOCH = 3
SHUFFLE_STEP = 953  # a prime: the positions of a group map onto all its numbers unless the size is a multiple of it


class EventKind(Enum):
    """A kind of event: its first place among the 50 of an epoch, and how many places it has there."""

    PERSON = (0, 1)
    AUCTION = (1, AUCTIONS_PER_EPOCH)
    BID = (4, 46)

    @property
    def offset(self) -> int:
        return self.value[0]

    @property
    def width(self) -> int:
        return self.value[1]

    def count_below(self, number: int) -> int:
        """How many event numbers below this one are of this kind."""
        epoch, place = divmod(number, EVENTS_PER_EPOCH)
        return epoch * self.width + min(max(place - self.offset, 0), self.width)

    def number(self, index: int) -> int:
        """The index-th (from 0) event number of this kind."""
        epoch, place = divmod(index, self.width)
        return epoch * EVENTS_PER_EPOCH + self.offset + place

    def numbers(self, first_index: int, last_index: int) -> Integers:
        """`number` of all indexes from the first up to, not including, the last."""
        indexes = np.arange(first_index, last_index, dtype=np.int64)
        # index + the places of other kinds before it; the same as `number`, with one division.
        return indexes + indexes // self.width * (EVENTS_PER_EPOCH - self.width) + self.offset

    def includes(self, numbers: Integers) -> NDArray[np.bool_]:
        """Which of these event numbers are of this kind."""
        places = numbers % EVENTS_PER_EPOCH
        return (places >= self.offset) & (places < self.offset + self.width)


@dataclass(frozen=True)
class EventOrder:
    """The order of the events: which number the event at a position has. Group size 1 is the plain order."""

    group: int = 1

    def __post_init__(self) -> None:
        if self.group < 1:
            raise FlowError(
                f"out_of_order_group is {self.group}, but a group has at least 1 event: use 1 to keep the order."
            )
        if self.group % SHUFFLE_STEP == 0:
            raise FlowError(
                f"out_of_order_group is {self.group}, a multiple of {SHUFFLE_STEP}, which would repeat some events and lose "
                "others: choose another size."
            )

    @property
    def is_plain(self) -> bool:
        return self.group == 1

    def group_first(self, position: int) -> int:
        """The first position of the group of a position, which is also the lowest number of that group."""
        return position // self.group * self.group

    def numbers(self, first: int, last: int) -> Integers:
        """The event numbers at the positions from the first up to, not including, the last."""
        positions = np.arange(first, last, dtype=np.int64)
        if self.is_plain:
            return positions
        return positions // self.group * self.group + positions * SHUFFLE_STEP % self.group

    def count_before(self, kind: EventKind, position: int) -> int:
        """How many events of a kind come before a position."""
        start = self.group_first(position)  # before it, whole groups, which only permute their own numbers
        return kind.count_below(start) + int(np.count_nonzero(kind.includes(self.numbers(start, position))))

    def numbers_of(self, kind: EventKind, first: int, last: int) -> Integers:
        """The event numbers of one kind at the positions from the first up to, not including, the last; in their order."""
        if self.is_plain:
            return kind.numbers(kind.count_below(first), kind.count_below(last))
        numbers = self.numbers(first, last)
        return numbers[kind.includes(numbers)]

    def position(self, kind: EventKind, index: int) -> int:
        """The position of the index-th (from 0) event of a kind."""
        number = kind.number(index)
        if self.is_plain:
            return number
        start = self.group_first(number)  # groups permute their own numbers, so it is the same group in either order
        places = np.flatnonzero(kind.includes(self.numbers(start, start + self.group)))
        return start + int(places[index - kind.count_below(start)])
