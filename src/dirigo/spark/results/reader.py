"""Spark out: a job's results as a batch or a streaming DataFrame. Tasks pull ranges of the results log by offset.

An offset names the job and the number of a record batch in its log, so a range means the same batches each time it is read:
a query that restarts from its checkpoint replays exactly what it had, and a new job of the same name is told from the old.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from dirigo.errors import DirigoError
from dirigo.runtime.control import Access, LogInfo
from dirigo.runtime.results.log import LogError
from dirigo.spark.results.log_folder import LogFolder
from dirigo.spark.results.types import arrow_schema, for_spark, spark_schema

_PIECE_BYTES: Final = 4 << 20  # what a task asks for at once
_BATCHES_PER_TASK_MIN: Final = 16  # below that, starting a task costs more than it saves
_TASKS_MAX: Final = 8
_WAIT_S: Final = 5.0
_LOOK_S: Final = 0.1
_WAITS_MAX: Final = 6  # for batches of which the log said that they are there


class LogClient(Protocol):
    """What a reader asks of a cluster."""

    def log_info(self, job: str, sink: str | None) -> LogInfo: ...

    def log_read(self, job: str, sink: str, offset: int, bytes_max: int, wait_s: float) -> list[bytes]: ...

    def close(self) -> None: ...


@runtime_checkable
class Connects(Protocol):
    """Access that knows its own client."""

    def connect(self) -> LogClient: ...


@dataclass(frozen=True)
class ReadOptions:
    """What the user said with ``.option(...)``."""

    job: str
    sink: str | None
    path: str | None
    starting_offsets: str
    fail_on_data_loss: bool
    until_end: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        path = options.get("path")
        job = options.get("job")
        if job is None and path is None:
            raise LogError('Say whose results to read: .option("job", NAME), or .option("path", FOLDER) for a log on disk.')
        starting = options.get("startingOffsets", "earliest").lower()
        if starting not in ("earliest", "latest"):
            raise LogError(f"startingOffsets is '{starting}'; it is either earliest or latest.")
        fails, until_end = _flag(options, "failOnDataLoss", "true"), _flag(options, "untilEnd", "false")
        if path is not None and until_end:
            raise LogError('untilEnd=true asks how the job is, which a folder does not know; give .option("job", NAME).')
        return cls(job or "", options.get("sink"), path, starting, fails, until_end)

    @property
    def whose(self) -> str:
        return f"the results in '{self.path}'" if self.path is not None else f"the results of job '{self.job}'"


def _flag(options: Mapping[str, str], name: str, default: str) -> bool:
    given = options.get(name, default).lower()
    if given not in ("true", "false"):
        raise LogError(f"{name} is '{given}'; it is either true or false.")
    return given == "true"


@dataclass(frozen=True)
class LogRange(InputPartition):  # type: ignore[misc]  # pyspark has no types that hold
    """What one task reads: batches start <= offset < end."""

    job: str
    sink: str
    schema: bytes
    start: int
    end: int


def connect(access: object, path: str | None = None) -> LogClient:
    """A client of the cluster; or, if a path is given, of the log in that folder."""
    if path is not None:
        return LogFolder(path).connect()
    if isinstance(access, Access):
        from dirigo.runtime.client.client import Client  # not before it is needed: a log on disk is read without sockets

        return Client(access)
    if isinstance(access, Connects):
        return access.connect()
    raise LogError(
        "This Spark session knows no service; tell it of one with dg.register(session), "
        'or read a log on disk with .option("path", FOLDER).'
    )


def result_schema(access: object, options: Mapping[str, str]) -> StructType:
    """The columns of a job's results."""
    asked = ReadOptions.parse(options)
    with contextlib.closing(connect(access, asked.path)) as client:
        info = client.log_info(asked.job, asked.sink)
    return spark_schema(_decoded(info.schema))


