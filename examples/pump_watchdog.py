"""A function with timers: pumps send a sign of life, and one from which nothing comes for a minute is reported.

States and timers belong to the pump of the row at hand, because of ``key_by``. ``python examples/pump_watchdog.py`` needs no
Spark and prints:

    09:01:40 pump 1 is silent
    09:03:20 pump 1 is back
    09:04:20 pump 1 is silent

``dirigo run examples/pump_watchdog.py`` runs the same on Spark.
"""

from datetime import UTC, datetime

import dirigo as dg

SILENT_MS = 60_000
BEGIN = datetime(2026, 5, 1, 9, tzinfo=UTC)
SIGNS = [  # pump, seconds after the beginning, and whether it is switched off now
    (1, 0, False),
    (2, 10, False),
    (1, 40, False),
    (2, 60, False),
    (2, 90, True),  # so that its silence means nothing
    (1, 200, False),
]


class Watchdog(dg.Function):
    ordered = True
    last = dg.ValueState(int, default=0)
    is_silent = dg.ValueState(bool, default=False)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        if self.last.get() and not self.is_silent.get() and row.at_ms >= self.last.get() + SILENT_MS:
            self.on_timer(context)  # rows may come before the watermark that makes the timer due
        if self.is_silent.get():
            context.emit({"at_ms": row.at_ms, "pump": context.key, "news": "back"})
            self.is_silent.clear()
        self.last.set(row.at_ms)
        if row.off:
            self.last.clear()
            context.delete_timer("silence")
        else:
            context.set_event_timer(row.at_ms + SILENT_MS, name="silence")

    def on_timer(self, context: dg.FunctionContext, payload: object = None) -> None:
        self.is_silent.set(True)
        context.emit({"at_ms": self.last.get() + SILENT_MS, "pump": context.key, "news": "silent"})


def build() -> dg.Dataflow:
    flow = dg.Dataflow("pump-watchdog")
    rows = [(pump, round((BEGIN.timestamp() + seconds) * 1000), off) for pump, seconds, off in SIGNS]
    signs = flow.source(dg.from_iterable(rows, {"pump": int, "at_ms": int, "off": bool}, time="at_ms", name="signs"))
    signs.key_by("pump").process(Watchdog, {"at_ms": int, "pump": int, "news": str}).sink(dg.to_memory())
    return flow


flow = build()

if __name__ == "__main__":
    for row in dg.run(flow).rows():
        at = datetime.fromtimestamp(row["at_ms"] / 1000, UTC)
        print(f"{at:%H:%M:%S} pump {row['pump']} is {row['news']}")
