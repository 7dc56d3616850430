"""What the controller and the results log believe: nothing that they are told is used before it has been looked at here.

Clients check what they send as well, but whoever has keys may send anything. A request that is wrong is answered with one
sentence; a wrong report of a worker is refused and counted. Long texts of errors are no reason to refuse: they are cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.api.dataflow import check_name, checked_labels
from dirigo.kernel import job_of
from dirigo.runtime import control
from dirigo.runtime.client.shipment import SHIPMENT_BYTES_MOST
from dirigo.runtime.errors import ControlError
from dirigo.runtime.transport.keys import CLIENT, READER, WORKER, WRITER

WAIT_S_MOST: Final = 60.0  # a client that wants to wait longer asks again
WORKERS_MOST: Final = 1_000
ACTORS_MOST: Final = 1_000_000  # of a job
ATTEMPTS_MOST: Final = 100_000  # of a micro-batch
SCHEMA_BYTES_MOST: Final = 16 << 20
_NAME_LETTERS_MOST: Final = 300  # of anything that is looked up
_INTEGER_MOST: Final = 2**63 - 1
_PLACES_MOST: Final = 10_000  # that a job writes to
_PLACE_LETTERS_MOST: Final = 10_000
_KEY = re.compile(r"[!-~]{40}")  # a public key, as text
_REASONS_MOST: Final = 1_000
_ADDRESS_LETTERS_MOST: Final = 1_000
_ADDRESS = re.compile(r"[^/]+/[^/]+/[^/]+")  # of an actor

_LOOKING = (control.GetStatus, control.GetJob, control.GetLog, control.ReadLog, control.FindSnapshot)
_WRITING = (control.GetPlaces, control.ReleaseBatch, control.IsCommitting)
_ALLOWED: Final[dict[str, tuple[type, ...]]] = {READER: _LOOKING, WRITER: _WRITING, WORKER: ()}  # a client may do all
_DOING: Final[dict[type, str]] = {
    control.GetStatus: "look at the cluster",
    control.GetJob: "look at a job",
    control.GetLog: "read results",
    control.ReadLog: "read results",
    control.FindSnapshot: "read the state of a job",
    control.Submit: "submit a job",
    control.ClaimPlaces: "submit a job",
    control.CancelJob: "cancel a job",
    control.EndSources: "end the sources of a job",
    control.TakeSavepoint: "take a savepoint",
    control.FailJob: "fail a job",
    control.Resize: "change the number of workers",
    control.StopCluster: "stop the cluster",
    control.GetPlaces: "bring rows to a job",
    control.ReleaseBatch: "bring rows to a job",
    control.IsCommitting: "bring rows to a job",
}


# --- requests --------------------------------------------------------------------------------------------------------------


def check_role(role: str, request: control.Request | control.LogRequest) -> None:
    """Refuse what the keys of a role do not allow."""
    if role != CLIENT and not isinstance(request, _ALLOWED.get(role, ())):
        raise ControlError(f"a {role} may not {_DOING[type(request)]}; connect with the keys of a client.")


def check_request(request: control.Request | control.LogRequest) -> None:
    """Refuse a request that nobody could mean. Whether what it names is there is seen later."""
    match request:
        case control.Submit():
            _check_submission(request)
        case control.ClaimPlaces():
            _check_looked_up(request.claim, "a claim")
            _check_plain_name(request.job, "a job needs a name")
            _check_places(request.places)
        case control.GetJob() | control.FindSnapshot():
            _check_looked_up(request.job, "a job")
            _check_seconds(request.wait_s)
            if isinstance(request, control.FindSnapshot) and request.number is not None:
                _check_range(request.number, 1, _INTEGER_MOST, "the number of a snapshot")
        case control.Resize():
            if not 1 <= request.workers <= WORKERS_MOST:
                raise ControlError(f"a pool has 1 to {WORKERS_MOST} workers, not {request.workers}.")
        case control.ReleaseBatch():
            _check_looked_up(request.job, "a job")
            _check_looked_up(request.source, "a source")
            _check_looked_up(request.query, "a query")
            _check_range(request.batch, 0, _INTEGER_MOST, "the number of a micro-batch")
            _check_attempts(request.attempts)
        case control.IsCommitting():
            _check_looked_up(request.job, "a job")
            _check_looked_up(request.source, "a source")
            _check_looked_up(request.query, "a query")
        case control.CancelJob() | control.FailJob():
            _check_looked_up(request.job, "a job")
        case control.TakeSavepoint():
            _check_looked_up(request.job, "a job")
            _check_savepoint(request.place)
            _check_seconds(request.wait_s)
        case control.EndSources() | control.GetPlaces():
            _check_looked_up(request.job, "a job")
            if request.source is not None:
                _check_looked_up(request.source, "a source")
        case control.GetLog():
            _check_looked_up(request.job, "a job")
            if request.sink is not None:
                _check_looked_up(request.sink, "a sink")
        case control.ReadLog():
            _check_looked_up(request.job, "a job")
            _check_looked_up(request.sink, "a sink")
            _check_range(request.offset, 0, _INTEGER_MOST, "an offset")
            _check_range(request.bytes_max, 1, _INTEGER_MOST, "the bytes to read")
            _check_seconds(request.wait_s)
        case control.GetStatus() | control.StopCluster():
            pass


def _check_submission(request: control.Submit) -> None:
    manifest = request.manifest
    _check_plain_name(request.name, "a job needs a name")
    if not 1 <= len(request.shipment) <= SHIPMENT_BYTES_MOST:
        raise ControlError(
            f"a dataflow comes to 1 byte and at most {SHIPMENT_BYTES_MOST >> 20} MiB, not {len(request.shipment)} bytes; "
            "let its source read the rows from files instead."
        )
    if request.strategy is not None and not 1 <= len(request.strategy) <= SHIPMENT_BYTES_MOST:
        raise ControlError(f"a strategy comes to 1 byte and at most {SHIPMENT_BYTES_MOST >> 20} MiB.")
    _check_looked_up(request.strategy_name, "a strategy")
    _check_range(request.budget_bytes, 1, _INTEGER_MOST, "a budget in bytes")
    _check_range(manifest.partitions, 1, ACTORS_MOST, "the number of actors of a job")
    _check_range(manifest.leaves, 1, manifest.partitions, "the number of actors at the end of a job")
    for names, what, whose in (
        (manifest.sinks, "a sink needs a name", "partitions of sink"),
        (manifest.pushed, "a source needs a name", "splits of source"),
    ):
        _check_range(len(names), 0, manifest.partitions, "the number of sinks or sources of a job")
        for name, (count, schema) in names.items():
            _check_plain_name(name, what)
            if not name.strip("."):  # a folder has its name
                raise ControlError(f"{what} of more than dots, not '{name}'.")
            _check_range(count, 1, ACTORS_MOST, f"the number of {whose} '{name}'")
            _check_schema(schema, name)
    _check_looked_up(request.claim, "a claim")
    _check_places(manifest.places)
    _check_range(len(manifest.plan), 0, SCHEMA_BYTES_MOST, "the size of the description of a dataflow")
    if request.beginning is not None:
        _check_beginning(request.beginning)
    if manifest.latency_ms is not None:
        _check_range(manifest.latency_ms, 1, _INTEGER_MOST, "the objective of a job in ms")
    if manifest.target is not None and not 0 < manifest.target <= 1:
        raise ControlError(f"the target of a job is a share above 0 and at most 1, not {manifest.target}.")
    with _told_shortly():
        checked_labels(manifest.labels, "a job")


def _check_beginning(beginning: control.Beginning) -> None:
    _check_savepoint(beginning.place)
    _check_range(len(beginning.dropped), 0, ACTORS_MOST, "the number of operators that are dropped")
    _check_range(len(beginning.renamed), 0, ACTORS_MOST, "the number of operators that are renamed")
    for name in (*beginning.dropped, *beginning.renamed, *beginning.renamed.values()):
        _check_plain_name(name, "an operator needs a name")


def _check_savepoint(place: str) -> None:
    _check_range(len(place), 1, _PLACE_LETTERS_MOST, "the length of the place of a savepoint")


def _check_plain_name(name: str, what: str) -> None:
    """A name that becomes that of a folder."""
    with _told_shortly():
        check_name(name, what)


@contextmanager
def _told_shortly() -> Iterator[None]:
    """Refuse what a flow would be refused for; a stranger's text may be of any length."""
    try:
        yield
    except DirigoError as error:
        raise ControlError(_short(str(error))) from None


