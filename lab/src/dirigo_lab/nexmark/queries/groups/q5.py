"""q5, hot items: which auctions had the most bids in the last 10 s, seen every 2 s?

All auctions that share the first place are named, once for each window.
"""

from __future__ import annotations

from dirigo import Dataflow, Sliding, Stream, Tumbling, count
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "date_time"))
    counts = bids.key_by("auction").window(Sliding("10s", every="2s")).aggregate(num=count())
    # One sliding window ends every 2 s, and its counts happen at its end: a window of 2 s holds those of exactly one.
    return counts.window(Tumbling("2s")).top(1, by="-num", ties=True).select("auction", "num")
