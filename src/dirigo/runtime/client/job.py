"""A job that was submitted: how it is, how it ends, and what it has come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.sinks.sink import Sink
from dirigo.runtime import control
from dirigo.runtime.client.notebook import job_html, unknown_html
from dirigo.runtime.client.results import JobResults
from dirigo.runtime.client.savepoints import SAVEPOINT_S, place_of, seconds_of
from dirigo.runtime.errors import JobFailed, StillRunning
from dirigo.runtime.results.reader import ResultsReader

if TYPE_CHECKING:
    from dirigo.runtime.client.client import Client

FRESH_S = 60.0  # for a snapshot that is taken to be read
_WAIT_S = 30.0  # for the end of a job, before asking again
_OVER = ("finished", "cancelled", "failed")


class Job:
    """A job of a cluster: what ``submit`` gives back, and ``job`` for one that somebody else has submitted."""

    def __init__(self, client: Client, status: control.JobStatus, outside: Iterable[tuple[str, Sink, Any]]) -> None:
        self._client = client
        self.id = status.id
        self.name = status.name
        self.before_end: Callable[[str], None] | None = None  # stops what feeds the job from this process
        self._readers = [
            ResultsReader(client, status.id, status.name, name, sink, schema)
            for name, sink, schema in outside
            if sink.is_taken_by_client
        ]

    def status(self) -> control.JobStatus:
        return self._client.job_status(self.id)

    def metrics(self) -> control.JobMetrics:
        return self.status().metrics

    def wait(self, timeout_s: float | None = None) -> control.JobStatus:
        """Until the job is over and its rows are here.

        Raises ``JobFailed`` if it failed, or if a sink of this process did, and ``StillRunning`` if it goes on.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _WAIT_S if until is None else min(_WAIT_S, until - time.monotonic())
            status = self._client.job_status(self.id, max(0.0, left))
            if status.state in _OVER:
                break
            if until is not None and time.monotonic() >= until:
                raise StillRunning(f"job '{self.name}' is {status.state} after {timeout_s:g} s; it goes on.")
        for reader in self._readers:
            reader.wait()
        if status.state == "failed":
            raise JobFailed(f"job '{self.name}' failed: {status.error}", status.traceback)
        return status

    def results(self, sink: str | None = None, *, follow: bool = False) -> JobResults:
        """What a sink whose rows leave the job has had so far, kept by the cluster: see ``JobResults``.

        `sink`: its name, if the job has several. `follow`: go on until the job has ended, and raise ``JobFailed`` if it
        fails or is cancelled. Other sinks, such as to_parquet(), write their rows themselves.
        """
        return JobResults(self._client, self.id, self.name, sink, follow=follow)

    def state(self, operator: str, *, fresh: bool = False, timeout_s: float = FRESH_S) -> pa.Table:
        """What an operator keeps, as of the job's last snapshot: a row per key, with the columns of the key and the states.

        `fresh`: as of a snapshot that is taken now; for `timeout_s` it is waited for. The metadata of the table's schema
        say which snapshot it is. The folder of snapshots must be reachable from here.
        """
        return self.states(operator, fresh=fresh, timeout_s=timeout_s)[operator]

    def states(self, *operators: str, fresh: bool = False, timeout_s: float = FRESH_S) -> dict[str, pa.Table]:
        """The same of several operators, or of all that keep something, as of the same snapshot."""
        from dirigo.runtime.stored_states import StoredStates, read_while_it_lasts, tables_of  # for most jobs not needed

        def find() -> StoredStates:
            place = self._client.find_snapshot(self.id, fresh=fresh, wait_s=timeout_s if fresh else 0.0)
            return StoredStates.in_snapshots(place.root, place.job, place.number)

        return read_while_it_lasts(find, lambda states: tables_of(states, operators))

    def cancel(self) -> None:
        """Stop the job at once; what it had not finished is lost."""
        self._prepare_end()
        self._client.cancel(self.id)

    def drain(self) -> None:
        """Stop reading the sources; what has been read is worked to its end, and open windows are closed."""
        self._prepare_end()
        self._client.end_sources(self.id)

    # --- savepoints ----------------------------------------------------------------------------------------------------

    def savepoint(self, path: str | Path, *, timeout_s: float = SAVEPOINT_S) -> None:
        """Take a snapshot now, and copy it into a folder of its own, which has to be empty; the job goes on.

        `path`: a URI or a path that the service sees. It returns when the savepoint is complete; an error says why there is
        none, or none within `timeout_s`.
        """
        self._client.savepoint(self.id, place_of(path), seconds_of(timeout_s))

    def stop(self, *, savepoint: str | Path, timeout_s: float = SAVEPOINT_S) -> control.JobStatus:
        """Take a savepoint, and end the job with it: it has come to exactly what the savepoint holds, and no more.

        Its state is "finished" then, and `stopped_into` in its status names the savepoint. If that cannot be taken, the job
        goes on, and an error says why.
        """
        self._client.savepoint(self.id, place_of(savepoint), seconds_of(timeout_s), stops=True)
        return self._client.job_status(self.id, _WAIT_S)  # its last figures are about to come

    def _prepare_end(self) -> None:
        if self.before_end is not None:
            self.before_end(self.id)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def _repr_html_(self) -> str:
        """In a notebook: how it is at this moment."""
        try:
            return job_html(self.status())
        except DirigoError as error:
            return unknown_html(self.id, "job", error)
