"""DataFrames written into a job, by a real Spark: every row comes once, whatever is run again."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import zmq
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import dirigo as dg
from dirigo.errors import DirigoError
from dirigo.flow.errors import FlowError
from dirigo.flow.sources.pushed import PushedSplit
from dirigo.runtime.control import AttemptRef, SourcePlaces, SplitPlace
from dirigo.runtime.errors import ControlError
from dirigo.runtime.ingest.pusher import STAGED, Pusher, PushError, StagingHeader
from dirigo.runtime.ingest.staging import Staging
from dirigo.runtime.transport.fragments import joined
from dirigo.spark.data_source import dirigo_format
from dirigo.spark.input.source import SparkQuery, SparkSource, from_spark, reason_of
from dirigo.spark.input.writer import BatchWriter, Staged
from dirigo.spark.sessions import Reach, TaskAccess

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("ms", "UTC"))])
SPLITS = 2


# --- a worker and a controller, as far as writers see them -------------------------------------------------------------


class NoKeys:
    def secure_client(self, socket: zmq.Socket[bytes], server_public: str) -> None:
        """Let everybody in."""


@dataclass(frozen=True)
class HomeAccess:
    """Travels to Spark's processes like the access to a real cluster."""

    endpoint: str
    keys: NoKeys = field(default_factory=NoKeys)

    def connect(self) -> HomeClient:
        return HomeClient(self.endpoint)


class HomeClient:
    """Asks the home, which is in another process."""

    def __init__(self, endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(endpoint)

    def source_places(self, job: str, source: str | None) -> SourcePlaces:
        return msgspec.convert(self._ask("places", job, source), SourcePlaces)

    def release(self, job: str, source: str, query: str, batch: int, attempts: list[AttemptRef], wait_s: float) -> None:
        self._ask("release", job, source, query, batch, [(each.split, each.attempt) for each in attempts])

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _ask(self, *request: Any) -> Any:
        self._socket.send_multipart([b"ask", msgspec.msgpack.encode(request)])
        assert self._socket.poll(30_000), "the home does not answer"
        answer, error = msgspec.msgpack.decode(self._socket.recv())
        if error:
            raise ControlError(error)
        return answer


class Home:
    """One source of one job, in a thread: what was released is read in the test."""

    def __init__(self, folder: Path, schema: pa.Schema = SCHEMA, time: str | None = "at") -> None:
        self.folder = folder
        self.schema = schema
        self.stagings = [Staging(folder / str(split), schema, time=time) for split in range(SPLITS)]
        self.splits = [PushedSplit(schema, split) for split in range(SPLITS)]
        for split, staging in zip(self.splits, self.stagings, strict=True):
            split.attach(staging)
        self.attempts: set[str] = set()  # with rows
        self.releases: list[tuple[str, int, list[bool]]] = []  # query, batch, what each split said
        self.reached: set[int | None] = set()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def read(self) -> list[int]:
        """All rows that were released since the last time, in order of their numbers."""
        found: list[int] = []
        for split in self.splits:
            while (piece := split.read(100_000)) is not None:
                found += piece.rows.column("n").to_pylist()
                if not piece.holds_time:
                    self.reached.add(piece.reached_ms)
        return sorted(found)

    @property
    def files(self) -> int:
        return len(list(self.folder.glob("*/*")))

    def _serve(self) -> None:
        while not self._stopping.is_set():
            if not self._socket.poll(50):
                continue
            peer, kind, body, *frames = joined(self._socket.recv_multipart())
            if kind == b"ask":
                self._socket.send_multipart([peer, msgspec.msgpack.encode(self._answer(*msgspec.msgpack.decode(body)))])
                continue
            header = msgspec.msgpack.decode(body, type=StagingHeader)
            if frames:
                self.attempts.add(header.attempt)
            ack = self.stagings[header.split].receive(header, frames)
            self._socket.send_multipart([peer, STAGED, msgspec.msgpack.encode(ack)])

    def _answer(self, what: str, job: str, source: str | None, *rest: Any) -> tuple[Any, str | None]:
        if job != "job":
            return None, f"There is no job '{job}'; see `dirigo jobs`."
        if what == "places":
            places = tuple(SplitPlace(split, 0, 1, self.endpoint) for split in range(SPLITS))
            return SourcePlaces("job", "rows", self.schema.serialize().to_pybytes(), places), None
        query, batch, attempts = rest
        try:
            said = [
                staging.release(query, batch, [attempt for split, attempt in attempts if split == number])
                for number, staging in enumerate(self.stagings)
            ]
        except DirigoError as error:
            return None, str(error)
        self.releases.append((query, batch, said))
        return None, None


# Spark's Python processes cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2,4]")  # a task is tried four times
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "America/New_York")  # neither ours nor UTC
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Iterator[Home]:
    yield from opened(spark, Home(tmp_path / "home"))


