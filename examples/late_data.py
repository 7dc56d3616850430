"""Late data: tickets are scanned in trams, and a tram in a tunnel sends its scans when it is out again.

Scans may be a minute out of order without any being late. A window is shown when it ends, and again if rows come within five
more minutes. What comes even later is counted nowhere; it goes to a stream of its own. ``python examples/late_data.py``
needs no Spark and prints:

    until 08:10: line 1 has 2
    until 08:10: line 2 has 1
    until 08:10: line 1 has 3
    until 08:20: line 1 has 2
    until 08:20: line 2 has 1
    too late: line 2 at 08:05
"""

from datetime import UTC, datetime
from typing import Any

import dirigo as dg

SCANS = [  # in the order in which they arrive
    (1, "08:01:00"),
    (1, "08:09:30"),
    (2, "08:09:00"),  # out of order, but not late
    (1, "08:11:30"),  # the window that ends at 08:10 is over: nothing older than 08:10:30 is expected
    (1, "08:04:00"),  # within five minutes of its end: the window is corrected
    (2, "08:17:00"),
    (2, "08:05:00"),  # too late
    (1, "08:18:00"),
]


def scans(first: int, count: int) -> list[dict[str, Any]]:
    rows = SCANS[first : first + count]
    return [{"line": line, "at": datetime.fromisoformat(f"2026-05-01T{at}").replace(tzinfo=UTC)} for line, at in rows]


def build() -> dg.Dataflow:
    flow = dg.Dataflow("tram-tickets")
    columns = {"line": int, "at": datetime}
    # One scan at a time, as trams send them: a row is never late because of another one of its block.
    source = dg.from_generator(scans, columns, len(SCANS), block=1, time="at", out_of_orderness="1m", name="scans")
    windows = flow.source(source).key_by("line").window(dg.Tumbling("10m"), allowed_lateness="5m")
    counts = windows.aggregate(scans=dg.count())
    counts.select("line", "scans", until=dg.col("window_end").format_time("%H:%M")).sink(dg.to_memory(name="counts"))
    counts.late.select("line", at=dg.col("at").format_time("%H:%M")).sink(dg.to_memory(name="late"))
    return flow


flow = build()

if __name__ == "__main__":
    result = dg.run(flow)
    for row in result.rows("counts"):
        print(f"until {row['until']}: line {row['line']} has {row['scans']}")
    for row in result.rows("late"):
        print(f"too late: line {row['line']} at {row['at']}")
