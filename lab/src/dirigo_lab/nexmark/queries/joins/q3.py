"""q3, local items: who sells in category 10 and lives in Oregon, Idaho or California, and which auctions are theirs?"""

from __future__ import annotations

from dirigo import Dataflow, Stream, col
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    auctions = flow.source(tables.auctions("id", "seller", "category", "date_time"))
    persons = flow.source(tables.persons("id", "name", "city", "state", "date_time"))
    offers = auctions.filter(col("category") == 10).select("seller", auction="id")
    locals_ = persons.filter(col("state").is_in(["OR", "ID", "CA"])).select("id", "name", "city", "state")
    return locals_.join(offers, on={"id": "seller"}).select("name", "city", "state", id="auction")
