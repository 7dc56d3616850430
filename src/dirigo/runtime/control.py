"""Everything that is said between the controller, its workers and its clients: one small record per sentence.

Workers and clients talk to the controller over one socket; each side decodes what it may be told and refuses the rest.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dirigo.runtime.errors import ControlError
from dirigo.runtime.snapshots.manifest import ActorEntry
from dirigo.runtime.status import ClusterStatus as ClusterStatus
from dirigo.runtime.status import JobMetrics as JobMetrics
from dirigo.runtime.status import JobStatus as JobStatus
from dirigo.runtime.status import SnapshotFigures as SnapshotFigures
from dirigo.runtime.status import WorkerStatus as WorkerStatus
from dirigo.runtime.transport.keys import Keys
from dirigo.scheduling.accounting import Account

STOP_AFTER_S = 5.0  # code of a removed job that does not stop within this time ends its worker


class _Record(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Immutable, and tagged with its kind on the wire."""


_encoder = msgspec.msgpack.Encoder()


def encode(record: msgspec.Struct) -> bytes:
    """A record as bytes. A text that is no Unicode (half of a surrogate pair, as in the names of some files) is escaped."""
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError:
        return _encoder.encode(_escaped(msgspec.to_builtins(record, builtin_types=(bytes, memoryview))))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [_escaped(each) for each in value]
    if isinstance(value, dict):
        return {_escaped(key): _escaped(each) for key, each in value.items()}
    return value


# --- how to find a cluster -------------------------------------------------------------------------------------------------


class Bootstrap(msgspec.Struct, frozen=True):
    """What a worker needs to find its cluster; it travels only inside a pickled task."""

    run: str
    worker: int
    controller: str
    keys: Keys
    inbound: dict[str, str]  # who may send it messages: roles by public key
    ingest: dict[str, str]  # who may bring it rows from outside


class Access(msgspec.Struct, frozen=True):
    """What somebody of one role needs to find a cluster."""

    run: str
    controller: str
    log: str
    keys: Keys
    lesser: tuple[Keys, ...] = ()  # of roles that may do less, to hand on

    def lowered(self, role: str) -> Access:
        """The access of another role, which may do less; of the same role, without what could be handed on."""
        for keys in (self.keys, *self.lesser):
            if keys.role == role:
                return Access(self.run, self.controller, self.log, keys)
        raise ControlError(f"the keys of a {self.keys.role} are none of a {role}; take the access of a client.")


# --- workers and the controller --------------------------------------------------------------------------------------------


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A worker that others may send to."""

    worker: int
    incarnation: int
    control: str
    data: str
    key: str = ""  # the public key of its sockets


class JobFigures(msgspec.Struct, array_like=True):
    """What one worker counts for one job. All but the sizes and the watermark only grow."""

    rows_in: int = 0
    rows_out: int = 0
    messages: int = 0
    queued_bytes: int = 0
    state_bytes: int = 0
    busy_s: float = 0.0
    late_rows: int = 0
    watermark_ms: int | None = None  # the furthest behind of its sources
    paused: bool = False
    forwarded: int = 0  # messages that lessors here had run elsewhere
    rounds: int = 0  # of lessors here, one or more barriers each
    gathered: int = 0  # those that put partial states together
    account: Account = msgspec.field(default_factory=Account)
    helpers_version: int = 0  # which order about its helpers is obeyed here
    lent_to: tuple[int, ...] = ()  # workers that are none of them any more, and still have something of it
    waiting: tuple[str, ...] = ()  # barriers here that take long, each with whom it waits for


class WorkerFigures(msgspec.Struct, array_like=True):
    """How one worker is."""

    busy_s: float = 0.0
    messages: int = 0
    queued_bytes: int = 0
    rss_bytes: int = 0
    running: str | None = None  # the actor whose message is being executed
    running_s: float = 0.0
    refused: dict[str, int] = {}
    leftover: str | None = None  # what runs although its job is over: the actor, or the job


class Hello(_Record, frozen=True):
    """A worker process has started and asks to join."""

    run: str
    worker: int
    host: str
    pid: int
    control: str
    data: str
    ingest: str
    key: str  # the public key of these three; only this process has the secret one
    was_doing: str | None = None  # the actor that was executing when the process before this one ended
    frozen_s: float = 0.0  # that process ended because its threads could not run for so long; 0 if it was not so


class Beat(_Record, frozen=True):
    """A worker lives, and this is how it is."""

    incarnation: int
    figures: WorkerFigures
    jobs: dict[str, JobFigures]


class Installed(_Record, frozen=True):
    """A worker knows a job's actors, or says why it cannot."""

    job: str
    error: str | None = None
    traceback: str | None = None
    pushed: tuple[tuple[str, int], ...] = ()  # (source, split) that takes rows from outside here


