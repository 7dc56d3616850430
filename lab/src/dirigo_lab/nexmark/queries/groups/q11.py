"""q11, user sessions: how many bids did each bidder make in each stretch of activity?

A session ends when the bidder has been quiet for more than 10 s.
"""

from __future__ import annotations

from dirigo import Dataflow, Session, Stream, count
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("bidder", "date_time"))
    sessions = bids.key_by("bidder").window(Session("10s")).aggregate(bid_count=count())
    return sessions.rename(window_start="starttime", window_end="endtime")
