"""A DataFrame as a source of a job: what of it travels to the workers, and the query that writes its rows into the job."""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import StructType

from dirigo.flow.api.duration import Duration, positive_milliseconds
from dirigo.flow.errors import FlowError
from dirigo.flow.rows.schema import SchemaLike
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime.folders import OwnFolder
from dirigo.runtime.threads import ServiceThread
from dirigo.spark.failures import is_spark_gone
from dirigo.spark.hosting import TaggedJobs
from dirigo.spark.input.columns import source_schema
from dirigo.spark.sessions import SERVICE

_log = logging.getLogger(__name__)

FORMAT: Final = "dirigo"
_INTERRUPTIONS: Final = 25
_INTERRUPTION_S: Final = 0.2
_LATE_INTERRUPTIONS: Final = 600  # of a query that Spark has not begun with when it is stopped
_LATE_INTERRUPTION_S: Final = 0.5
_CALL_FAILED: Final = "An error occurred while calling"  # a first line that tells nothing
WHOLE: Final = "from_spark"  # what a job calls the rows of a batch DataFrame: they come once, whoever brings them
_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"


def from_spark(
    df: Any = None,
    *,
    schema: SchemaLike | StructType | None = None,
    time: str | None = None,
    out_of_orderness: Duration = "0ms",
    idle_after: Duration | None = None,
    trigger: Duration | None = None,
    checkpoint: str | Path | None = None,
    name: str = "spark",
) -> SparkSource:
    """The rows of a DataFrame, batch or streaming, of classic Spark or Spark Connect; the cluster runs its query.

    Event time advances with each micro-batch, when all of its rows are there. `trigger` says how often there is one: a
    duration, or "availableNow" for what there is now and then the end. Give `checkpoint`, a folder that Spark can write
    to, and a query that is started again goes on where it was. Without a DataFrame, `schema` describes rows that a query
    of your own writes into the job: `df.writeStream.format("dirigo").option("job", NAME)`.
    """
    return SparkSource(
        df,
        schema=schema,
        time=time,
        out_of_orderness=out_of_orderness,
        idle_after=idle_after,
        trigger=trigger,
        checkpoint=checkpoint,
        name=name,
    )


class SparkSource(PushedSource):
    """Rows that a Spark query pushes. Where it is unpickled, only the description of the rows is left: no DataFrame."""

    default_name = "spark"

    def __init__(
        self,
        df: Any,
        *,
        schema: SchemaLike | StructType | None,
        time: str | None,
        out_of_orderness: Duration,
        idle_after: Duration | None,
        trigger: Duration | None,
        checkpoint: str | Path | None,
        name: str,
    ) -> None:
        if df is None and schema is None:
            raise FlowError(f"{name}: there is neither a DataFrame nor a schema; give one of them.")
        if df is not None and schema is not None:
            raise FlowError(f"{name}: the DataFrame says what its columns are; leave out schema=, or cast its columns.")
        if df is not None and not (hasattr(df, "isStreaming") and hasattr(df, "writeTo")):
            raise FlowError(f"{name}: {type(df).__name__} is no DataFrame of Spark; give one, or use from_iterable().")
        is_streaming = df is not None and bool(df.isStreaming)
        if not is_streaming and (trigger is not None or checkpoint is not None):
            raise FlowError(f"{name}: trigger= and checkpoint= are for a streaming DataFrame; leave them out.")
        self._trigger = _trigger_of(trigger, name)
        self._every_ms = positive_milliseconds(trigger, name) if trigger and "processingTime" in self._trigger else None
        columns = schema if df is None else df.schema
        super().__init__(
            source_schema(columns, name) if isinstance(columns, StructType) else columns,
            name=name,
            is_bounded=df is not None and (not is_streaming or "availableNow" in self._trigger),
            time=time,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
        )
        self._df = df
        self.is_streaming = is_streaming
        self._checkpoint = None if checkpoint is None else str(checkpoint)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_df": None}

    @property
    def session(self) -> Any:
        """The session of the DataFrame, where the format "dirigo" must be registered before the start; None without one."""
        return None if self._df is None else self._df.sparkSession

    def start(self, job: str, source: str | None = None, service: str | None = None) -> SparkQuery | None:
        """Begin to write the rows into a job, to the source of that name; None if a query of the user does.

        ``service``: whose job it is, if the session knows several.
        """
        if self._df is None:
            return None
        options = {"job": job, "source": source or self.name}
        if service is not None:
            options[SERVICE] = service
        if not self.is_streaming:
            return BatchQuery(self._df, options | {"query": WHOLE})
        if self._every_ms is not None:
            options["trigger"] = f"{self._every_ms}ms"  # latencies have the wait for the micro-batch in them
        checkpoint = self._checkpoint
        if checkpoint is None and self.session.conf.get(_CHECKPOINTS, None) is None:
            # Spark makes the folder, perhaps elsewhere. It is not kept: whoever wants to go on later says where.
            folder = OwnFolder("checkpoint")
            return StreamingQuery(self._df, options, self._trigger, str(folder.path), folder.remove)
        return StreamingQuery(self._df, options, self._trigger, checkpoint)