class ActorEnded(_Record, frozen=True):
    """An actor has seen the end of all its streams. Where no snapshots are taken, only those without downstreams tell."""

    job: str
    address: str
    is_leaf: bool = True


class ActorFailed(_Record, frozen=True):
    """User code raised, or the protocol was violated: the job cannot go on."""

    job: str
    error: str
    traceback: str | None
    lost: tuple[int, ...] = ()  # these workers are gone, and that is all: the job may come back from its last snapshot


class PeerLost(_Record, frozen=True):
    """A worker could not deliver to another one for too long."""

    worker: int
    incarnation: int
    jobs: tuple[str, ...] = ()  # those that have sent something there


class Stuck(_Record, frozen=True):
    """This worker ends, because code of a job that is over does not stop."""

    leftover: str  # the actor, or the job


class Released(_Record, frozen=True):
    """What a Spark query had staged is in the source now; or it was before; or there is no room yet."""

    request: int
    outcome: str  # "released", "known", "full", "gone" or a sentence
    has_begun: bool = False  # some split here has it, whatever became of the others


class Removed(_Record, frozen=True):
    """A job is gone from a worker; these are its last figures."""

    job: str
    figures: JobFigures


class Captured(_Record, frozen=True):
    """A part of a snapshot, as one worker has it on disk; or the last captures of actors that have ended."""

    job: str
    number: int  # of the snapshot; 0 for actors that have ended
    splits: dict[str, bytes] = {}  # places of sources -> where each is
    actors: dict[str, ActorEntry] = {}  # by place
    written_bytes: int = 0
    problem: str | None = None  # why there will be no such snapshot
    is_void: bool = False  # the problem is elsewhere: here it only came to nothing


class Committed(_Record, frozen=True):
    """The sinks here have made visible what belongs to a snapshot."""

    job: str
    number: int


FromWorker = (
    Hello | Beat | Installed | ActorEnded | ActorFailed | PeerLost | Stuck | Released | Removed | Captured | Committed
)


class Welcome(_Record, frozen=True):
    """The newcomer's number; stale messages of earlier processes in its place are told apart by it."""

    incarnation: int
    log: str
    members: tuple[Member, ...]


class Members(_Record, frozen=True):
    """Who is there now."""

    members: tuple[Member, ...]
    left: tuple[int, ...] = ()  # workers that have just been let go, when no job had anything there; others were lost


class Pulse(_Record, frozen=True):
    """The controller lives."""


class Beginning(msgspec.Struct, frozen=True):
    """The savepoint of another job that a job begins with, and how operators have changed since."""

    place: str
    dropped: tuple[str, ...] = ()  # operators of the savepoint whose states are given up
    renamed: dict[str, str] = {}  # names in the savepoint -> names now


class Install(_Record, frozen=True):
    """Make a job's actors known; nothing runs yet."""

    job: str
    shipment: bytes
    workers: tuple[int, ...]  # where its lessors are
    budget_bytes: int
    strategy: bytes
    snapshots: str = ""  # the folder of all snapshots; none are taken if there is none
    restore: int = 0  # the number of the snapshot that it goes on from; 0: from the beginning
    beginning: Beginning | None = None  # which is this savepoint, if there is one


