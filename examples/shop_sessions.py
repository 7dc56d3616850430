"""Visits to a web shop: the clicks of a visitor are one session until half an hour has passed without any.

A browser may send a click twice; each counts once. ``python examples/shop_sessions.py`` needs no Spark and prints:

    visitor=bob  from=09:05  to=09:20  pages=3  spent=50  last=thanks
    visitor=ann  from=09:00  to=09:12  pages=3  spent=0   last=shipping
    visitor=ann  from=10:00  to=10:02  pages=2  spent=19  last=thanks

``dirigo run examples/shop_sessions.py`` runs the same on Spark.
"""

from datetime import UTC, datetime, timedelta

import dirigo as dg

GAP = timedelta(minutes=30)
CLICKS = [  # the number of the click, who, when, on what, and the euros that were spent with it
    (1, "ann", "09:00", "lamps", 0),
    (2, "ann", "09:04", "lamp 12", 0),
    (3, "bob", "09:05", "chairs", 0),
    (2, "ann", "09:04", "lamp 12", 0),  # sent again
    (4, "ann", "09:12", "shipping", 0),
    (5, "bob", "09:18", "chair 7", 0),
    (6, "bob", "09:20", "thanks", 50),
    (6, "bob", "09:20", "thanks", 50),  # sent again
    (7, "ann", "10:00", "lamp 12", 0),
    (8, "ann", "10:02", "thanks", 19),
]
COLUMNS = {"click": int, "visitor": str, "at": datetime, "page": str, "euros": int}


def moment(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-05-01T{clock}").replace(tzinfo=UTC)


def build() -> dg.Dataflow:
    flow = dg.Dataflow("shop-sessions")
    rows = [(click, visitor, moment(at), page, euros) for click, visitor, at, page, euros in CLICKS]
    clicks = flow.source(dg.from_iterable(rows, COLUMNS, time="at", name="clicks"))
    sessions = (
        clicks.deduplicate("click", within="1h")
        .key_by("visitor")
        .window(dg.Session(GAP))
        .aggregate(until=dg.max("at"), pages=dg.count(), spent=dg.sum("euros"), last=dg.last("page"))
    )
    sessions.select(
        "visitor",
        dg.col("window_start").format_time("%H:%M").alias("from"),
        dg.col("until").format_time("%H:%M").alias("to"),
        "pages",
        "spent",
        "last",
    ).sink(dg.to_console())
    return flow


flow = build()

if __name__ == "__main__":
    dg.run(flow)
