"""What is known of Nexmark's events as a whole: kinds, hot keys, sizes, texts, cutting, order; and what is refused."""

import re
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dirigo.flow.errors import FlowError
from dirigo.nexmark.generator import Generator
from dirigo.nexmark.schemas import AUCTION, BID, PERSON
from dirigo.nexmark.strings import CITIES, FIRST_NAMES, LAST_NAMES, NAMED_CHANNELS, STATES

KINDS = ("persons", "auctions", "bids")


def rows_of(generator: Generator, kind: str, first: int, last: int) -> pa.RecordBatch:
    return getattr(generator, kind)(first, last)


def test_a_hundred_thousand_events_are_two_thousand_persons_six_thousand_auctions_and_the_rest_bids() -> None:
    generator = Generator()
    assert generator.counts(0, 100_000) == (2_000, 6_000, 92_000)
    assert tuple(rows_of(generator, kind, 0, 100_000).num_rows for kind in KINDS) == (2_000, 6_000, 92_000)


def test_the_columns_are_those_of_the_schemas() -> None:
    generator = Generator()
    for first, last in ((0, 500), (7, 7)):
        assert generator.persons(first, last).schema == PERSON
        assert generator.auctions(first, last).schema == AUCTION
        assert generator.bids(first, last).schema == BID
    for kind in KINDS:
        batch = rows_of(generator, kind, 0, 5_000)
        batch.validate(full=True)
        assert all(column.null_count == 0 for column in batch.columns)


def test_ids_count_up_from_one_thousand() -> None:
    generator = Generator()
    assert generator.persons(0, 50_000)["id"].to_pylist() == list(range(1000, 2000))
    assert generator.auctions(0, 50_000)["id"].to_pylist() == list(range(1000, 4000))


