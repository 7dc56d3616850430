"""Nexmark's queries, one file each, in folders by what they are made of; this file only lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from dirigo import Dataflow, Stream
from dirigo_lab.nexmark.queries.groups import q5, q7, q11, q12, q12_event, q15, q16, q17, q18, q19
from dirigo_lab.nexmark.queries.joins import q3, q4, q6, q8, q9, q13, q20
from dirigo_lab.nexmark.queries.rows import q0, q1, q2, q10, q14, q21, q22
from dirigo_lab.nexmark.tables import Tables


@dataclass(frozen=True)
class Query:
    """One query: `function` builds it into a flow and returns the stream of its results."""

    name: str
    title: str
    is_deterministic: bool
    function: Callable[[Dataflow, Tables], Stream]


def _query(module: ModuleType, title: str, *, is_deterministic: bool = True) -> Query:
    return Query(module.__name__.rpartition(".")[2], title, is_deterministic, module.query)


_ALL = (
    _query(q0, "every bid as it is"),
    _query(q1, "bids with prices in euros"),
    _query(q2, "bids on a few chosen auctions"),
    _query(q3, "sellers of one category who live in three states"),
    _query(q4, "average closing price of each category"),
    _query(q5, "auctions with the most bids in 10 s, every 2 s"),
    _query(q6, "average price of each seller's latest eleven sales"),
    _query(q7, "highest bids of every 10 s"),
    _query(q8, "persons who register and sell within the same 10 s"),
    _query(q9, "auctions with the bids that won them"),
    _query(q10, "bids with their day and minute, as for a log"),
    _query(q11, "bids of each bidder in each session"),
    _query(q12, "bids of each bidder per 10 s of processing time", is_deterministic=False),
    _query(q12_event, "bids of each bidder per 10 s of event time"),
    _query(q13, "bids joined with a bounded side input"),
    _query(q14, "bids in a range of prices, with some calculation"),
    _query(q15, "bids, bidders and auctions of each day"),
    _query(q16, "bids, bidders and auctions of each channel and day"),
    _query(q17, "counts and prices of the bids on each auction and day"),
    _query(q18, "last bid of each bidder on each auction"),
    _query(q19, "ten highest bids on each auction"),
    _query(q20, "bids on auctions of one category, with the auction"),
    _query(q21, "bids with the number of their channel"),
    _query(q22, "bids with the directories of their url"),
)

QUERIES: dict[str, Query] = {query.name: query for query in _ALL}
