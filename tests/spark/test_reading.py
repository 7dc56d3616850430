"""Results as batch and streaming DataFrames, in a real Spark: nothing is lost, doubled or changed on the way."""

import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from dirigo.runtime.control import LogInfo
from dirigo.runtime.errors import ControlError
from dirigo.runtime.results.log import LogError, ResultLog, StoredLog
from dirigo.spark.data_source import FormatError, dirigo_format
from dirigo.spark.results.reader import LogReader, LogStreamReader, ReadOptions
from dirigo.spark.sessions import Reach, TaskAccess

SCHEMA = pa.schema([("number", pa.int64()), ("at", pa.timestamp("ms"))])


# --- a cluster that is only its logs: root / job / sink --------------------------------------------------------------------


@dataclass(frozen=True)
class LogHome:
    """Access to it; travels to Spark's processes like that of a real one."""

    root: str

    def connect(self) -> "LogHomeClient":
        return LogHomeClient(Path(self.root))


class LogHomeClient:
    """Answers as the client of a cluster does: jobs are asked for by name or id."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def log_info(self, job: str, sink: str | None) -> LogInfo:
        folder = self._folder(job, sink)
        log = StoredLog(folder)
        failed = folder.parent.parent / f"{folder.parent.name}.failed"
        return LogInfo(
            log.id,
            folder.name,
            log.schema.serialize().to_pybytes(),
            log.first,
            log.next,
            log.ended,
            failed.read_text() if failed.exists() else None,
        )

    def log_read(self, job: str, sink: str, offset: int, bytes_max: int, wait_s: float) -> list[bytes]:
        return StoredLog(self._folder(job, sink)).read(offset, bytes_max)

    def close(self) -> None:
        pass

    def _folder(self, job: str, sink: str | None) -> Path:
        folders = [f for f in sorted(self._root.glob("*/*")) if job in (f.parent.name, StoredLog(f).id)]
        if not folders:
            raise ControlError(f"There is no job '{job}'; see dirigo jobs.")
        if sink is None and len(folders) > 1:
            raise ControlError(f"Job '{job}' has several sinks ({', '.join(f.name for f in folders)}); name one.")
        return next(f for f in folders if sink in (None, f.name))


# Spark's Python processes cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Results:
    """One log that a test writes to."""

    def __init__(self, root: Path, job: str = "job", sink: str = "sink", **limits: Any) -> None:
        self.job = job
        self.log = ResultLog(root / job / sink, SCHEMA, **limits)
        self.count = 0

    def add(self, batches: int, rows: int = 3) -> range:
        """Batches of ascending numbers; returns the numbers."""
        begin = self.count
        for _ in range(batches):
            numbers = range(self.count, self.count + rows)
            batch = pa.record_batch({"number": numbers, "at": [n * 1000 for n in numbers]}, schema=SCHEMA)
            self.log.append(batch.serialize().to_pybytes(), rows)
            self.count += rows
        return range(begin, self.count)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "America/New_York")  # neither ours nor UTC
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Path:
    """A registered stand-in; the folder of its logs."""
    root = tmp_path / "logs"
    root.mkdir()
    spark.dataSource.register(dirigo_format(Reach({"run": TaskAccess(LogHome(str(root)))}, ("run",))))
    return root


def numbers(rows: Sequence[Row]) -> list[int]:
    return [row.number for row in rows]


# --- batch -----------------------------------------------------------------------------------------------------------------


def test_a_batch_read_has_all_rows_in_the_order_of_the_log(spark: SparkSession, home: Path) -> None:
    results = Results(home, segment_bytes=5_000)
    results.add(batches=40)
    results.add(batches=1, rows=0)
    frame = spark.read.format("dirigo").option("job", "job").load()
    assert frame.dtypes == [("number", "bigint"), ("at", "timestamp_ntz")]
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.collect()
    assert numbers(rows) == list(range(120))
    assert rows[7].at == datetime(1970, 1, 1, 0, 0, 7)  # noqa: DTZ001
    results.add(batches=1)
    assert spark.read.format("dirigo").option("job", "job").load().count() == 123


def test_an_empty_log_is_an_empty_frame(spark: SparkSession, home: Path) -> None:
    Results(home)
    frame = spark.read.format("dirigo").option("job", "job").load()
    assert frame.columns == ["number", "at"]
    assert frame.collect() == []


def test_a_log_on_disk_is_read_without_a_cluster(spark: SparkSession, tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add(batches=20)
    spark.dataSource.register(dirigo_format(Reach()))
    assert numbers(spark.read.format("dirigo").load(str(tmp_path / "job" / "sink")).collect()) == list(range(60))
    with pytest.raises(PySparkException, match="There is no results log in"):
        spark.read.format("dirigo").load(str(tmp_path))
    with pytest.raises(PySparkException, match="knows no service; tell it of one"):
        spark.read.format("dirigo").option("job", "job").load()


def test_one_of_several_sinks(spark: SparkSession, home: Path) -> None:
    Results(home, sink="few").add(batches=1)
    Results(home, sink="many").add(batches=10)
    assert spark.read.format("dirigo").option("job", "job").option("sink", "many").load().count() == 30
    with pytest.raises(PySparkException, match="several sinks \\(few, many\\); name one"):
        spark.read.format("dirigo").option("job", "job").load()


@pytest.mark.acceptance
def test_columns_can_be_asked_for(spark: SparkSession, home: Path) -> None:
    Results(home).add(batches=2)
    frame = spark.read.format("dirigo").schema("at timestamp_ntz, number double").option("job", "job").load()
    assert [tuple(row) for row in frame.collect()][4] == (datetime(1970, 1, 1, 0, 0, 4), 4.0)  # noqa: DTZ001
    with pytest.raises(PySparkException, match="The results have no column 'price', only number, at"):
        spark.read.format("dirigo").schema("price long").option("job", "job").load().collect()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("sink", "x", "Say whose results to read"),
        ("job", "no-such", "There is no job 'no-such'; see dirigo jobs"),
    ],
)
def test_a_wrong_option_is_said(spark: SparkSession, home: Path, option: str, value: str, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.read.format("dirigo").option(option, value).load()


@pytest.mark.parametrize("option", ["startingOffsets", "failOnDataLoss"])
def test_a_wrong_value_of_an_option_is_said(option: str) -> None:
    with pytest.raises(LogError, match=f"{option} is 'sometimes'; it is either"):
        ReadOptions.parse({"job": "job", option: "Sometimes"})


# --- types -----------------------------------------------------------------------------------------------------------------

NOON = datetime(2024, 2, 29, 12, 0, 0, 123_000)  # noqa: DTZ001  # of no zone
COLUMNS: list[tuple[pa.DataType, Any, str, Any]] = [  # Arrow type, value, Spark type, what Spark makes of it
    (pa.bool_(), True, "boolean", True),
    (pa.int8(), -128, "tinyint", -128),
    (pa.uint8(), 255, "smallint", 255),
    (pa.uint16(), 65_535, "int", 65_535),
    (pa.uint32(), 2**32 - 1, "bigint", 2**32 - 1),
    (pa.uint64(), 2**64 - 1, "decimal(20,0)", Decimal(2**64 - 1)),
    (pa.float16(), 1.5, "float", 1.5),
    (pa.float32(), 0.25, "float", 0.25),
    (pa.float64(), 0.1, "double", 0.1),
    (pa.decimal128(23, 3), Decimal("1.234"), "decimal(23,3)", Decimal("1.234")),
    (pa.decimal256(30, 1), Decimal("1.5"), "decimal(30,1)", Decimal("1.5")),
    (pa.timestamp("s"), NOON.replace(microsecond=0), "timestamp_ntz", NOON.replace(microsecond=0)),
    (pa.timestamp("ms"), NOON, "timestamp_ntz", NOON),
    (pa.timestamp("us"), NOON, "timestamp_ntz", NOON),
    (pa.timestamp("ns"), NOON, "timestamp_ntz", NOON),
    (pa.timestamp("ms", "UTC"), NOON.replace(tzinfo=UTC), "timestamp", NOON.replace(tzinfo=UTC)),
    (pa.timestamp("ms", "Asia/Tokyo"), NOON.replace(tzinfo=UTC), "timestamp", NOON.replace(tzinfo=UTC)),
    (pa.date32(), NOON.date(), "date", NOON.date()),
    (pa.date64(), date(1969, 7, 20), "date", date(1969, 7, 20)),
    (pa.time32("ms"), time(1, 2, 3), "time(6)", time(1, 2, 3)),
    (pa.duration("ms"), timedelta(hours=30), "interval day to second", timedelta(hours=30)),
    (pa.string(), "größer", "string", "größer"),
    (pa.large_string(), "a", "string", "a"),
    (pa.string_view(), "a longer one than twelve", "string", "a longer one than twelve"),
    (pa.binary(), b"\0\xff", "binary", b"\0\xff"),
    (pa.large_binary(), b"a", "binary", b"a"),
    (pa.binary(3), b"abc", "binary", b"abc"),
    (pa.list_(pa.uint8()), [1, None], "array<smallint>", [1, None]),
    (pa.large_list(pa.timestamp("ms")), [NOON], "array<timestamp_ntz>", [NOON]),
    (pa.list_(pa.int32(), 2), [1, 2], "array<int>", [1, 2]),
    (pa.map_(pa.string(), pa.uint16()), {"a": 1}, "map<string,int>", {"a": 1}),
    (pa.struct([("x", pa.uint32()), ("y", pa.string())]), {"x": 1, "y": "z"}, "struct<x:bigint,y:string>", Row(x=1, y="z")),
    (pa.null(), None, "void", None),
]


def test_every_type_arrives_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([(f"c{n}", column[0]) for n, column in enumerate(COLUMNS)])
    arrays = [pa.array([list(v.items()) if pa.types.is_map(kind) else v, None], kind) for kind, v, _, _ in COLUMNS]
    log = ResultLog(tmp_path, schema)
    log.append(pa.RecordBatch.from_arrays(arrays, schema=schema).serialize().to_pybytes(), 2)
    log.close()
    spark.dataSource.register(dirigo_format(Reach()))
    frame = spark.read.format("dirigo").load(str(tmp_path))
    assert [kind for _, kind in frame.dtypes] == [column[2] for column in COLUMNS]
    first, second = frame.collect()
    for value, (kind, _, _, expected) in zip(first, COLUMNS, strict=True):
        # Spark gives times with a zone as local ones without.
        assert (value.astimezone(UTC) if isinstance(value, datetime) and kind.tz else value) == expected, kind
    assert set(second) == {None}


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.decimal256(60, 2), pa.decimal128(5, -2)])
def test_a_type_that_spark_has_not_is_said(tmp_path: Path, kind: pa.DataType) -> None:
    ResultLog(tmp_path, pa.schema([("strange", kind)])).close()
    source = dirigo_format(Reach())(options={"path": str(tmp_path)})
    with pytest.raises(LogError, match=r"Spark has no type for the column 'strange', which is .*; cast or drop it"):
        source.schema()


def test_a_value_that_spark_cannot_hold_is_said(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("ms"))])
    log = ResultLog(tmp_path, schema)
    log.append(pa.record_batch({"at": [2**62]}, schema=schema).serialize().to_pybytes(), 1)
    reader = LogReader(None, {"path": str(tmp_path)})
    with pytest.raises(LogError, match=r"Column 'at' cannot be brought from timestamp\[ms\] .*; cast it in the flow"):
        list(reader.read(reader.partitions()[0]))
    log.close()


# --- streams ---------------------------------------------------------------------------------------------------------------


class Seen:
    """What a query gave, per micro-batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.fails_at: int | None = None

    def take(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = numbers(frame.collect())
        if number == self.fails_at:
            raise RuntimeError("the sink is broken")

    @property
    def all(self) -> list[int]:
        return [n for _, batch in sorted(self.batches.items()) for n in batch]


def start(spark: SparkSession, seen: Seen, checkpoint: Path, **options: str) -> StreamingQuery:
    stream = spark.readStream.format("dirigo").options(**{"job": "job", **options}).load()
    assert stream.isStreaming
    return stream.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(checkpoint)).start()