def _check_places(places: dict[str, str]) -> None:
    _check_range(len(places), 0, _PLACES_MOST, "the number of places that a job writes to")
    for sink, place in places.items():
        _check_plain_name(sink, "a sink needs a name")
        _check_range(len(place), 1, _PLACE_LETTERS_MOST, f"the length of the place of sink '{sink}'")


def _check_schema(schema: bytes, name: str) -> None:
    _check_range(len(schema), 1, SCHEMA_BYTES_MOST, f"the size of the schema of '{name}'")
    try:
        pa.ipc.read_schema(pa.py_buffer(schema))
    except Exception:  # bytes may be wrong in more ways than can be listed
        raise ControlError(f"the schema of '{name}' cannot be read; submit the job with the cluster's version.") from None


def _check_attempts(attempts: tuple[control.AttemptRef, ...]) -> None:
    _check_range(len(attempts), 0, ATTEMPTS_MOST, "the number of attempts of a micro-batch")
    for attempt in attempts:
        _check_looked_up(attempt.attempt, "an attempt")
        for number, what in ((attempt.worker, "a worker"), (attempt.split, "a split"), (attempt.rows, "a count of rows")):
            _check_range(number, 0, _INTEGER_MOST, f"the number of {what}")


# --- reports of workers ----------------------------------------------------------------------------------------------------


