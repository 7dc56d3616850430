"""Spark in: the rows of a batch or streaming DataFrame go to a source of a running job, each of them exactly once.

A task may be run more than once, with its rows in another order: so each attempt stages its rows at a worker, and the commit
releases those of the winners. A micro-batch that was released before is not released again. Backpressure acts in the commit.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from dirigo.flow.api.duration import positive_milliseconds
from dirigo.runtime.control import Access, AttemptRef, SourcePlaces
from dirigo.runtime.ingest.pusher import Arrival, ClientKeys, Pusher, PushError
from dirigo.spark.input.bringing import Bringing, places_of
from dirigo.spark.input.columns import Fitting

_ROOM_WAIT_S: Final = 3_600.0  # how long a commit waits for a job that is behind
_QUERY_ID: Final = "sql.streaming.queryId"  # Spark's own: the same when a query goes on from its checkpoint


class PushClient(Protocol):
    """What a writer asks of a cluster."""

    def source_places(self, job: str, source: str | None) -> SourcePlaces: ...

    def release(
        self, job: str, source: str, query: str, batch: int, attempts: list[AttemptRef], wait_s: float
    ) -> bool | None: ...

    def is_committing(self, job: str, source: str, query: str, batch: int) -> bool: ...

    def close(self) -> None: ...


@runtime_checkable
class PushAccess(Protocol):
    """Access that knows its own client."""

    keys: ClientKeys

    def connect(self) -> PushClient: ...


@dataclass(frozen=True)
class Staged(WriterCommitMessage):  # type: ignore[misc]  # pyspark has no types that hold
    """What a task tells the commit. A task without rows has staged nothing."""

    query: str
    ref: AttemptRef | None = None
    newest_ms: int | None = None
    oldest_ms: int | None = None
    began_ms: int = 0  # when the micro-batch was planned


class _Writing:
    """What batch and streaming writers have in common. Made where the query is planned, and pickled to its tasks."""

    def __init__(self, access: object, options: Mapping[str, str], schema: StructType) -> None:
        job = options.get("job")
        if job is None:
            raise PushError('Say which job the rows are for: .option("job", NAME).')
        self._access = access
        self._began_ms = int(time.time() * 1000)
        trigger = options.get("trigger")
        self._every_ms = 0 if trigger is None else positive_milliseconds(trigger, "the option trigger")
        self._places = places_of(partial(_connect, access), job, options.get("source"))
        wanted = pa.ipc.read_schema(pa.py_buffer(self._places.schema))
        self._fitting = Fitting(schema, wanted, f"Source '{self._places.source}' of job '{job}'")

    def _stage(self, iterator: Iterator[pa.RecordBatch], query: str) -> Staged:
        """In a task: bring its rows to the split of its partition."""
        task = TaskContext.get()
        assert task is not None
        first = next((batch for batch in iterator if batch.num_rows), None)
        if first is None:
            return Staged(query)
        split = task.partitionId() % len(self._places.splits)
        brought = self._bringing().bring(split, map(self._fitting.fit, chain((first,), iterator)))
        return Staged(query, brought.ref, brought.newest_ms, brought.oldest_ms, self._began_ms)

    def _bringing(self) -> Bringing:
        return Bringing(self._places, _keys_of(self._access), partial(_connect, self._access))

    def _release(self, messages: Sequence[Staged | None], batch: int) -> None:
        """At the commit: the rows of all winners go into the source."""
        if None in messages:  # what that task has staged would be lost without a word
            raise PushError("Spark commits rows of a task that does not tell where they are; run the query again.")
        staged = [message for message in messages if message is not None and message.ref is not None]
        if not staged:
            return
        reached = max((message.newest_ms for message in staged if message.newest_ms is not None), default=None)
        # Every split hears of the batch, also without rows: how far time is, and that it must not come again, cut otherwise.
        refs = [message.ref for message in staged if message.ref is not None]
        refs += self._tell_every_split(reached, self._arrival(staged))
        with contextlib.closing(_connect(self._access)) as client:
            is_replay = client.release(self._places.job, self._places.source, staged[0].query, batch, refs, _ROOM_WAIT_S)
        if is_replay:
            self._forget_all(refs)

    def _arrival(self, staged: Sequence[Staged]) -> Arrival:
        oldest = min((message.oldest_ms for message in staged if message.oldest_ms is not None), default=None)
        return Arrival(min(message.began_ms for message in staged), oldest, self._every_ms)

    def _tell_every_split(self, reached_ms: int | None, arrival: Arrival) -> list[AttemptRef]:
        bringing = self._bringing()
        return [bringing.bring(split, (), reached_ms, arrival).ref for split in range(len(self._places.splits))]

    def _forget(self, messages: Sequence[Staged | None]) -> None:
        """After a failure, best effort: free the disks of the workers now, not only when the attempts are old."""
        self._forget_all([message.ref for message in messages if message is not None and message.ref is not None])

    def _forget_all(self, refs: Sequence[AttemptRef]) -> None:
        for place in self._places.splits:
            attempts = [ref.attempt for ref in refs if ref.split == place.split]
            if not attempts:
                continue
            with contextlib.suppress(Exception), Pusher(self._places, place, _keys_of(self._access)) as pusher:
                pusher.forget(attempts)


class BatchWriter(_Writing, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a batch DataFrame, as one micro-batch of a query of its own; rows of the same option ``query`` come once."""

    def __init__(self, access: object, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(access, options, schema)
        self._query = options.get("query") or str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(iterator, self._query)

    def commit(self, messages: list[Staged | None]) -> None:
        self._release(messages, 0)

    def abort(self, messages: list[Staged | None]) -> None:
        self._forget(messages)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes a streaming DataFrame. Spark makes a new one for every micro-batch and for every commit."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        task = TaskContext.get()
        query = task.getLocalProperty(_QUERY_ID) if task is not None else None
        if query is None:
            raise PushError(f"Spark does not tell the id of its query ({_QUERY_ID}); use Spark 4.1 or newer.")
        return self._stage(iterator, query)

    def commit(self, messages: list[Staged | None], batchId: int) -> None:  # noqa: N803
        self._release(messages, batchId)

    def abort(self, messages: list[Staged | None], batchId: int) -> None:  # noqa: N803
        if not self._is_committing(messages, batchId):
            self._forget(messages)

    def _is_committing(self, messages: Sequence[Staged | None], batch: int) -> bool:
        """Whether a part of the micro-batch has been released, so that a replay needs the rest."""
        queries = [message.query for message in messages if message is not None]
        if not queries:
            return False
        try:
            with contextlib.closing(_connect(self._access)) as client:
                return client.is_committing(self._places.job, self._places.source, queries[0], batch)
        except Exception:  # nobody knows: what stays is dropped when it is old
            return True


def _connect(access: object) -> PushClient:
    if isinstance(access, PushAccess):
        return access.connect()
    if not isinstance(access, Access):
        raise PushError("This Spark session knows no service; tell it of one with dg.register(session).")
    from dirigo.runtime.client.client import Client  # not before it is needed: tasks only push

    return Client(access)


def _keys_of(access: Any) -> ClientKeys:
    keys: ClientKeys = access.keys
    return keys
