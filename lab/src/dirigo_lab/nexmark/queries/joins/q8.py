"""q8, monitor new users: who registered and opened an auction within the same 10 s?

One row for every person and window, also for a person who registers twice.
"""

from __future__ import annotations

from dirigo import Dataflow, Stream, Tumbling
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    persons = flow.source(tables.persons("id", "name", "date_time"))
    auctions = flow.source(tables.auctions("seller", "date_time"))
    sellers = persons.join(auctions, on={"id": "seller"}, window=Tumbling("10s"), how="semi")
    once = sellers.key_by("id", "name").window(Tumbling("10s")).aggregate()
    return once.select("id", "name", stime="window_start")