def run(spark: SparkSession, seen: Seen, checkpoint: Path, **options: str) -> None:
    """All that is there now."""
    query = start(spark, seen, checkpoint, **options)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_a_stream_goes_on_where_it_was(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    results, seen = Results(home, segment_bytes=2_000), Seen()
    results.add(batches=70)
    query = start(spark, seen, tmp_path / "checkpoint")
    query.processAllAvailable()
    assert seen.batches == {0: list(range(210))}  # what was there before is one micro-batch
    for count in (1, 40):  # what comes while the query looks may be several
        results.add(batches=count)
        query.processAllAvailable()
        assert seen.all == list(range(results.count))
    query.stop()
    before, first_new = len(seen.batches), results.count
    results.add(batches=5)
    results.log.end()
    run(spark, seen, tmp_path / "checkpoint")
    assert seen.all == list(range(results.count))
    assert len(seen.batches) == before + 1
    assert seen.batches[before] == list(range(first_new, results.count))


def test_a_batch_that_failed_is_replayed_exactly(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    results, seen = Results(home), Seen()
    results.add(batches=3)
    run(spark, seen, tmp_path / "checkpoint")
    results.add(batches=40)
    seen.fails_at = 1
    with pytest.raises(StreamingQueryException, match="the sink is broken"):
        run(spark, seen, tmp_path / "checkpoint")
    failed = seen.batches.pop(1)
    assert failed == list(range(9, 129))
    seen.fails_at = None
    results.add(batches=4)  # these came later, and must not slip into the batch that failed
    run(spark, seen, tmp_path / "checkpoint")
    assert seen.batches[1] == failed
    assert seen.all == list(range(results.count))


def test_parquet_has_each_row_once_over_restarts(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    results = Results(home)
    for _ in range(2):
        results.add(batches=20)
        query = (
            spark.readStream.format("dirigo")
            .schema("number long, at timestamp")  # watermarks of Spark are for times with a zone only
            .option("job", "job")
            .load()
            .withWatermark("at", "1 second")
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start(str(tmp_path / "out"), format="parquet")
        )
        assert query.awaitTermination(120)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("number").collect()
    assert numbers(rows) == list(range(120))
    assert rows[90].at.astimezone(UTC) == datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC)


def test_a_stream_from_the_latest_has_only_what_comes(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    results, seen = Results(home), Seen()
    results.add(batches=5)
    query = start(spark, seen, tmp_path / "checkpoint", startingOffsets="latest")
    query.processAllAvailable()
    new = results.add(batches=2)
    query.processAllAvailable()
    query.stop()
    assert seen.all == list(new)


@pytest.mark.acceptance
def test_what_retention_removed_fails_the_query_or_is_skipped(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    results, seen = Results(home, segment_bytes=2_000, retain_bytes=8_000), Seen()
    results.add(batches=2)
    run(spark, seen, tmp_path / "checkpoint")
    results.add(batches=200)
    first = results.log.first
    assert first > 2
    with pytest.raises(
        StreamingQueryException, match=rf"Batches 2 to {first - 1} of the results of job 'job' were removed by"
    ):
        run(spark, seen, tmp_path / "checkpoint")
    run(spark, seen, tmp_path / "checkpoint", failOnDataLoss="false")
    assert seen.all == [*range(6), *range(first * 3, results.count)]


@pytest.mark.acceptance
def test_a_new_job_of_the_same_name_is_not_taken_for_the_old_one(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    seen = Seen()
    Results(home).add(batches=3)
    run(spark, seen, tmp_path / "checkpoint")
    (home / "job").rename(tmp_path / "old")
    Results(home).add(batches=5)
    with pytest.raises(StreamingQueryException, match=r"up to offset 3 of another run .*; give it a new checkpointLocation"):
        run(spark, seen, tmp_path / "checkpoint")
    run(spark, seen, tmp_path / "checkpoint", failOnDataLoss="false")
    assert seen.all == [*range(9), *range(15)]


def test_the_query_fails_when_the_job_did_and_all_is_read(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    results, seen = Results(home), Seen()
    results.add(batches=3)
    (home / "job.failed").write_text("operator 'price' failed")
    with pytest.raises(
        StreamingQueryException, match="Job 'job' failed, so no more results will come: operator 'price' failed"
    ):
        start(spark, seen, tmp_path / "checkpoint").awaitTermination(120)
    assert seen.all == list(range(9))


# --- the readers alone -----------------------------------------------------------------------------------------------------


def test_a_range_is_cut_in_order_without_gaps(tmp_path: Path) -> None:
    results = Results(tmp_path)
    access = LogHome(str(tmp_path))
    reader = LogStreamReader(access, {"job": "job"})
    first = reader.initialOffset()
    for batches in (0, 1, 15, 16, 17, 1_000):
        results.add(batches, rows=1)
        last = {"job": first["job"], "offset": results.log.next}
        parts = reader.partitions(first, last)
        bounds = [first["offset"], *(part.end for part in parts)]
        assert [part.start for part in parts] == bounds[:-1]
        assert bounds[-1] == last["offset"]
        assert len(parts) <= 8
        assert reader.partitions(first, last) == parts
    reader.stop()


def test_a_task_reads_its_range_and_no_more(tmp_path: Path) -> None:
    Results(tmp_path).add(batches=50, rows=2)
    reader = LogReader(LogHome(str(tmp_path)), {"job": "job"})
    parts = reader.partitions()
    assert len(parts) == 4
    got = [n for part in parts for batch in reader.read(part) for n in batch.column("number").to_pylist()]
    assert got == list(range(100))


def test_a_log_that_does_not_give_what_it_has_is_not_waited_for_forever(tmp_path: Path) -> None:
    Results(tmp_path).add(batches=1)

    class Silent(LogHomeClient):
        def log_read(self, job: str, sink: str, offset: int, bytes_max: int, wait_s: float) -> list[bytes]:
            return []

    class ToSilent(LogHome):
        def connect(self) -> LogHomeClient:
            return Silent(Path(self.root))

    reader = LogReader(ToSilent(str(tmp_path)), {"job": "job"})
    with pytest.raises(LogError, match="Batch 0 of the results of job 'job' did not come within 30 s"):
        list(reader.read(reader.partitions()[0]))


def test_a_reader_travels_without_its_connection(tmp_path: Path) -> None:
    Results(tmp_path).add(batches=1)
    reader = LogStreamReader(LogHome(str(tmp_path)), {"job": "job"})
    offset = reader.initialOffset()
    travelled = pickle.loads(cloudpickle.dumps(reader))
    assert travelled.initialOffset() == offset
    for each in (reader, travelled):
        each.stop()


@pytest.mark.parametrize("method", ["writer", "streamWriter"])
def test_overwriting_is_refused(method: str) -> None:
    source = dirigo_format(Reach())(options={"job": "job"})
    with pytest.raises(FormatError, match=r"cannot replace .*: write with .*append"):
        getattr(source, method)(schema=None, overwrite=True)
