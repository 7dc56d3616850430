"""How the rows of persons, auctions and bids follow from their event numbers.

Every event is drawn from a java.util.Random seeded with its number, and the order of the draws is part of the rules: it is
the same whichever columns are asked for. Columns that are not asked for cost nothing beyond the draws before the last one
that is.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dirigo.nexmark import strings
from dirigo.nexmark.java_random import Floats, Integers, JavaRandoms
from dirigo.nexmark.numbering import AUCTIONS_PER_EPOCH, EVENTS_PER_EPOCH
from dirigo.nexmark.schemas import TIME

FIRST_PERSON_ID = 1000
FIRST_AUCTION_ID = 1000
FIRST_CATEGORY_ID = 10

_CATEGORIES = 5
_HOT_EVERY = 100  # one hot auction, bidder and seller in every 100 of their kind
_HOT_AUCTION_ONE_OF = 2  # all but one of so many draws go to the hot one
_HOT_BIDDER_ONE_OF = 4
_HOT_SELLER_ONE_OF = 4
_NAMED_CHANNEL_ONE_OF = 2
_AUCTIONS_IN_FLIGHT = 100
_AUCTIONS_AHEAD = 10  # bids may name auctions, and bids and auctions may name persons, that come a little later
_ACTIVE_PERSONS = 1000
_PERSONS_AHEAD = 10
_EVENTS_OF_AUCTIONS_IN_FLIGHT = _AUCTIONS_IN_FLIGHT * EVENTS_PER_EPOCH // AUCTIONS_PER_EPOCH

# Libraries differ by a few units in the last place of a power, at most about 1e-7 of a price that is below 1e8.
# Values that lie closer than this to where rounding turns are computed again, one by one.
_DOUBTFUL = 1e-6

Columns = dict[str, pa.Array]


@dataclass(frozen=True)
class Clock:
    """The time of the event with a number."""

    base_ms: int
    delay_us: int

    def time_ms(self, number: int) -> int:
        return self.base_ms + number * self.delay_us // 1000

    def times_ms(self, numbers: Integers) -> Integers:
        times = numbers * self.delay_us
        times //= 1000
        times += self.base_ms
        return times


def person_columns(numbers: Integers, clock: Clock, wanted: AbstractSet[str]) -> Columns:
    """Draws: name, e-mail address, credit card, city, state, padding."""
    columns = _undrawn_columns(numbers, clock, wanted)
    if "id" in wanted:
        columns["id"] = pa.array(numbers // EVENTS_PER_EPOCH + FIRST_PERSON_ID)
    if wanted.isdisjoint({"name", "email_address", "credit_card", "city", "state", "extra"}):
        return columns
    texts = strings.person_texts()
    randoms = JavaRandoms(numbers)
    first_names = randoms.next_int(len(strings.FIRST_NAMES))
    last_names = randoms.next_int(len(strings.LAST_NAMES))
    account, host = randoms.next(strings.TABLE_BITS), randoms.next(strings.TABLE_BITS)
    card = [randoms.next_int(strings.CARD_GROUP_VALUES) for _ in range(strings.CARD_GROUPS)]
    cities, states = randoms.next_int(len(strings.CITIES)), randoms.next_int(len(strings.STATES))
    extras = randoms.next(strings.TABLE_BITS)
    if "name" in wanted:
        columns["name"] = strings.taken(texts.names, first_names * len(strings.LAST_NAMES) + last_names)
    if "email_address" in wanted:
        columns["email_address"] = strings.joined(strings.taken(texts.accounts, account), strings.taken(texts.hosts, host))
    if "credit_card" in wanted:
        columns["credit_card"] = strings.joined(*(strings.taken(texts.card_groups, group) for group in card), separator=" ")
    if "city" in wanted:
        columns["city"] = strings.taken(texts.cities, cities)
    if "state" in wanted:
        columns["state"] = strings.taken(texts.states, states)
    if "extra" in wanted:
        columns["extra"] = strings.taken(texts.extras, extras)
    return columns


def auction_columns(numbers: Integers, clock: Clock, wanted: AbstractSet[str]) -> Columns:
    """Draws: seller, category, first price, length, name, description, reserve, padding."""
    columns = _undrawn_columns(numbers, clock, wanted)
    epochs = numbers // EVENTS_PER_EPOCH
    if "id" in wanted:
        places = numbers - epochs * EVENTS_PER_EPOCH - 1
        columns["id"] = pa.array(epochs * AUCTIONS_PER_EPOCH + places + FIRST_AUCTION_ID)
    after_initial_bid = {"expires", "item_name", "description", "reserve", "extra"}
    if wanted.isdisjoint({"seller", "category", "initial_bid"} | after_initial_bid):
        return columns

    randoms = JavaRandoms(numbers)
    sellers = _hot_or_any_person(randoms, epochs, _HOT_SELLER_ONE_OF, hot_place=0)
    if "seller" in wanted:
        columns["seller"] = pa.array(sellers)
    categories = randoms.next_int(_CATEGORIES)
    if "category" in wanted:
        columns["category"] = pa.array(categories + FIRST_CATEGORY_ID)
    if wanted.isdisjoint({"initial_bid"} | after_initial_bid):
        return columns
    initial_bids = prices(randoms.next_double())
    if "initial_bid" in wanted:
        columns["initial_bid"] = pa.array(initial_bids)
    if wanted.isdisjoint(after_initial_bid):
        return columns

    times = clock.times_ms(numbers)
    horizons = clock.times_ms(numbers + _EVENTS_OF_AUCTIONS_IN_FLIGHT) - times
    expires = times + 1 + randoms.next_int_below(np.maximum(2 * horizons, 1))
    if "expires" in wanted:
        columns["expires"] = pa.array(expires).view(TIME)
    item_names, descriptions = randoms.next(strings.TABLE_BITS), randoms.next(strings.TABLE_BITS)
    texts = strings.auction_texts()
    if "item_name" in wanted:
        columns["item_name"] = strings.taken(texts.item_names, item_names)
    if "description" in wanted:
        columns["description"] = strings.taken(texts.descriptions, descriptions)
    surcharges = randoms.next_double()
    if "reserve" in wanted:
        columns["reserve"] = pa.array(initial_bids + prices(surcharges))
    if "extra" in wanted:
        columns["extra"] = strings.taken(texts.extras, randoms.next(strings.TABLE_BITS))
    return columns


def bid_columns(numbers: Integers, clock: Clock, wanted: AbstractSet[str]) -> Columns:
    """Draws: auction, bidder, price, channel with its url, padding."""
    columns = _undrawn_columns(numbers, clock, wanted)
    after_price = {"channel", "url", "extra"}
    if wanted.isdisjoint({"auction", "bidder", "price"} | after_price):
        return columns

    randoms = JavaRandoms(numbers)
    epochs = numbers // EVENTS_PER_EPOCH
    auctions = _hot_or_recent_auction(randoms, epochs)
    if "auction" in wanted:
        columns["auction"] = pa.array(auctions)
    if wanted.isdisjoint({"bidder", "price"} | after_price):
        return columns
    bidders = _hot_or_any_person(randoms, epochs, _HOT_BIDDER_ONE_OF, hot_place=1)
    if "bidder" in wanted:
        columns["bidder"] = pa.array(bidders)
    if wanted.isdisjoint({"price"} | after_price):
        return columns
    price_draws = randoms.next_double()
    if "price" in wanted:
        columns["price"] = pa.array(prices(price_draws))
    if wanted.isdisjoint(after_price):
        return columns

    channels = _channels(randoms)
    texts = strings.bid_texts()
    if "channel" in wanted:
        columns["channel"] = strings.taken(texts.channels, channels)
    if "url" in wanted:
        columns["url"] = strings.taken(texts.urls, channels)
    if "extra" in wanted:
        columns["extra"] = strings.taken(texts.extras, randoms.next(strings.TABLE_BITS))
    return columns


def prices(draws: Floats) -> Integers:
    """`floor(10 ** (6 * draw) * 100 + 0.5)`, exact to the last digit whatever library computes the powers."""
    exponents = 6.0 * draws
    amounts = np.power(10.0, exponents)
    amounts *= 100.0
    amounts += 0.5
    whole = np.floor(amounts)
    amounts -= whole
    amounts -= 0.5
    for row in np.flatnonzero(np.abs(amounts, out=amounts) > 0.5 - _DOUBTFUL).tolist():
        whole[row] = math.floor(math.pow(10.0, float(exponents[row])) * 100.0 + 0.5)
    return whole.astype(np.int64)


def _undrawn_columns(numbers: Integers, clock: Clock, wanted: AbstractSet[str]) -> Columns:
    columns: Columns = {}
    if "date_time" in wanted:
        columns["date_time"] = pa.array(clock.times_ms(numbers)).view(TIME)
    if "event_number" in wanted:
        columns["event_number"] = pa.array(numbers)
    return columns


def _hot_or_recent_auction(randoms: JavaRandoms, epochs: Integers) -> Integers:
    """The auctions of bids: the hot one, or one of the last hundred, or one that is about to come."""
    newest = epochs * AUCTIONS_PER_EPOCH + (AUCTIONS_PER_EPOCH - 1)
    auctions = newest // _HOT_EVERY * _HOT_EVERY
    cold = np.flatnonzero(randoms.next_int(_HOT_AUCTION_ONE_OF) == 0)
    draws = randoms.at(cold)
    newest = newest[cold]
    oldest = np.maximum(newest - _AUCTIONS_IN_FLIGHT, 0)
    auctions[cold] = oldest + draws.next_int_below(newest - oldest + (1 + _AUCTIONS_AHEAD))
    randoms.put(cold, draws)
    auctions += FIRST_AUCTION_ID
    return auctions


def _hot_or_any_person(randoms: JavaRandoms, epochs: Integers, hot_one_of: int, hot_place: int) -> Integers:
    """Bidders or sellers: the hot one, or one of the thousand that are active, or one that is about to come."""
    persons = epochs // _HOT_EVERY * _HOT_EVERY + hot_place
    cold = np.flatnonzero(randoms.next_int(hot_one_of) == 0)
    draws = randoms.at(cold)
    existing = epochs[cold] + 1
    active = np.minimum(existing, _ACTIVE_PERSONS)
    persons[cold] = existing - active + draws.next_int_below(active + _PERSONS_AHEAD)
    randoms.put(cold, draws)
    persons += FIRST_PERSON_ID
    return persons


def _channels(randoms: JavaRandoms) -> Integers:
    """Indexes into the tables of channels and urls: a named channel for half the bids, a numbered one for the others."""
    named = np.flatnonzero(randoms.next_int(_NAMED_CHANNEL_ONE_OF) > 0)
    named_draws = randoms.at(named)
    channels = randoms.next_int(strings.NUMBERED_CHANNELS) + len(strings.NAMED_CHANNELS)
    channels[named] = named_draws.next_int(len(strings.NAMED_CHANNELS))
    randoms.put(named, named_draws)  # takes back redraws that the numbered channels' bound may have caused
    return channels