class Start(_Record, frozen=True):
    """Everybody knows the job: its sources may begin."""

    job: str
    helpers: tuple[int, ...]
    version: int


class Helpers(_Record, frozen=True):
    """The workers that know a job now, so that its messages may run there."""

    job: str
    helpers: tuple[int, ...]
    version: int  # grows with each change


class DrainJob(_Record, frozen=True):
    """Stop reading; what has been read runs to its end."""

    job: str
    source: str | None = None  # only this source


class Remove(_Record, frozen=True):
    """Forget a job and all that it holds."""

    job: str
    goes_on: bool = False  # in a later generation, which will see to what its sinks have prepared


class TakeSnapshot(_Record, frozen=True):
    """Capture where the sources of a job are, and have the snapshot's barrier follow what they have given."""

    job: str
    number: int
    rewrite: tuple[str, ...] = ()  # places of actors whose states are to be written anew, unchanged or not
    stops: bool = False  # the sources are not read any further


class ReadOn(_Record, frozen=True):
    """The job is not stopped after all: read its sources again."""

    job: str


class CommitSnapshot(_Record, frozen=True):
    """A snapshot is on disk: sinks make visible what belongs to it."""

    job: str
    number: int


class Release(_Record, frozen=True):
    """A micro-batch was committed: what these attempts staged goes into the source."""

    request: int
    job: str
    source: str
    query: str
    batch: int
    attempts: tuple[tuple[int, str], ...]  # (split, attempt)
    whole: bool = False  # it was decided before a loss, so it does not wait for room


class Stop(_Record, frozen=True):
    """Go."""


ToWorker = (
    Welcome
    | Members
    | Pulse
    | Install
    | Start
    | Helpers
    | DrainJob
    | Remove
    | TakeSnapshot
    | ReadOn
    | CommitSnapshot
    | Release
    | Stop
)


# --- clients and the controller --------------------------------------------------------------------------------------------


class SplitPlace(msgspec.Struct, frozen=True):
    """Where the rows of one split of a source are taken in."""

    split: int
    worker: int
    incarnation: int
    endpoint: str
    key: str = ""  # the public key of the worker


class SourcePlaces(msgspec.Struct, frozen=True):
    """Where the rows of a source are taken in, and what they look like."""

    job: str  # its id
    source: str
    schema: bytes
    splits: tuple[SplitPlace, ...]  # none while a job that keeps its rows is about to begin, or to come back
    run: str = ""  # what the workers call this generation of the job; as its id if there is nothing
    is_kept: bool = False  # the rows outlive their worker, so whoever brings them may wait for another one


class AttemptRef(msgspec.Struct, frozen=True):
    """What one attempt of a Spark task staged."""

    worker: int
    incarnation: int
    split: int
    attempt: str
    rows: int


class LogInfo(msgspec.Struct, frozen=True):
    """The results of one sink of a job."""

    job: str  # its id
    sink: str
    schema: bytes
    first: int
    next: int
    ended: bool  # all results are there; never so if the job failed
    failed: str | None = None


class GetStatus(_Record, frozen=True):
    """How is everybody?"""


class Submit(_Record, frozen=True):
    """Run a job."""

    name: str
    shipment: bytes
    manifest: Manifest
    budget_bytes: int
    strategy: bytes | None = None  # the pool's if there is none
    strategy_name: str = ""
    claim: str = ""  # of the places that it writes to
    snapshots_every_s: float | None = None  # the cluster's if there is none
    beginning: Beginning | None = None  # a savepoint that it begins with


class ClaimPlaces(_Record, frozen=True):
    """Keep places for a job that is about to be submitted with this claim; without any places, let go of the claim."""

    claim: str
    job: str
    places: dict[str, str]  # by sink


class GetJob(_Record, frozen=True):
    """How is a job, by its name or id? With ``wait_s``, answer when it ends or when the time is over."""

    job: str
    wait_s: float = 0.0


class CancelJob(_Record, frozen=True):
    """Stop a job at once."""

    job: str