def test_the_hot_auction_changes_every_hundred_auctions() -> None:
    bids = Generator().bids(0, 50_000, ["auction", "event_number"])
    auctions, numbers = bids["auction"].to_numpy() - 1000, bids["event_number"].to_numpy()
    newest = numbers // 50 * 3 + 2
    changes = numbers[np.flatnonzero(np.diff(newest // 100)) + 1]
    assert all(1_640 <= later - earlier <= 1_710 for earlier, later in pairwise(changes.tolist()))
    for hundred in range(30):
        during = auctions[newest // 100 == hundred]
        [(favourite, times)] = Counter(during.tolist()).most_common(1)
        assert favourite == hundred * 100 or times < len(during) / 20  # else all these bids fell into a run of cold draws


def test_half_of_all_bids_are_for_the_hot_auction() -> None:
    bids = Generator().bids(1_000_000, 2_000_000, ["auction", "event_number"])
    hot = (bids["event_number"].to_numpy() // 50 * 3 + 2) // 100 * 100 + 1000
    assert np.mean(bids["auction"].to_numpy() == hot) == pytest.approx(0.5 + 0.5 / 111, abs=0.02)


def test_whether_a_bid_is_for_the_hot_auction_comes_in_long_runs() -> None:
    bids = Generator().bids(1_000_000, 2_000_000, ["auction"])
    is_hot = bids["auction"].to_numpy() % 100 == 0
    changes = np.flatnonzero(np.diff(is_hot))  # independent draws would change at every second bid
    assert len(changes) < len(is_hot) / 50
    assert np.diff(changes).max() > 4_000


def test_the_hot_bidder_changes_every_five_thousand_events_and_makes_three_quarters_of_the_bids() -> None:
    generator = Generator()
    for period in range(10, 20):
        bidders = generator.bids(period * 5_000, (period + 1) * 5_000, ["bidder"])["bidder"].to_pylist()
        [(favourite, times)] = Counter(bidders).most_common(1)
        assert favourite == 1000 + period * 100 + 1
        assert times / len(bidders) == pytest.approx(0.75, abs=0.03)


def test_the_hot_seller_has_three_quarters_of_the_auctions() -> None:
    auctions = Generator().auctions(1_000_000, 2_000_000, ["seller", "event_number"])
    hot = auctions["event_number"].to_numpy() // 5_000 * 100 + 1000
    assert np.mean(auctions["seller"].to_numpy() == hot) == pytest.approx(0.75, abs=0.02)


def test_times_follow_the_rate() -> None:
    assert Generator().timestamp_ms(0) == 1436918400000
    assert Generator().timestamp_ms(25) == 1436918400002
    assert Generator(rate=1, base_ms=5).timestamp_ms(3) == 3_005
    assert Generator(rate=1_000_000).timestamp_ms(1_999) == 1436918400001
    bids = Generator(rate=300, base_ms=0).bids(0, 1_000)
    assert bids["date_time"].cast(pa.int64()).to_pylist() == [n * 3333 // 1000 for n in bids["event_number"].to_pylist()]


@pytest.mark.parametrize(
    ("kind", "numbers", "uncounted", "size"),
    [("persons", 2, (), 200), ("auctions", 7, (), 500), ("bids", 4, ("channel", "url"), 100)],
)
def test_events_have_their_sizes_on_average(kind: str, numbers: int, uncounted: tuple[str, ...], size: int) -> None:
    batch = rows_of(Generator(), kind, 0, 500_000)
    texts = [name for name in batch.schema.names if batch.schema.field(name).type == pa.string() and name not in uncounted]
    total = numbers * 8 + sum(pc.mean(pc.binary_length(batch[name])).as_py() for name in texts)
    assert total == pytest.approx(size, rel=0.02)


def test_persons_have_sensible_texts() -> None:
    persons = Generator().persons(0, 100_000).to_pylist()
    for person in persons:
        first, last = person["name"].split(" ")
        assert first in FIRST_NAMES
        assert last in LAST_NAMES
        assert re.fullmatch(r"[a-z]{3,6}@[a-z]{3,4}\.com", person["email_address"])
        assert re.fullmatch(r"\d{4} \d{4} \d{4} \d{4}", person["credit_card"])
    assert {person["city"] for person in persons} == set(CITIES)
    assert {person["state"] for person in persons} == set(STATES)
    assert len({person["name"] for person in persons}) > 90
    assert len({person["credit_card"] for person in persons}) == len(persons)


def test_auctions_have_categories_and_a_reserve_above_the_first_price() -> None:
    auctions = Generator().auctions(0, 100_000)
    assert set(auctions["category"].to_pylist()) == {10, 11, 12, 13, 14}
    assert pc.all(pc.greater(auctions["reserve"], auctions["initial_bid"])).as_py()
    assert pc.all(pc.greater(auctions["expires"], auctions["date_time"])).as_py()
    assert pc.count_distinct(auctions["description"]).as_py() > 3_000


def test_half_of_the_bids_have_a_named_channel_with_an_url_of_its_own() -> None:
    bids = Generator().bids(0, 500_000, ["channel", "url"])
    counts = Counter(zip(bids["channel"].to_pylist(), bids["url"].to_pylist(), strict=True))
    named = {channel: times for (channel, url), times in counts.items() if channel in NAMED_CHANNELS}
    assert set(named) == set(NAMED_CHANNELS)
    assert all(times / bids.num_rows == pytest.approx(1 / 8, abs=0.02) for times in named.values())
    assert len(counts) == len({channel for channel, _ in counts})
    numbered = [pair for pair in counts if pair[0] not in NAMED_CHANNELS]
    assert len(numbered) > 9_900  # of 10,000
    with_id = 0
    for channel, url in counts:
        found = re.fullmatch(r"https://www\.nexmark\.com(?:/[a-z]{5}){3}/item\.htm\?query=1(&channel_id=\d+)?", url)
        assert found is not None
        with_id += found[1] is not None
        assert found[1] is None or re.fullmatch(r"channel-\d{1,4}", channel)
    assert with_id / len(numbered) == pytest.approx(0.9, abs=0.02)


def test_paddings_of_bids_have_a_c_sometimes_but_not_always() -> None:
    extras = Generator().bids(0, 50_000, ["extra"])["extra"].to_pylist()
    assert all(re.fullmatch("[a-z]+", extra) for extra in extras)
    assert 0.5 < sum("c" in extra for extra in extras) / len(extras) < 0.99


@pytest.mark.parametrize("group", [1, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_events_do_not_depend_on_how_ranges_are_cut(kind: str, group: int) -> None:
    generator = Generator(out_of_order_group=group)
    first, cuts, last = 49_321, [49_321, 49_322, 49_370, 49_949, 51_000, 53_517], 53_517
    whole = rows_of(generator, kind, first, last)
    pieces = [rows_of(generator, kind, begin, end) for begin, end in [(first, first), *pairwise(cuts)]]
    assert pa.Table.from_batches(pieces).combine_chunks().to_batches()[0].equals(whole)
    together = [sum(counts) for counts in zip(*(generator.counts(*cut) for cut in pairwise(cuts)), strict=True)]
    assert tuple(together) == generator.counts(first, last)
    assert generator.counts(first, last)[KINDS.index(kind)] == whole.num_rows


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_the_same_alone_as_with_all_others_and_in_the_order_of_the_schema(kind: str) -> None:
    generator = Generator()
    whole = rows_of(generator, kind, 12_000, 24_000)
    make: Any = getattr(generator, kind)
    for name in whole.schema.names:
        assert make(12_000, 24_000, columns=[name]).equals(whole.select([name]))
    assert make(12_000, 24_000, columns=["event_number", "extra", "date_time"]).equals(
        whole.select(["date_time", "extra", "event_number"])
    )


@pytest.mark.parametrize("group", [1, 7, 1000])
@pytest.mark.parametrize("kind", ["person", "auction", "bid"])
def test_a_given_number_of_rows_of_one_kind_can_be_cut_out(kind: str, group: int) -> None:
    generator = Generator(out_of_order_group=group)
    numbers = rows_of(generator, f"{kind}s", 0, 20_000)["event_number"].to_pylist()
    for first_index, count in ((0, 1), (3, 17), (131, 0), (200, 199)):
        first, last = getattr(generator, f"{kind}_range")(first_index, count)
        cut = rows_of(generator, f"{kind}s", first, last)["event_number"].to_pylist()
        assert cut == numbers[first_index : first_index + count]
        assert getattr(generator, f"{kind}_numbers")(first_index, count).tolist() == cut


@pytest.mark.parametrize("group", [2, 10, 1000, 954])
def test_out_of_order_events_are_a_permutation_within_their_groups(group: int) -> None:
    generator, ordered = Generator(out_of_order_group=group), Generator()
    last = group * 12
    numbers = generator.event_numbers(0, last)
    assert numbers.tolist() == [n // group * group + n * 953 % group for n in range(last)]
    assert sorted(numbers.tolist()) == list(range(last))
    assert generator.counts(0, last) == ordered.counts(0, last)
    for kind in KINDS:
        shuffled = rows_of(generator, kind, 0, last)
        assert shuffled.sort_by("event_number").equals(rows_of(ordered, kind, 0, last))
        positions = {number: position for position, number in enumerate(numbers.tolist())}
        came = [positions[number] for number in shuffled["event_number"].to_pylist()]
        assert came == sorted(came)


def test_the_watermark_is_never_ahead_of_what_is_still_to_come() -> None:
    generator = Generator(rate=300, out_of_order_group=64)
    times = [generator.timestamp_ms(number) for number in generator.event_numbers(0, 640).tolist()]
    for position in range(640):
        assert generator.watermark_ms(position) <= min(times[position:])
        if position % 64 == 0:
            assert generator.watermark_ms(position) == min(times[position:])
    delays = [max(times[: position + 1]) - time for position, time in enumerate(times)]
    assert 0 < max(delays) <= generator.out_of_orderness_ms
    assert Generator().out_of_orderness_ms == 0


@pytest.mark.parametrize("rate", [0, -1, 1_000_001])
def test_rates_that_whole_microseconds_cannot_express_are_refused(rate: int) -> None:
    with pytest.raises(FlowError, match=r"choose a rate from 1 to 1,000,000\.$"):
        Generator(rate=rate)


@pytest.mark.parametrize(
    ("group", "reason"), [(0, "at least 1 event"), (953, "a multiple of 953"), (1906, "a multiple of 953")]
)
def test_groups_that_would_lose_events_are_refused(group: int, reason: str) -> None:
    with pytest.raises(FlowError, match=reason):
        Generator(out_of_order_group=group)


def test_what_is_not_a_whole_number_is_refused() -> None:
    with pytest.raises(FlowError, match=r"rate is 0\.5, but it must be a whole number"):
        Generator(rate=0.5)  # type: ignore[arg-type]


def test_columns_that_do_not_exist_are_refused_by_name() -> None:
    with pytest.raises(FlowError, match="auctions have no column 'bidder': they have id, item_name"):
        Generator().auctions(0, 10, ["id", "bidder"])
    with pytest.raises(FlowError, match="bids were asked for without any column"):
        Generator().bids(0, 10, [])


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (6, 5)])
def test_ranges_that_are_none_are_refused(first: int, last: int) -> None:
    with pytest.raises(FlowError, match=f"events {first} to {last} were asked for"):
        Generator().bids(first, last)
