"""The three ranks of price by which q15, q16 and q17 count bids, and the counts that q15 and q16 share."""

from __future__ import annotations

from typing import Any

from dirigo import col, count, distinct

RANKS = {
    "rank1": col("price") < 10_000,
    "rank2": (col("price") >= 10_000) & (col("price") < 1_000_000),
    "rank3": col("price") >= 1_000_000,
}


# Of Any: for all that a type checker knows, a key could be one of the options that `aggregate` has beside the aggregates.
def bid_counts() -> dict[str, Any]:
    """total_bids, rank1_bids, rank2_bids, rank3_bids."""
    return {"total_bids": count(), **{f"{rank}_bids": count(where=holds) for rank, holds in RANKS.items()}}


def distinct_counts(column: str) -> dict[str, Any]:
    """total_bidders, rank1_bidders and so on for the column `bidder`: how many different ones there are."""
    ranked = {f"{rank}_{column}s": distinct(column, where=holds) for rank, holds in RANKS.items()}
    return {f"total_{column}s": distinct(column), **ranked}