class SparkQuery(ABC):
    """A query that feeds a source."""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """Whether it will bring no more rows, for whatever reason."""

    @property
    @abstractmethod
    def error(self) -> str | None:
        """Why it failed, in one sentence; None if it did not. Raises what Spark's connection raises if Spark is gone."""

    @abstractmethod
    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; returns whether it has ended."""

    @abstractmethod
    def stop(self) -> None:
        """End it, also twice. What it has committed stays."""


class BatchQuery(SparkQuery):
    """Writes a batch DataFrame in a thread of its own."""

    def __init__(self, df: Any, options: dict[str, str]) -> None:
        self._df = df
        self._options = options
        self._jobs = TaggedJobs(df.sparkSession)
        self._tag = f"dirigo-{uuid.uuid4()}"
        self._error: str | None = None
        self._lost: BaseException | None = None  # how it was heard that Spark is gone
        self._is_stopped = False
        self._ends: ServiceThread | None = None
        self._thread = ServiceThread(self._write, name=f"dirigo-write-{options['job']}", on_escape=self._note)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    @property
    def error(self) -> str | None:
        if self._lost is not None:
            raise self._lost
        return self._error

    def wait(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return self.has_ended

    def stop(self) -> None:
        """End it. If Spark has not begun with it yet, there is nothing to cancel: then it is ended as soon as there is."""
        self._is_stopped = True
        if not self._cancel(_INTERRUPTIONS, _INTERRUPTION_S) and self._ends is None:
            self._ends = ServiceThread(self._end_late, name=f"{self._thread.name}-end", on_escape=self._note)
            self._ends.start()

    def _cancel(self, times: int, pause_s: float) -> bool:
        """Cancel it until it has ended: between two steps of a query there is nothing to cancel."""
        for _ in range(times):
            if self.has_ended:
                return True
            self._jobs.cancel(self._tag)
            self._thread.join(pause_s)
        return self.has_ended

    def _end_late(self) -> None:
        if not self._cancel(_LATE_INTERRUPTIONS, _LATE_INTERRUPTION_S):
            _log.warning("the query that writes into job %s was stopped, but Spark does not end it", self._options["job"])

    def _note(self, sentence: str) -> None:
        self._error = self._error or sentence

    def _write(self) -> None:
        try:
            _activate(self._df.sparkSession)
            self._jobs.add_tag(self._tag)
            if not self._is_stopped:
                self._df.write.format(FORMAT).options(**self._options).mode("append").save()
        except BaseException as error:
            if not self._is_stopped:
                self._error = reason_of(str(error)) or type(error).__name__
                self._lost = error if is_spark_gone(error) else None


class StreamingQuery(SparkQuery):
    """Writes a streaming DataFrame, as a query of Structured Streaming."""

    def __init__(
        self,
        df: Any,
        options: dict[str, str],
        trigger: dict[str, Any],
        checkpoint: str | None,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        """`forget` is called at the end."""
        self._forget = forget
        _activate(df.sparkSession)
        writer = df.writeStream.format(FORMAT).options(**options).outputMode("append")
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        if trigger:
            writer = writer.trigger(**trigger)
        try:
            self.query = writer.start()
        except BaseException:
            forget()
            raise

    @property
    def has_ended(self) -> bool:
        return not self.query.isActive

    @property
    def error(self) -> str | None:
        error = self.query.exception()
        return None if error is None else reason_of(str(error))

    def wait(self, timeout_s: float) -> bool:
        try:
            return bool(self.query.awaitTermination(max(1, int(timeout_s))))
        except Exception:  # of the query, which `error` tells
            return True

    def stop(self) -> None:
        if self.query.isActive:
            self.query.stop()
        self._forget()


def _activate(session: Any) -> None:
    """Classic Spark looks a format up in the session that is active in the thread: in a new thread there is none."""
    if hasattr(session, "_jsparkSession"):
        session._jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)


def reason_of(text: str) -> str:
    """The sentence of ours inside the text of a Spark exception, with its traces of two languages; else the first line."""
    told = [line for line in map(str.strip, text.splitlines()) if _is_ours(line)]
    if told:
        return told[-1].split(": ", 1)[1]
    lines = [line.strip(": ") for line in text.strip().split("\n") if not line.startswith(_CALL_FAILED)]
    return lines[0] if lines else ""


def _is_ours(line: str) -> bool:
    kind, colon, _ = line.partition(": ")
    is_name = kind.startswith("dirigo.") and " " not in kind
    return bool(colon) and is_name and kind.endswith(("Error", "Failed", "Failure"))


def _trigger_of(trigger: Duration | None, name: str) -> dict[str, Any]:
    """How Spark's `trigger()` is called; not at all for the default, which is as soon as the last micro-batch is done."""
    if trigger is None:
        return {}
    if isinstance(trigger, str) and trigger.lower() == "availablenow":
        return {"availableNow": True}
    return {"processingTime": f"{positive_milliseconds(trigger, f'{name}: trigger')} milliseconds"}
