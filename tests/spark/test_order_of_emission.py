"""The order around critical messages, on workers that Spark hosts: paced rows, real time, a run of each strategy."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.scheduling import STRATEGIES
from flow.test_order_of_emission import BY_SOURCE, COUNTS, EVERY, CommonMarks, Counts, CountsBySource, Marks

pytestmark = pytest.mark.acceptance

SECONDS = 3
SCHEMA = pa.schema([("source", pa.int64()), ("at", pa.timestamp("ms", "UTC"))])


class Rows:
    """Rows of one source, so many a second by their event time."""

    def __init__(self, source: int, rate: int) -> None:
        self.source = source
        self.rate = rate

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        at = pa.array([number * 1000 // self.rate for number in range(first, first + count)], pa.timestamp("ms", "UTC"))
        return pa.record_batch([pa.array([self.source] * count, pa.int64()), at], schema=SCHEMA)


def paced(source: int, rate: int) -> Any:
    made = dg.from_generator(Rows(source, rate), SCHEMA, rate * SECONDS, block=3, time="at", name=f"rows_{source}")
    return dg.paced(made)


@pytest.fixture(scope="module")
def cluster(classic_session: Any) -> Iterator[dg.Cluster]:
    with dg.Cluster(workers=3, spark=classic_session) as made:
        yield made


@pytest.mark.parametrize("rate", [100, 300, 1_000])
def test_each_critical_message_is_between_its_rows(cluster: dg.Cluster, rate: int) -> None:
    for strategy in STRATEGIES:
        flow = dg.Dataflow(f"marked-{strategy}-{rate}", slo=dg.SLO(latency="50ms"))
        out = dg.to_memory()
        stream = flow.source(paced(0, rate), splits=1).process(Marks, {"source": int}, name="marks")
        stream.process(Counts, COUNTS, name="counts").sink(out)
        flow.emulate("marks", per_message="4ms")
        cluster.run(flow, strategy=strategy)
        told = sorted((row["said"], row["counted"]) for row in out.rows)
        assert told == [(number, number) for number in range(EVERY, rate * SECONDS + 1, EVERY)]


@pytest.mark.parametrize("sources", [2, 3])
@pytest.mark.parametrize("rate", [100, 300, 1_000])
def test_common_barriers_count_the_same_of_every_source(cluster: dg.Cluster, rate: int, sources: int) -> None:
    for strategy in STRATEGIES:
        flow = dg.Dataflow(f"together-{sources}-{rate}-{strategy}")
        out = dg.to_memory()
        streams = []
        for number in range(sources):
            rows = flow.source(paced(number, rate), splits=1)
            streams.append(rows.process(CommonMarks, {"source": int}, name=f"marks_{number}"))
            flow.emulate(f"marks_{number}", per_message=f"{2 * number}ms")
        streams[0].union(*streams[1:]).process(CountsBySource, BY_SOURCE, name="counts").sink(out)
        cluster.run(flow, strategy=strategy)
        told = sorted(tuple(row[f"of_{number}"] for number in range(sources)) for row in out.rows)
        assert told == [(number,) * sources for number in range(EVERY, rate * SECONDS + 1, EVERY)]
