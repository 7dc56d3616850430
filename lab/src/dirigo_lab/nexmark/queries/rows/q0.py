"""q0, pass through: every bid as it is. What remains is the cost of moving events."""

from __future__ import annotations

from dirigo import Dataflow, Stream
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    return flow.source(tables.bids("auction", "bidder", "price", "date_time", "extra"))
