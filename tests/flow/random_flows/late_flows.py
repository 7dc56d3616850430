"""Random flows whose rows may come too late: what is late depends on how a source is read, but never on where things run."""

from __future__ import annotations

from random import Random

import pyarrow as pa

import dirigo as dg
from dirigo.flow.operators.joins.matching import How
from dirigo.scheduling import Chaos
from dirigo.sim.network import disorderly_network
from dirigo.sim.service import ServiceTimes
from dirigo.testing import Simulation
from flow.flows import Rows
from flow.random_flows.comparison import rows_apart

ROWS = 200
_SCHEMA = pa.schema([("time", pa.int64()), ("key", pa.int64()), ("number", pa.int64())])
_WORKERS = 3


class LateFlow:
    """One operator on a source that is more out of order than it says."""

    def __init__(self, seed: int, *, combines_early: bool = True) -> None:
        self._rng = rng = Random(seed)
        step_ms = rng.choice([3, 50])
        rows: Rows = [
            {"time": max(number * step_ms - behind_ms, 0), "key": rng.randrange(4), "number": number}
            for number, behind_ms in enumerate(rng.choices([0, 0, 0, 200, 900, 3000], k=ROWS))
        ]
        self.flow = dg.Dataflow(
            "late",
            partitions=rng.choice([1, 3]),
            watermark_every=rng.choice(["0ms", "100ms"]),
            combines_early=combines_early,
        )
        source = dg.from_iterable(rows, _SCHEMA, time="time", out_of_orderness=rng.choice(["0ms", "300ms"]))
        make = rng.choice([_windows, _sessions, _once, _updates, _near, _together])
        self.every_row_counts_once = False  # in a result or as a late row
        self.described = make.__name__.strip("_")
        make(self, self.flow.source(source), rng).sink(dg.to_memory(name="results"))
        self._rows_max = rng.choice([1, 5, 20])

    def in_sequence(self) -> Simulation:
        return Simulation(self.flow, rows_max=self._rows_max).finish()

    def in_disorder(self) -> Simulation:
        """Chaos, except that the source is read in the same pieces as in sequence."""
        return Simulation(
            self.flow,
            workers=_WORKERS,
            seed=self._rng.randrange(10**6),
            strategy=Chaos,
            network=disorderly_network(),
            service=ServiceTimes(lambda _message, rng: rng.uniform(0.0, 0.01)),
            rows_max=self._rows_max,
        ).finish()


def _aggregates() -> dict[str, dg.Aggregate]:
    return {"rows": dg.count(), "total": dg.sum("number"), "different": dg.distinct("number")}


def _windows(late_flow: LateFlow, stream: dg.Stream, rng: Random) -> dg.Stream:
    windows: list[dg.Tumbling | dg.Sliding] = [
        dg.Tumbling("500ms"),
        dg.Tumbling("700ms", offset="50ms"),
        dg.Sliding("1s", every="300ms"),
    ]
    window = rng.choice(windows)
    lateness = rng.choice(["0ms", "500ms", "5s"])  # a late row that is allowed for makes a window come again
    late_flow.every_row_counts_once = isinstance(window, dg.Tumbling) and lateness == "0ms"
    return _with_late_rows(stream.key_by("key").window(window, allowed_lateness=lateness).aggregate(_aggregates()))


def _sessions(late_flow: LateFlow, stream: dg.Stream, rng: Random) -> dg.Stream:
    lateness = rng.choice(["0ms", "500ms", "5s"])
    late_flow.every_row_counts_once = True
    session = dg.Session(rng.choice(["5ms", "100ms", "400ms"]))
    return _with_late_rows(stream.key_by("key").window(session, allowed_lateness=lateness).aggregate(_aggregates()))


def _once(late_flow: LateFlow, stream: dg.Stream, rng: Random) -> dg.Stream:
    return _with_late_rows(stream.deduplicate("key", within="300ms"))


def _updates(late_flow: LateFlow, stream: dg.Stream, rng: Random) -> dg.Stream:
    return stream.key_by("key").aggregate(_aggregates(), emit="watermark")


def _near(late_flow: LateFlow, stream: dg.Stream, rng: Random) -> dg.Stream:
    return stream.join(stream, "key", within=("100ms", "200ms"))


def _together(late_flow: LateFlow, stream: dg.Stream, rng: Random) -> dg.Stream:
    hows: list[How] = ["inner", "outer", "anti"]
    even = stream.filter(dg.col("number") % 2 == 0)
    return stream.join(even, "key", window=dg.Sliding("1s", every="300ms"), how=rng.choice(hows))


def _with_late_rows(stream: dg.Stream) -> dg.Stream:
    stream.late.sink(dg.to_memory(name="late"))
    return stream


def late_difference(seed: int) -> str | None:
    """What is wrong with the results or the late rows of a flow; None if nothing is."""
    late_flow = LateFlow(seed)
    expected = late_flow.in_sequence()
    what = f"seed {seed}, {late_flow.described}"
    if late_flow.every_row_counts_once:
        counted = sum(row["rows"] for row in expected.rows("results")) + len(expected.rows("late"))
        if counted != ROWS:
            return f"{what}: of {ROWS} rows {counted} are in a result or late"
    for _ in range(2):
        found = late_flow.in_disorder()
        for sink in expected.sinks:
            apart = rows_apart(expected.rows(sink), found.rows(sink))
            if apart:
                return f"{what}: in disorder, the rows of '{sink}' are not those of a run in sequence:\n{apart}"
    return None
