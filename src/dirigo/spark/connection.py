"""A running service from Python: what ``dg.connect`` gives back, and what ``dg.Cluster`` is besides.

What needs Spark is imported when it is used: most jobs have no DataFrames, and it takes longer than all the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dirigo.errors import DirigoError
from dirigo.flow.api.dataflow import Dataflow, SourceNode
from dirigo.flow.api.duration import Duration
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime.client.client import BUDGET_BYTES, Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.client.notebook import service_html, unknown_html
from dirigo.runtime.control import Access, ClusterStatus, JobStatus
from dirigo.runtime.errors import ControlError
from dirigo.scheduling import StrategyLike
from dirigo.spark.service import file as service_file
from dirigo.spark.sessions import forget, register_with

if TYPE_CHECKING:
    from dirigo.spark.input.queries import Feeding

READY_S = 90.0
_LOOK_S = 0.02


class Service:
    """Workers that are ready for jobs, wherever they run: jobs are submitted here, looked at, and ended.

    Use it in a `with` statement, or call `close()`. Jobs go on when a connection is closed, but for what this process
    gives them: see `close`.
    """

    def __init__(self, access: Access, name: str, *, why_silent: Callable[[], str | None] = lambda: None) -> None:
        """Made by ``dg.connect``. `why_silent` tells why no answers will come; None as long as some may."""
        self.name = name
        self.access = access
        self.client = Client(access, why_silent=why_silent)
        self._feeding: Feeding | None = None

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def submit(
        self,
        flow: Dataflow,
        *,
        name: str | None = None,
        strategy: StrategyLike | None = None,
        budget_bytes: int = BUDGET_BYTES,
        snapshots_every: Duration | None = None,
        savepoint: str | Path | None = None,
        dropped: Sequence[str] = (),
        renamed: Mapping[str, str] | None = None,
    ) -> Job:
        """Run a flow as a job beside the others. When more than `budget_bytes` of it wait, its sources stop for a while.

        `strategy`: what schedules it, if not the cluster's. Jobs with the same strategy are scheduled together; between
        different ones each worker's time is shared by the weights of their jobs.

        `snapshots_every`: how often a snapshot of the job is taken, if not as often as the service says. It needs a service
        with a folder for snapshots.

        `savepoint`: the folder of a savepoint, a URI or a path. The job goes on from there, as a new one: sources where they
        were, operators with what they kept. They are matched by their names. `dropped` names operators of the savepoint
        whose states are given up, and `renamed` those that have another name now: `{"old": "new"}`.

        The queries of DataFrames in it run in their own Spark sessions, and rows for sinks such as to_memory() come to this
        process, both until the job is over or the connection is closed.
        """
        sessions = dataframes_of(flow)
        if sessions:
            self._prepare_feeding(list(sessions.values()))
        job = self.client.submit(
            flow,
            name=name,
            strategy=strategy,
            budget_bytes=budget_bytes,
            snapshots_every=snapshots_every,
            savepoint=savepoint,
            dropped=dropped,
            renamed=renamed,
        )
        if sessions and self._feeding is not None:
            self._feeding.start(flow, job)
            job.before_end = self._feeding.stop_queries
        return job

    def run(
        self,
        flow: Dataflow,
        *,
        name: str | None = None,
        strategy: StrategyLike | None = None,
        timeout_s: float | None = None,
    ) -> JobStatus:
        """Submit a flow and wait for its end."""
        return self.submit(flow, name=name, strategy=strategy).wait(timeout_s)

    def job(self, name: str) -> Job:
        """The newest job of this name, or the one with this id, whoever has submitted it."""
        job = self.client.job(name)
        if self._feeding is not None:
            job.before_end = self._feeding.stop_queries
        return job

    def jobs(self) -> list[JobStatus]:
        """All jobs that run, and the last ones that are over."""
        return self.client.jobs()

    # --- the pool ------------------------------------------------------------------------------------------------------

    def status(self) -> ClusterStatus:
        return self.client.status()

    def resize(self, workers: int) -> None:
        """Have this many workers. More come as soon as Spark has slots; of fewer, those leave that no running job needs."""
        self.client.resize(workers)

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Until all workers have joined; an error that says why not."""
        until = time.monotonic() + timeout_s
        while True:
            if self.failure is not None:
                raise ControlError(self.failure)
            workers = self.status().workers
            missing = [worker for worker in workers if worker.state not in ("ready", "leaving")]
            if not missing:
                return
            problems = [worker.problem for worker in missing if worker.problem]
            if time.monotonic() >= until:
                why = problems[0] if problems else "Spark has no free slot for them: stop other queries, or ask for fewer."
                raise ControlError(f"{len(missing)} of {len(workers)} workers did not start in {timeout_s:.0f} s: {why}")
            time.sleep(_LOOK_S)

    @property
    def failure(self) -> str | None:
        """Why the service cannot go on, in one sentence, should that be so and be known here."""
        return None

    # --- Spark ---------------------------------------------------------------------------------------------------------

    def register(self, spark: Any) -> None:
        """Make the format "dirigo" known to a session, so that it reads from this service's jobs and writes to them."""
        register_with(spark, self.access, is_default=True)

    def _prepare_feeding(self, sessions: list[Any]) -> None:
        from dirigo.spark.input.queries import Feeding

        for session in sessions:
            register_with(session, self.access, is_default=False)
        if self._feeding is None:
            self._feeding = Feeding(self.client)

    # --- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connection; jobs go on.

        What this process does for them ends. Sources fed by a streaming DataFrame have then had all their rows; a job whose
        batch DataFrame has not been written to its end fails. No more rows come to sinks such as to_memory(), or into
        `job.results()`.
        """
        if self._feeding is not None:
            self._feeding.leave()
        self.client.close()
        forget(self.access)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _repr_html_(self) -> str:
        """In a notebook: workers and jobs at this moment."""
        what = type(self).__name__.lower()
        try:
            return service_html(self.name, what, self.status())
        except DirigoError as error:
            return unknown_html(self.name, what, error)


def connect(name: str = service_file.DEFAULT_NAME) -> Service:
    """Connect to a service that was started with ``dirigo cluster start``, by its name.

    It is found by its file under ``~/.dirigo`` (``DIRIGO_HOME``), as the ``dirigo`` commands find it.
    """
    if not isinstance(name, str):
        raise ControlError(f"connect takes the name of a service, such as connect('dirigo'), not {name!r}.")
    found = service_file.find(name, others="or connect to one that runs")
    service = Service(service_file.access_to(found), found.name)
    try:
        service.status()  # so that what does not answer is told here
    except BaseException:
        service.close()
        raise
    return service


def dataframes_of(flow: Dataflow) -> dict[str, Any]:
    """The Spark sessions of the sources whose queries run in the process that submits the flow, by source."""
    nodes = [node for node in flow.nodes if isinstance(node, SourceNode) and isinstance(node.source, PushedSource)]
    sessions = {node.name: getattr(node.source, "session", None) for node in nodes}
    return {name: session for name, session in sessions.items() if session is not None}