class LogReader(DataSourceReader):  # type: ignore[misc]
    """All that is in the log when the query is planned. A retried task reads the same again."""

    def __init__(self, access: object, options: Mapping[str, str], schema: StructType | None = None) -> None:
        self._access = access
        self._options = ReadOptions.parse(options)
        self._schema = schema

    def partitions(self) -> list[LogRange]:
        with contextlib.closing(connect(self._access, self._options.path)) as client:
            info = client.log_info(self._options.job, self._options.sink)
        return _ranges(info, info.first, info.next) or [LogRange(info.job, info.sink, info.schema, info.next, info.next)]

    def read(self, partition: LogRange) -> Iterator[pa.RecordBatch]:
        return _read(self._access, self._options, self._schema, partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The log as a stream: each micro-batch is what came since the last one."""

    def __init__(self, access: object, options: Mapping[str, str], schema: StructType | None = None) -> None:
        self._access = access
        self._options = ReadOptions.parse(options)
        self._schema = schema
        self._client: LogClient | None = None
        self._ends = False  # with the trigger availableNow
        self._up_to: int | None = None  # then: what is there when the query starts, unless it reads until the job ends

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}  # a connection does not travel

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        info = self._info()
        return _offset(info, info.next if self._options.starting_offsets == "latest" else info.first)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._ends = True
        if not self._options.until_end:
            self._up_to = self._info().next

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002
        """What is there now. Asking is one small message to the controller.

        Spark ends a query with the trigger availableNow when there is nothing new. So a query that reads until the end of
        its job is not told so before that, but waits here.
        """
        if self._options.until_end and not self._ends:
            raise LogError("untilEnd=true needs .trigger(availableNow=True): Spark lets a query end with no other trigger.")
        while True:
            info = self._info()
            begin = self._begin(info, start)
            end = info.next if self._up_to is None else self._up_to
            if end > begin:
                return _offset(info, end)
            if info.failed is not None and self._up_to is None:
                raise LogError(f"Job '{self._options.job}' failed, so no more results will come: {info.failed}")
            if not self._options.until_end or info.ended:
                return start
            time.sleep(_LOOK_S)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        info = self._info()
        return _offset(info, info.next)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LogRange]:
        info = self._info()
        if end["job"] != info.job:
            raise self._is_another_job(end)
        return _ranges(info, self._begin(info, start), end["offset"])

    def read(self, partition: LogRange) -> Iterator[pa.RecordBatch]:
        return _read(self._access, self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: how long results stay is a matter of their age and size, since others may read them too."""

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _info(self) -> LogInfo:
        if self._client is None:
            self._client = connect(self._access, self._options.path)
        return self._client.log_info(self._options.job, self._options.sink)

    def _begin(self, info: LogInfo, start: dict[str, Any]) -> int:
        """Where to read on. What retention removes later than now, the tasks find out."""
        offset: int = start["offset"] if start["job"] == info.job else -1
        if offset < info.first and self._options.fail_on_data_loss:
            raise _removed(self._options, offset, info.first) if offset >= 0 else self._is_another_job(start)
        return max(offset, info.first)

    def _is_another_job(self, offset: dict[str, Any]) -> LogError:
        return LogError(
            f"The query had read {self._options.whose} up to offset {offset['offset']} of another run ({offset['job']}); "
            "give it a new checkpointLocation, or failOnDataLoss=false to go on with the results that are there now."
        )


def _offset(info: LogInfo, number: int) -> dict[str, Any]:
    return {"job": info.job, "offset": number}


def _ranges(info: LogInfo, start: int, end: int) -> list[LogRange]:
    """Cut by the number of batches alone, so that the same range is always cut the same way; in the order of the log."""
    count = max(end - start, 0)
    tasks = min(-(-count // _BATCHES_PER_TASK_MIN), _TASKS_MAX)
    bounds = [start + count * number // tasks for number in range(tasks + 1)] if tasks else []
    return [LogRange(info.job, info.sink, info.schema, *pair) for pair in pairwise(bounds)]


def _read(access: object, options: ReadOptions, schema: StructType | None, part: LogRange) -> Iterator[pa.RecordBatch]:
    """Pull one range in pieces of a bounded size. Small batches are put together: each one costs Spark the same."""
    if part.start >= part.end:
        return
    stored = _decoded(part.schema)
    target = arrow_schema(schema if schema is not None else spark_schema(stored))
    with contextlib.closing(connect(access, options.path)) as client:
        for frames in _pull(client, options, part):
            batches = [pa.ipc.read_record_batch(pa.py_buffer(frame), stored) for frame in frames]
            batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            if batch.num_rows:
                yield for_spark(batch, target)


def _pull(client: LogClient, options: ReadOptions, part: LogRange) -> Iterator[list[bytes]]:
    offset = part.start
    waits = 0
    while offset < part.end:
        try:
            frames = client.log_read(part.job, part.sink, offset, _PIECE_BYTES, _WAIT_S)
        except DirigoError:
            first = client.log_info(part.job, part.sink).first
            if first <= offset:
                raise
            if options.fail_on_data_loss:
                raise _removed(options, offset, first) from None
            offset = first
            continue
        if not frames:
            waits += 1
            if waits == _WAITS_MAX:
                raise LogError(
                    f"Batch {offset} of {options.whose} did not come within {waits * _WAIT_S:.0f} s, though it is there; "
                    "see whether the cluster is alive."
                )
            continue
        yield frames[: part.end - offset]
        offset += len(frames)


def _removed(options: ReadOptions, offset: int, first: int) -> LogError:
    return LogError(
        f"Batches {offset} to {first - 1} of {options.whose} were removed by retention before they were read; "
        "let the log retain more, or give failOnDataLoss=false to go on without them."
    )


def _decoded(schema: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(schema))