class EndSources(_Record, frozen=True):
    """Stop a job's sources, or one of them; what they gave is worked to its end."""

    job: str
    source: str | None = None


class TakeSavepoint(_Record, frozen=True):
    """Take a snapshot of a job now, and copy it into a folder of its own. Answered when that is complete, or cannot be."""

    job: str
    place: str
    wait_s: float
    stops: bool = False  # the job ends there


class FailJob(_Record, frozen=True):
    """What feeds a job has failed, so the job does."""

    job: str
    error: str


class Resize(_Record, frozen=True):
    """Have this many workers."""

    workers: int


class StopCluster(_Record, frozen=True):
    """End everything."""


class GetPlaces(_Record, frozen=True):
    """Where does a source take rows in?"""

    job: str
    source: str | None


class ReleaseBatch(_Record, frozen=True):
    """A micro-batch has been committed."""

    job: str
    source: str
    query: str
    batch: int
    attempts: tuple[AttemptRef, ...]


class GetLog(_Record, frozen=True):
    """What is in the results log of a job's sink?"""

    job: str
    sink: str | None


class ReadLog(_Record, frozen=True):
    """Record batches from an offset on; with ``wait_s``, answer when there is one or when the time is over."""

    job: str
    sink: str
    offset: int
    bytes_max: int
    wait_s: float


class IsCommitting(_Record, frozen=True):
    """Has the release of this micro-batch begun, so that its attempts must stay?"""

    job: str
    source: str
    query: str
    batch: int


class FindSnapshot(_Record, frozen=True):
    """Which snapshot of a job can be read? With ``fresh``, one that begins from now on; so long the answer may wait."""

    job: str
    fresh: bool = False
    wait_s: float = 0.0
    number: int | None = None  # this one, if it is still there


class SnapshotPlace(msgspec.Struct, frozen=True):
    """A snapshot that stays for a while, so that it can be read."""

    root: str
    job: str  # its id
    number: int


LogRequest = GetLog | ReadLog

JobRequest = Submit | ClaimPlaces | GetJob | CancelJob | EndSources | TakeSavepoint | FailJob | FindSnapshot
Request = GetStatus | JobRequest | Resize | StopCluster | GetPlaces | ReleaseBatch | IsCommitting


class Manifest(msgspec.Struct, frozen=True):
    """What the controller has to know of a job whose code it never runs."""

    leaves: int  # actors at the end of the graph
    partitions: int  # all actors
    sinks: dict[str, tuple[int, bytes]]  # those that go to the results log: how many partitions write, and the schema
    pushed: dict[str, tuple[int, bytes]]  # sources that take rows from outside: how many splits, and the schema
    latency_ms: int | None = None  # the objective
    target: float | None = None
    labels: dict[str, str] = {}
    places: dict[str, str] = {}  # where sinks write to, by sink: what no other job may write to at the same time
    not_replayable: tuple[str, ...] = ()  # sources that cannot go back, so that no snapshots are taken
    splits: int = 0  # of all sources
    plan: bytes = b""  # what a later flow is compared with, if it is to go on from a savepoint
    promises_once: bool = False  # of the rows of some sink that writes where the job runs


class Asked(_Record, frozen=True):
    """A request with the number that its answer repeats. With the same number it is the same request, asked again."""

    number: int
    request: Request


class AskedLog(_Record, frozen=True):
    """A request to the results log."""

    number: int
    request: LogRequest


class Answer(_Record, frozen=True):
    """The answer to a request: a record as plain data, or an error of one sentence."""

    number: int
    value: Any = None
    error: str | None = None
    is_pending: bool = False  # the request has come, was asked again meanwhile, and its answer has still to wait


ToController = Asked | FromWorker


def asked_number(bodies: list[bytes]) -> int | None:
    """The number of a request that cannot be read, so that it can be answered at least."""
    try:
        (body,) = bodies
        tag, number, *_ = msgspec.msgpack.decode(body)
    except (ValueError, TypeError, msgspec.DecodeError):
        return None
    return number if tag in ("Asked", "AskedLog") and isinstance(number, int) else None
