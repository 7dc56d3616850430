"""The Spark queries that feed jobs: each ends its source when it ends, fails its job when it fails, and goes with it."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from functools import partial

from dirigo.flow.api.dataflow import Dataflow, SourceNode
from dirigo.runtime.client.client import Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.errors import ControlError
from dirigo.runtime.threads import ServiceThread
from dirigo.spark.failures import is_spark_gone
from dirigo.spark.input.source import SparkQuery, SparkSource, reason_of

_log = logging.getLogger(__name__)
_TRIES = 3
_LOOK_S = 0.02
_POLL_S = 0.5
_LIVE = ("starting", "running", "recovering", "draining")


class Feeding:
    """All queries that this process runs for the jobs of one cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._threads: list[ServiceThread] = []
        self._lock = threading.Lock()
        self._queries: dict[str, list[SparkQuery]] = {}  # by job
        self._stopped: set[str] = set()  # jobs that are to get no more rows: also from a query that starts after that
        self._is_stopping = threading.Event()
        self._is_leaving = False  # stopping, while the jobs go on

    def start(self, flow: Dataflow, job: Job) -> None:
        """Run the queries of a job that was just submitted; each is looked after by a thread of its own."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for name, source in _spark_sources(flow):
            if source.session is not None:
                failing = partial(self._tell_failure, job)
                thread = ServiceThread(self._feed, name=f"feeds {job.id}", on_escape=failing, args=(job, name, source))
                thread.start()
                self._threads.append(thread)

    def stop_queries(self, job: str) -> None:
        """Before a job's sources are ended: what would still write to them, now or as soon as it has started."""
        with self._lock:
            self._stopped.add(job)
            queries = self._queries.pop(job, [])
        for query in queries:
            query.stop()

    def stop(self) -> None:
        self._is_stopping.set()
        for thread in self._threads:
            thread.join()

    def leave(self) -> None:
        """The same, while the jobs go on: each is told what has become of its sources."""
        self._is_leaving = True
        self.stop()

    def _feed(self, job: Job, name: str, source: SparkSource) -> None:
        query: SparkQuery | None = None
        try:
            if self._wait_for_start(job):
                query = source.start(job.id, name, self._client.access.run)
                if query is not None and self._keep(job.id, query):
                    self._look_after(job, name, query)
            if self._is_leaving and self._is_stopping.is_set():
                self._take_leave(job, name, source, query)
        except ControlError as error:
            if not self._is_stopping.is_set():  # or the cluster goes, and the job with it
                self._tell_failure(job, f"the query of source '{name}' was given up: {error}")
        except Exception as error:  # whatever Spark raises at the start of a query
            if not (is_spark_gone(error) and self._is_kept(job, name)):
                self._tell_failure(job, f"the query of source '{name}' cannot start: {reason_of(str(error))}")
        finally:
            if query is not None:
                with suppress(Exception):  # if Spark is gone, so is the query
                    query.stop()
                with self._lock, suppress(KeyError, ValueError):
                    self._queries[job.id].remove(query)
            self._client.close_thread()

    def _keep(self, job: str, query: SparkQuery) -> bool:
        """Remember a query that has been started; False if it was stopped before."""
        with self._lock:
            if job in self._stopped:
                return False
            self._queries.setdefault(job, []).append(query)
            return True

    def _wait_for_start(self, job: Job) -> bool:
        while not self._is_stopping.is_set() and job.id not in self._stopped:
            state = job.status().state
            if state not in ("starting", "recovering"):
                return state in _LIVE
            time.sleep(_LOOK_S)
        return False

    def _look_after(self, job: Job, name: str, query: SparkQuery) -> None:
        while not self._is_stopping.is_set():
            if query.wait(_POLL_S):
                self._tell_end(job, name, query)
                return
            if job.status().state not in _LIVE:
                return

    def _tell_end(self, job: Job, name: str, query: SparkQuery) -> None:
        error = query.error
        if job.status().state not in ("running", "recovering"):
            return
        if error is not None:
            self._tell_failure(job, f"the query of source '{name}' failed: {error}")
        else:
            self._client.end_sources(job.id, name)

    def _is_kept(self, job: Job, name: str) -> bool:
        """Whether a job goes on without the Spark of its query: what it had taken in is kept, and another one may go on."""
        try:
            is_kept = self._client.source_places(job.id, name).is_kept
        except ControlError:  # it is over
            return False
        if is_kept:
            _log.warning(
                "Spark is gone, and with it the query of source '%s' of job %s; the job waits for another query, with the "
                "same checkpoint, or for its end by drain().",
                name,
                job.id,
            )
        return is_kept

    def _take_leave(self, job: Job, name: str, source: SparkSource, query: SparkQuery | None) -> None:
        """A stream may end anywhere. Of other rows the job has all or fails: a part of them is no result."""
        if job.id in self._stopped or job.status().state not in _LIVE:
            return
        if query is not None and query.wait(0.0):
            self._tell_end(job, name, query)
        elif source.is_streaming:
            if query is not None:
                query.stop()
            self._client.end_sources(job.id, name)
        else:
            why = "the process that reads it has closed its connection; wait for the job before that"
            self._tell_failure(job, f"the DataFrame of source '{name}' was not read to its end: {why}.")

    def _tell_failure(self, job: Job, error: str) -> None:
        for _ in range(_TRIES):
            with suppress(ControlError):
                self._client.fail(job.id, error)
                return


def _spark_sources(flow: Dataflow) -> list[tuple[str, SparkSource]]:
    return [
        (node.name, node.source)
        for node in flow.nodes
        if isinstance(node, SourceNode) and isinstance(node.source, SparkSource)
    ]
