"""The texts of Nexmark's events, as tables that are made once and from which the rows of events are taken.

Texts are the same on every machine: the tables are drawn from java.util.Random with fixed seeds. They need not equal those
of other generators, but their sizes do: with its padding (`extra`) a person has 200 bytes on average, an auction 500 and a
bid 100, where a number or a time has 8 bytes, and neither the event number nor a bid's channel and url count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dirigo.nexmark.java_random import Integers, JavaRandoms

TABLE_BITS = 12  # tables of random texts have 4096 entries, so that one draw of 12 bits chooses one
TABLE_SIZE = 1 << TABLE_BITS

PERSON_BYTES = 200
AUCTION_BYTES = 500
BID_BYTES = 100
_NUMBER_BYTES = 8
_PERSON_NUMBERS = 2  # id, date_time
_AUCTION_NUMBERS = 7  # id, initial_bid, reserve, date_time, expires, seller, category
_BID_NUMBERS = 4  # auction, bidder, price, date_time
_PADDING_SPREAD = 0.2  # the sizes of paddings are within 20 % of their average

FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CARD_GROUPS = 4  # a credit card number is four groups of four digits
CARD_GROUP_VALUES = 10_000
_CARD_CHARACTERS = CARD_GROUPS * 4 + CARD_GROUPS - 1

NAMED_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
NUMBERED_CHANNELS = 10_000
_URL_PARTS = 3
_URL_PART_LETTERS = 5
_CHANNELS_PER_ONE_WITHOUT_ID = 10

_LETTERS = 26
_SPACE_ONE_OF = 13  # in names and descriptions, every thirteenth character on average is a space
_SEED_STEP = 0x9E3779B97F4B  # odd and large: the generators of neighbouring entries start far from each other


@dataclass(frozen=True)
class PersonTexts:
    names: pa.StringArray  # first name * len(LAST_NAMES) + last name
    accounts: pa.StringArray  # what stands before the @ of an address, and it
    hosts: pa.StringArray
    card_groups: pa.StringArray
    cities: pa.StringArray
    states: pa.StringArray
    extras: pa.StringArray


@dataclass(frozen=True)
class AuctionTexts:
    item_names: pa.StringArray
    descriptions: pa.StringArray
    extras: pa.StringArray


@dataclass(frozen=True)
class BidTexts:
    channels: pa.StringArray  # the named channels, then the numbered ones
    urls: pa.StringArray  # of the same channels
    extras: pa.StringArray


@cache
def person_texts() -> PersonTexts:
    names = pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
    accounts = pa.array([f"{text}@" for text in _random_texts(1, TABLE_SIZE, 3, 6).to_pylist()])
    hosts = pa.array([f"{text}.com" for text in _random_texts(2, TABLE_SIZE, 3, 4).to_pylist()])
    card_groups = pa.array([f"{number:04d}" for number in range(CARD_GROUP_VALUES)])
    cities, states = pa.array(CITIES), pa.array(STATES)
    texts_bytes = sum(_mean_bytes(texts) for texts in (names, accounts, hosts, cities, states))
    used = _PERSON_NUMBERS * _NUMBER_BYTES + _CARD_CHARACTERS + texts_bytes
    return PersonTexts(names, accounts, hosts, card_groups, cities, states, _paddings(3, PERSON_BYTES - used))


@cache
def auction_texts() -> AuctionTexts:
    item_names = _random_texts(4, TABLE_SIZE, 3, 19, has_spaces=True)
    descriptions = _random_texts(5, TABLE_SIZE, 3, 99, has_spaces=True)
    used = _AUCTION_NUMBERS * _NUMBER_BYTES + _mean_bytes(item_names) + _mean_bytes(descriptions)
    return AuctionTexts(item_names, descriptions, _paddings(6, AUCTION_BYTES - used))


@cache
def bid_texts() -> BidTexts:
    channel_count = len(NAMED_CHANNELS) + NUMBERED_CHANNELS
    letters = _URL_PARTS * _URL_PART_LETTERS
    urls = []
    for text in _random_texts(7, channel_count, letters, letters).to_pylist():
        path = "/".join(text[at : at + _URL_PART_LETTERS] for at in range(0, letters, _URL_PART_LETTERS))
        urls.append(f"https://www.nexmark.com/{path}/item.htm?query=1")
    has_id = JavaRandoms(_seeds(8, NUMBERED_CHANNELS)).next_int(_CHANNELS_PER_ONE_WITHOUT_ID) > 0
    for number in np.flatnonzero(has_id).tolist():
        urls[len(NAMED_CHANNELS) + number] += f"&channel_id={_channel_id(number)}"
    channels = [*NAMED_CHANNELS, *(f"channel-{number}" for number in range(NUMBERED_CHANNELS))]
    return BidTexts(pa.array(channels), pa.array(urls), _paddings(9, BID_BYTES - _BID_NUMBERS * _NUMBER_BYTES))


def taken(table: pa.StringArray, indexes: Integers) -> pa.StringArray:
    """The entries of a table at these indexes, which must lie in it."""
    # The narrowest index type that the tables need: it saves memory traffic.
    return pc.take(table, pa.array(indexes.astype(np.uint16)), boundscheck=False)


def joined(*parts: pa.StringArray, separator: str = "") -> pa.StringArray:
    """Texts put together row by row."""
    return pc.binary_join_element_wise(*parts, separator)


def _channel_id(number: int) -> int:
    """The number with its 32 bits in reverse, read as a signed number and without its sign."""
    reverse = int(f"{number:032b}"[::-1], 2)
    return min(reverse, (1 << 32) - reverse)


def _mean_bytes(texts: pa.StringArray) -> float:
    return float(pc.mean(pc.binary_length(texts)).as_py())


def _paddings(stream: int, average: float) -> pa.StringArray:
    middle = round(average)
    spread = round(middle * _PADDING_SPREAD)
    return _random_texts(stream, TABLE_SIZE, middle - spread, middle + spread)


def _seeds(stream: int, count: int) -> Integers:
    """Seeds for the entries of one table; every table has a stream of its own."""
    return np.arange(stream << 20, (stream << 20) + count, dtype=np.int64) * _SEED_STEP


def _random_texts(stream: int, count: int, shortest: int, longest: int, *, has_spaces: bool = False) -> pa.StringArray:
    """Texts of small letters whose lengths are equally likely from the shortest to the longest."""
    randoms = JavaRandoms(_seeds(stream, count))
    lengths = shortest + randoms.next_int(longest - shortest + 1)
    characters = np.empty((count, longest), np.uint8)
    for place in range(longest):
        characters[:, place] = ord("a") + randoms.next_int(_LETTERS)
        if has_spaces:
            characters[randoms.next_int(_SPACE_ONE_OF) == 0, place] = ord(" ")
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = characters[np.arange(longest) < lengths[:, np.newaxis]]
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))
