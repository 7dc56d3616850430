"""q12, processing-time windows: how many bids of each bidder came in every 10 s of the clock on the wall?

Two runs differ, so there is no right answer to compare with; q12_event is the variant that can be repeated.
"""

from __future__ import annotations

from dirigo import Dataflow, Stream, Tumbling, count
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("bidder", "date_time"))  # the windows need no time; simulated clocks go by it
    counts = bids.key_by("bidder").window(Tumbling("10s", time="processing")).aggregate(bid_count=count())
    return counts.rename(window_start="starttime", window_end="endtime")
