"""Which campaign sells? Clicks on advertisements are joined with the orders that follow within half an hour.

An order counts for the last campaign that its customer clicked on before it.
``python examples/clicks_and_orders.py`` needs no Spark, and prints for its generated input:

    spring: 6 orders, 396 euros
    radio: 11 orders, 445 euros
    search: 15 orders, 918 euros

``dirigo run examples/clicks_and_orders.py`` runs the same on Spark.
"""

import random
from collections.abc import Iterator

import dirigo as dg

MINUTE_MS = 60_000
CAMPAIGNS = ["spring", "radio", "search", "search"]  # as many clicks come by search as by the other two


def clicks() -> Iterator[dict[str, object]]:
    chance = random.Random(1)
    for minute in range(240):
        yield {"customer": chance.randrange(40), "campaign": chance.choice(CAMPAIGNS), "clicked": minute * MINUTE_MS}


def orders() -> Iterator[dict[str, object]]:
    chance = random.Random(2)
    for number in range(60):
        ordered = 4 * number * MINUTE_MS + chance.randrange(4 * MINUTE_MS)
        yield {"order": number, "customer": chance.randrange(40), "euros": chance.randrange(5, 100), "ordered": ordered}


def build() -> dg.Dataflow:
    flow = dg.Dataflow("clicks-and-orders")
    clicked = flow.source(dg.from_iterable(clicks, time="clicked", name="clicks"))
    ordered = flow.source(dg.from_iterable(orders, time="ordered", name="orders"))
    pairs = clicked.join(ordered, on="customer", within=("0s", "30m"))
    sold = pairs.key_by("order").top(1, by="-clicked")
    sold.key_by("campaign").aggregate(orders=dg.count(), euros=dg.sum("euros")).sink(dg.to_memory())
    return flow


flow = build()

if __name__ == "__main__":
    for row in sorted(dg.run(flow).rows(), key=lambda row: row["orders"]):
        print(f"{row['campaign']}: {row['orders']} orders, {row['euros']} euros")