def check_hello(hello: control.Hello) -> None:
    """Refuse a worker to which nobody could connect."""
    _check_looked_up(hello.host, "a host")
    _check_range(hello.pid, 0, _INTEGER_MOST, "the number of a process")
    for endpoint in (hello.control, hello.data, hello.ingest):
        _check_endpoint(endpoint)
    if not _KEY.fullmatch(hello.key):
        raise ControlError("a worker tells no public key.")


def check_report(report: control.FromWorker) -> None:
    """Refuse a report that no worker could mean."""
    match report:
        case control.Beat():
            _check_worker_figures(report.figures)
            for figures in report.jobs.values():
                _check_job_figures(figures)
        case control.Installed():
            _check_range(len(report.pushed), 0, ACTORS_MOST, "the number of sources")
        case control.ActorEnded():
            if actor_of(report.address) is None or job_of(report.address) != report.job:
                raise ControlError(f"{_shown(report.address)} is no actor of job {_shown(report.job)}.")
        case control.Removed():
            _check_job_figures(report.figures)
        case control.Stuck():
            if actor_of(report.leftover) is None and (
                "/" in report.leftover or len(report.leftover) > _ADDRESS_LETTERS_MOST
            ):
                raise ControlError(f"{_shown(report.leftover)} is no actor, and no job.")


def actor_of(address: str | None) -> str | None:
    """The address if it is one; a process that died may have left half of it."""
    is_one = address is not None and len(address) <= _ADDRESS_LETTERS_MOST and _ADDRESS.fullmatch(address) is not None
    return address if is_one else None


def _check_endpoint(endpoint: str) -> None:
    try:
        where = urlsplit(endpoint)
        is_one = where.scheme == "tcp" and bool(where.hostname) and bool(where.port) and not where.path
    except ValueError:
        is_one = False
    if not is_one or len(endpoint) > _NAME_LETTERS_MOST:
        raise ControlError(f"{_shown(endpoint)} is no endpoint.")


def _check_worker_figures(figures: control.WorkerFigures) -> None:
    if not (isfinite(figures.busy_s) and isfinite(figures.running_s)):
        raise ControlError("a time is no number.")
    if figures.messages < 0 or figures.rss_bytes < 0:
        raise ControlError("a count is negative.")
    if (
        len(figures.refused) > _REASONS_MOST
        or max(len(figures.running or ""), len(figures.leftover or "")) > _ADDRESS_LETTERS_MOST
    ):
        raise ControlError("the figures of a worker are too large.")


def _check_job_figures(figures: control.JobFigures) -> None:
    if not isfinite(figures.busy_s):
        raise ControlError("a time is no number.")
    growing = (figures.rows_in, figures.rows_out, figures.messages, figures.late_rows, figures.forwarded, figures.rounds)
    if min(growing) < 0:
        raise ControlError("a count is negative.")
    if len(figures.waiting) > _REASONS_MOST or any(len(told) > 10 * _ADDRESS_LETTERS_MOST for told in figures.waiting):
        raise ControlError("the figures of a job are too large.")


# --- single values ---------------------------------------------------------------------------------------------------------


def _check_looked_up(name: str, what: str) -> None:
    """A name of something that may be there or not."""
    if len(name) > _NAME_LETTERS_MOST:
        raise ControlError(f"{what} has a name of at most {_NAME_LETTERS_MOST} letters, not {len(name)}.")


def _check_range(number: int, least: int, most: int, what: str) -> None:
    if not least <= number <= most:
        raise ControlError(f"{what} is {least} to {most}, not {number}.")


def _check_seconds(seconds: float) -> None:
    if not seconds >= 0:  # nor is it no number at all
        raise ControlError(f"nobody can wait for {seconds} s.")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]} ...")


def _short(sentence: str) -> str:
    return sentence if len(sentence) <= 500 else f"{sentence[:500]} ..."
