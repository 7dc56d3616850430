"""Alerts when a user spends much in a short time: three payments within a minute, whose sum exceeds a limit.

One of a hundred users makes a sixth of the payments. ``python examples/fraud_alerts.py`` needs no Spark and prints:

    26 alerts, the first of them:
    {'user': 'user 0', 'at': 190436, 'total': 2653}
    {'user': 'user 0', 'at': 191352, 'total': 2877}
    {'user': 'user 0', 'at': 390876, 'total': 2708}

``dirigo run examples/fraud_alerts.py`` runs the same on Spark.
"""

from __future__ import annotations

import random
from typing import Any

import dirigo as dg

LIMIT = 2_500
MINUTE_MS = 60_000


class Fraud(dg.Function):
    ordered = True
    last = dg.ValueState(tuple, default=())

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        recent = (*self.last.get()[-2:], (row.at, row.amount))
        self.last.set(recent)
        context.set_event_timer(row.at + MINUTE_MS, name="quiet")
        total = sum(amount for _, amount in recent)
        if len(recent) == 3 and row.at - recent[0][0] < MINUTE_MS and total > LIMIT:
            context.emit({"user": context.key, "at": row.at, "total": total})

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        self.last.clear()


def payments(count: int, users: int = 100, seed: int = 0) -> list[dict[str, Any]]:
    """Payments in the order of their times; one user pays as often as a fifth of all others together."""
    rng = random.Random(seed)
    rows, at = [], 0
    for _ in range(count):
        at += rng.randrange(2_000)
        user = 0 if rng.random() < 1 / 6 else rng.randrange(1, users)
        rows.append({"user": f"user {user}", "at": at, "amount": rng.randrange(1, 1_000)})
    return rows


def build(rows: list[dict[str, Any]]) -> dg.Dataflow:
    flow = dg.Dataflow("fraud")
    paid = flow.source(dg.from_iterable(rows, {"user": str, "at": int, "amount": int}, time="at", name="payments"))
    alerts = paid.key_by("user").process(Fraud, {"user": str, "at": int, "total": int}, name="fraud")
    alerts.sink(dg.to_memory())
    return flow


flow = build(payments(5_000))

if __name__ == "__main__":
    found = sorted(dg.run(flow).rows(), key=lambda alert: alert["at"])
    print(f"{len(found)} alerts, the first of them:")
    for alert in found[:3]:
        print(alert)
