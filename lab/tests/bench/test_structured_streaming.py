"""The shape of the figures of Structured Streaming, and that it answers right; how fast it is is no matter for a test."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dirigo.nexmark.generator import Generator
from dirigo_lab.bench.service.paced_bids import PacedBids
from dirigo_lab.bench.service.structured_streaming import (
    StreamingFigures,
    StreamingSettings,
    latency,
    throughput,
    write_bid_files,
)
from dirigo_lab.bench.service.structured_streaming_process import measure_throughput
from dirigo_lab.nexmark.events import write_events
from dirigo_lab.nexmark.oracles import duckdb_oracle, spark_oracle

EVENTS = 250_000  # three windows, of which the last stays open
BIDS = 230_000
# For few rows, compiling costs more than it saves.
QUICK_ON_LITTLE_DATA = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    assert write_bid_files(folder, EVENTS, events_per_file=50_000) == BIDS
    return folder


def test_bid_files_hold_the_bids_that_nexmark_writes_in_the_order_of_their_times(events: Path, tmp_path: Path) -> None:
    files = sorted((events / "bid").iterdir())
    assert [file.name for file in files] == [f"part-0000{number}.parquet" for number in range(5)]
    times = [file.stat().st_mtime for file in files]
    assert times == sorted(set(times))
    whole = write_events(Generator(), EVENTS, tmp_path)["bid"]
    assert pq.read_table(events / "bid").equals(pq.read_table(whole))


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_oracle.local_session(QUICK_ON_LITTLE_DATA) as session:
        yield session


@pytest.mark.acceptance
def test_settings_take_turns_after_the_answer_was_compared(spark: Any, events: Path) -> None:
    candidates = (StreamingSettings(files_per_batch=2), StreamingSettings(4, 1, "rocksdb", "processing time 0"))
    found = measure_throughput(spark, "q7", events, candidates, repeats=1, warm_ups=0)
    assert tuple(each.settings for each in found) == candidates
    for each in found:
        assert (each.query, each.bids, each.results) == ("q7", BIDS, 2)
        assert each.events_per_s == pytest.approx(BIDS / each.seconds)
        assert each.cpu_s > 0
    assert len(found[0].per_batch_s) >= 3


@pytest.mark.acceptance
def test_all_bidders_of_closed_windows_are_counted(spark: Any, events: Path) -> None:
    (found,) = measure_throughput(spark, "q12_event", events, (StreamingSettings(files_per_batch=1),), repeats=1, warm_ups=0)
    bidders = Generator().bids(0, 200_000, ("bidder",))["bidder"]
    halves = (bidders.slice(0, 92_000), bidders.slice(92_000))  # the two windows that closed
    assert found.results == sum(len(half.unique()) for half in halves)
    assert StreamingFigures.from_json(json.loads(json.dumps(asdict(found)))) == found


@pytest.mark.acceptance
def test_a_wrong_answer_is_refused(spark: Any, events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = duckdb_oracle.run("q12_event", events).slice(1)
    monkeypatch.setattr(duckdb_oracle, "run", lambda *_: expected)
    with pytest.raises(RuntimeError, match="q12_event: one of them is wrong"):
        measure_throughput(spark, "q12_event", events, (StreamingSettings(),), repeats=1, warm_ups=0)


def test_a_failure_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="there is no streaming SQL for 'q99': ask for one of q7, q12_event"):
        throughput("q99", tmp_path)


@pytest.mark.acceptance
def test_every_window_after_the_warm_up_has_its_latency() -> None:
    found = latency("q12_event", 2_000, seconds=2, warm_up_seconds=2)
    assert (found.query, found.rate_per_s, found.windows) == ("q12_event", 2_000, 2)
    assert found.results > 2
    assert 0 < found.p50_ms <= found.p95_ms <= found.p99_ms <= found.max_ms
    assert found.per_batch_s


def test_bids_fall_due_at_a_steady_rate() -> None:
    bids = PacedBids(rate_per_s=4_000, start_ms=1_700_000_000_000)
    assert [bids.due(bids.start_ms + passed) for passed in (-1, 0, 0.2, 0.25, 1, 1000)] == [0, 1, 1, 2, 5, 4_001]
    rows = bids.rows(3, 4_001, ("bidder", "date_time"))
    assert rows.schema.names == ["bidder", "date_time"]
    assert rows["bidder"].equals(Generator().bids(0, 10_000, ("bidder",))["bidder"].slice(3, 3_998))
    times = rows["date_time"].cast("int64").to_pylist()
    assert (times[0], times[1], times[-1]) == (bids.start_ms, bids.start_ms + 1, bids.start_ms + 1000)
    with pytest.raises(ValueError, match="1 or more"):
        PacedBids(0, 0)