def opened(spark: SparkSession, home: Home) -> Iterator[Home]:
    spark.dataSource.register(dirigo_format(Reach({"run": TaskAccess(None, HomeAccess(home.endpoint))}, ("run",))))
    yield home
    home.close()


def rows_of(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    numbers = spark.range(0, count, 1, partitions)
    return numbers.select(fn.timestamp_millis("id").alias("at"), fn.col("id").alias("n"))  # not in the order of the source


def write(frame: DataFrame, **options: str) -> None:
    frame.write.format("dirigo").options(**({"job": "job"} | options)).mode("append").save()


# --- batch -----------------------------------------------------------------------------------------------------------------


def test_a_batch_frame_comes_whole_at_its_commit(spark: SparkSession, home: Home) -> None:
    write(rows_of(spark, 10_000, 3))
    assert home.read() == list(range(10_000))
    assert home.reached == {9_999}, "both splits know how far time is, whoever got the newest row"
    assert home.files == 0
    write(rows_of(spark, 5, 1))
    assert home.read() == list(range(5)), "another write is another query"
    assert len({query for query, _, _ in home.releases}) == 2


def test_every_split_hears_of_time_also_without_rows(spark: SparkSession, home: Home) -> None:
    write(rows_of(spark, 10, 1))
    pieces = [split.read(100) for split in home.splits]
    assert [(piece.rows.num_rows, piece.reached_ms) for piece in pieces if piece is not None] == [(10, 9), (0, 9)]


def test_an_empty_frame_releases_nothing(spark: SparkSession, home: Home) -> None:
    write(rows_of(spark, 0, 2))
    assert home.read() == []
    assert home.releases == []


def test_points_in_time_survive_zones_and_units(spark: SparkSession, home: Home) -> None:
    write(spark.sql("SELECT 1L AS n, TIMESTAMP '2024-07-01 12:00:00.123456' AS at"))
    (piece,) = [piece for split in home.splits if (piece := split.read(10)) is not None and piece.rows.num_rows]
    assert piece.rows.column("at").to_pylist() == [datetime(2024, 7, 1, 16, 0, 0, 123_000, UTC)]


@pytest.mark.parametrize("how", ["raise", "die"])
def test_a_task_that_fails_half_way_and_is_run_again_with_its_rows_in_another_order(
    spark: SparkSession, home: Home, how: str
) -> None:
    count = 400_000
    staged = home.folder / "1"

    def fail_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() != 1:
            yield from batches
        elif task.attemptNumber() == 0:
            yield from batches
            for _ in range(3_000):  # until the first of the rows are staged
                if any(staged.iterdir()):
                    break
                threading.Event().wait(0.01)
            if how == "die":
                os._exit(1)
            raise ValueError("half-way")
        else:
            yield from reversed(list(batches))

    write(rows_of(spark, count, 2).mapInArrow(fail_once, "at timestamp, n bigint"))
    assert home.read() == list(range(count))
    assert len(home.attempts) == 3, "the failed attempt had staged some rows"
    for staging in home.stagings:
        staging.drop(list(home.attempts))  # where the process died, nobody took them back
    assert home.files == 0


def test_a_write_that_fails_for_good_releases_nothing(spark: SparkSession, home: Home) -> None:
    def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 1:
            raise ValueError("always")
        yield from batches

    frame = rows_of(spark, 100, 2).mapInArrow(fail, "at timestamp, n bigint")
    with pytest.raises(PySparkException, match="always"):
        write(frame)
    assert home.read() == []
    assert home.releases == []


def test_a_commit_without_the_message_of_a_task_is_refused(spark: SparkSession, home: Home) -> None:
    writer = BatchWriter(HomeAccess(home.endpoint), {"job": "job"}, rows_of(spark, 1, 1).schema)
    with pytest.raises(PushError, match="a task that does not tell where they are"):
        writer.commit([Staged("query"), None])
    assert home.releases == []


def test_an_abort_takes_back_what_was_staged(spark: SparkSession, home: Home) -> None:
    frame = rows_of(spark, 1, 1)
    writer = BatchWriter(HomeAccess(home.endpoint), {"job": "job"}, frame.schema)
    places = HomeClient(home.endpoint)
    found = places.source_places("job", None)
    places.close()
    with Pusher(found, found.splits[1], NoKeys()) as pusher:
        pusher.push(pa.record_batch({"n": [1], "at": [1]}, schema=SCHEMA))
        ref = pusher.finish()
    assert home.files == 1
    writer.abort([None, Staged("query"), Staged("query", ref)])
    for _ in range(1_000):
        if not home.files:
            break
        threading.Event().wait(0.01)
    assert home.files == 0


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (["id AS n"], "wants the column 'at', which the DataFrame lacks; select exactly n, at."),
        (
            ["id AS n", "now() AS At"],
            "wants the column 'at', which the DataFrame lacks (it has 'At'); select exactly n, at.",
        ),
        (["id AS n", "now() AS at", "id"], "has no column 'id'; select exactly n, at."),
        (
            ["cast(id AS string) AS n", "now() AS at"],
            "wants the column 'n' as int64, but in the DataFrame it is string; cast it there.",
        ),
    ],
)
def test_columns_that_do_not_match_are_one_sentence(
    spark: SparkSession, home: Home, columns: list[str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as failure:
        write(spark.range(1).selectExpr(*columns))
    assert reason_of(str(failure.value)) == f"Source 'rows' of job 'job' {sentence}"


def test_harmless_casts_are_made_and_a_value_that_does_not_fit_is_told(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int32()), ("x", pa.float64()), ("names", pa.list_(pa.large_string()))])
    for home in opened(spark, Home(tmp_path / "home", schema, time=None)):
        good = spark.sql("SELECT 7L AS n, 3 AS x, array('a', null) AS names")
        write(good)
        (piece,) = [piece for split in home.splits if (piece := split.read(10)) is not None and piece.rows.num_rows]
        assert piece.rows.to_pylist() == [{"n": 7, "x": 3.0, "names": ["a", None]}]
        with pytest.raises(PySparkException) as failure:
            write(good.withColumn("n", fn.lit(1 << 40)))
        assert "column 'n' as int32, and a value does not fit" in reason_of(str(failure.value))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"job": "other"}, "There is no job 'other'; see `dirigo jobs`."),
        ({}, 'Say which job the rows are for: .option("job", NAME).'),
    ],
)
def test_a_wrong_job_is_one_sentence(spark: SparkSession, home: Home, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(PySparkException) as failure:
        rows_of(spark, 1, 1).write.format("dirigo").options(**options).mode("append").save()
    assert reason_of(str(failure.value)) == sentence


# --- streaming -------------------------------------------------------------------------------------------------------------


class Files:
    """A stream of files, which can be read again from any offset."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.input = folder / "input"
        self.checkpoint = folder / "checkpoint"
        self.input.mkdir()
        self._count = 0

    def add(self, numbers: Iterable[int]) -> None:
        lines = "".join(f'{{"n": {n}, "at": "1970-01-01T00:00:00.{n % 1000:03}Z"}}\n' for n in numbers)
        (self.input / f"{self._count}.json").write_text(lines)
        self._count += 1

    def frame(self, partitions: int = 2) -> DataFrame:
        stream = self._spark.readStream.schema("n bigint, at timestamp").option("maxFilesPerTrigger", 1)
        return stream.json(str(self.input)).repartition(partitions)

    def run(self, frame: DataFrame) -> None:
        writer = frame.writeStream.format("dirigo").option("job", "job").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        query.awaitTermination()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path)


def test_a_micro_batch_that_is_replayed_is_not_doubled(home: Home, stream: Files) -> None:
    stream.add(range(100))
    stream.add(range(100, 200))
    stream.run(stream.frame())
    assert home.read() == list(range(200))
    # As if Spark had died between our release and its own note of the commit.
    for name in ("1", ".1.crc"):
        (stream.checkpoint / "commits" / name).unlink()
    stream.add(range(200, 300))
    stream.run(stream.frame(partitions=1))  # and the rows are cut otherwise this time
    assert home.read() == list(range(200, 300))
    assert [(batch, said) for _, batch, said in home.releases] == [
        (0, [True, True]),
        (1, [True, True]),
        (1, [False, False]),
        (2, [True, True]),
    ]
    assert len({query for query, _, _ in home.releases}) == 1, "it is the same query after a restart"
    assert home.files == 0


def test_another_query_is_told_apart(home: Home, stream: Files, tmp_path: Path) -> None:
    stream.add(range(10))
    stream.run(stream.frame())
    stream.checkpoint = tmp_path / "another"
    stream.run(stream.frame())
    assert home.read() == sorted([*range(10), *range(10)])


# --- from_spark ------------------------------------------------------------------------------------------------------------


def test_a_batch_frame_is_a_bounded_source_with_sparks_own_types(spark: SparkSession, home: Home) -> None:
    frame = rows_of(spark, 100, 2)
    source = from_spark(frame, time="at", name="rows")
    assert source.is_bounded
    assert source.schema.equals(pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())]))
    query = source.start("job")
    assert query is not None
    assert query.wait(60)
    assert query.error is None
    assert home.read() == list(range(100))
    query.stop()


def test_only_the_description_travels(spark: SparkSession) -> None:
    flow = dg.Dataflow("flow")
    source = from_spark(rows_of(spark, 1, 1), time="at")
    flow.source(source).sink(dg.to_memory())
    assert source.session is not None
    copy = pickle.loads(pickle.dumps(source))
    assert isinstance(copy, SparkSource)
    assert copy.session is None
    assert (copy.schema, copy.time, copy.is_bounded, copy.name) == (source.schema, "at", True, "spark")
    assert source.session is not None, "the original keeps its frame"


def test_a_stream_is_run_and_stopped(spark: SparkSession, home: Home, stream: Files) -> None:
    stream.add(range(50))
    source = from_spark(stream.frame(), time="at", trigger="100ms", checkpoint=stream.checkpoint)
    assert not source.is_bounded
    query = source.start("job", "rows")
    assert query is not None
    found: list[int] = []
    for _ in range(600):
        found += home.read()
        if len(found) == 50 or query.wait(1):
            break
    assert found == list(range(50))
    query.stop()
    query.stop()
    assert query.wait(1)
    assert query.error is None
    assert stream.checkpoint.exists()


def test_a_stream_of_what_there_is_now_ends(spark: SparkSession, home: Home, stream: Files) -> None:
    stream.add(range(50))
    source = from_spark(stream.frame(), trigger="availableNow")
    assert source.is_bounded
    started: list[SparkQuery | None] = []
    thread = threading.Thread(target=lambda: started.append(source.start("job", "rows")))  # Spark knows sessions by thread
    thread.start()
    thread.join()
    (query,) = started
    assert query is not None
    assert query.wait(60)
    assert query.error is None
    assert home.read() == list(range(50))
    query.stop()


def test_a_query_that_fails_says_why(spark: SparkSession, home: Home, stream: Files) -> None:
    stream.add(range(3))
    sentence = "Source 'rows' of job 'job' has no column 'x'; select exactly n, at."
    for frame in (rows_of(spark, 1, 1), stream.frame()):
        query = from_spark(frame.withColumn("x", fn.lit(1))).start("job", "rows")
        assert query is not None
        assert query.wait(60)
        assert query.has_ended
        assert query.error == sentence
        query.stop()


def test_a_batch_query_can_be_stopped(spark: SparkSession, home: Home) -> None:
    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        threading.Event().wait(60)

    query = from_spark(rows_of(spark, 10, 1).mapInArrow(wait, "at timestamp, n bigint")).start("job", "rows")
    assert query is not None
    query.stop()
    assert query.wait(30)
    assert query.error is None
    assert home.read() == []


def test_without_a_frame_a_query_of_the_user_is_waited_for() -> None:
    source = from_spark(schema={"n": int}, name="mine")
    assert source.start("job") is None
    assert source.session is None
    assert not source.is_bounded


def test_what_cannot_work_is_refused(spark: SparkSession) -> None:
    frame = spark.range(1)
    for arguments, sentence in (
        ({}, "neither a DataFrame nor a schema"),
        ({"df": frame, "schema": {"id": int}}, "leave out schema="),
        ({"df": [1, 2]}, "list is no DataFrame of Spark"),
        ({"df": frame, "trigger": "1s"}, "are for a streaming DataFrame"),
        ({"df": frame, "time": "at"}, "there is no column 'at'"),
        ({"df": spark.sql("SELECT make_interval(1) AS i")}, "has no Arrow type"),
    ):
        with pytest.raises(FlowError, match=sentence):
            from_spark(**arguments)
