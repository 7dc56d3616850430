"""The states of a job as Arrow tables, read from one of its snapshots or from a savepoint. No cluster is needed.

The flow of the job is in the folder, too. It is unpickled here, so whoever reads runs code of whoever has written there.
A snapshot that is removed while it is read makes ``SnapshotIsGone``: there are newer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self, TypeVar

import msgspec
import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.errors import said
from dirigo.flow.plan.plan import Plan
from dirigo.flow.plan.stage import Stage
from dirigo.flow.plan.states import StageCapture
from dirigo.runtime.client.shipment import unship
from dirigo.runtime.results.shelf import number_of
from dirigo.runtime.snapshots.blobs import BlobRef
from dirigo.runtime.snapshots.codec import decode
from dirigo.runtime.snapshots.errors import DamagedSnapshot, SnapshotError
from dirigo.runtime.snapshots.manifest import ActorEntry, SnapshotManifest, StoredJob
from dirigo.runtime.snapshots.savepoint import Savepoint
from dirigo.runtime.snapshots.store import SnapshotStore, stored_jobs
from dirigo.runtime.worker.snapshots.captures import ActorHead

T = TypeVar("T")

READS_MOST: Final = 5  # of ever newer snapshots, where each is removed before it has been read


class SnapshotIsGone(SnapshotError):  # noqa: N818  # what became of it
    """A snapshot was removed because there are newer ones, or with its job."""


class _Flow(msgspec.Struct):
    """What matters here of what is kept of a job."""

    shipment: bytes


class StoredStates:
    """What the operators of a job kept in one snapshot."""

    def __init__(
        self,
        shown: str,
        manifest: SnapshotManifest,
        job: StoredJob | None,
        read: Callable[[BlobRef], memoryview],
        is_gone: Callable[[], bool],
    ) -> None:
        self.job = manifest.job
        self.number = manifest.number
        self._shown = shown
        self._manifest = manifest
        self._read = read
        self._is_gone = is_gone
        stages = _plan_of(manifest, job, shown).stages
        self._stages = {stage.name: stage for stage in stages if stage.operator.state_schema() is not None}
        self._all = [stage.name for stage in stages]

    @classmethod
    def in_snapshots(cls, root: str, job: str, number: int | None = None) -> Self:
        """Of a job in a folder of snapshots, by its id or its name (the last of this name): its last snapshot, or one."""
        store = SnapshotStore(root, _job_in(root, job))

        def is_gone(wanted: int) -> bool:
            try:
                return wanted not in [each.number for each in store.manifests()]
            except SnapshotError:
                return True

        complaints: list[str] = []
        try:
            manifest = store.newest(complaints) if number is None else store.manifest(number)
        except DamagedSnapshot as error:
            assert number is not None
            raise _gone(store.job, number) if is_gone(number) else error from None
        if manifest is None:
            why = f": {complaints[0]}" if complaints else "; wait until one has been taken."
            raise SnapshotError(f"There is no whole snapshot of job '{store.job}' in '{store.place.shown}'{why}")
        found: SnapshotManifest = manifest
        return cls(store.place.shown, found, store.read_job(), store.read, lambda: is_gone(found.number))

    @classmethod
    def in_savepoint(cls, uri: str) -> Self:
        savepoint = Savepoint.open(uri)
        return cls(savepoint.place.shown, savepoint.manifest, savepoint.job, savepoint.read, lambda: False)

    @property
    def operators(self) -> list[str]:
        """The operators whose state can be read."""
        return list(self._stages)

    def schema(self, operator: str) -> pa.Schema:
        """The columns of the state of an operator, and in the metadata which snapshot of which job it is of."""
        schema = self._stage(operator).operator.state_schema()
        assert schema is not None
        return schema.with_metadata(
            {
                "dirigo.job": self.job,
                "dirigo.operator": operator,
                "dirigo.snapshot": str(self.number),
                "dirigo.began_s": f"{self._manifest.began_s:.3f}",
            }
        )

    def table(self, operator: str) -> pa.Table:
        """The state of an operator: all of its keys, wherever they are."""
        schema = self.schema(operator)
        parts = [self.part(operator, partition) for partition in range(self._stage(operator).partitions)]
        return pa.concat_tables([schema.empty_table(), *parts])

    def partitions(self, operator: str) -> int:
        return self._stage(operator).partitions

    def part(self, operator: str, partition: int) -> pa.Table:
        """What one partition of an operator keeps; nothing if its input has ended."""
        stage, schema = self._stage(operator), self.schema(operator)
        entry = self._manifest.actors.get(stage.places[partition])
        if entry is None or not entry.head:
            return schema.empty_table()
        try:
            table = stage.state_table(partition, self._captured(entry), int(self._manifest.began_s * 1000))
        except SnapshotError:
            raise
        except Exception as error:  # restoring runs user code
            why = str(error) if isinstance(error, DirigoError) else f"{said(error)}."
            raise SnapshotError(
                f"The state of operator '{operator}' in snapshot {self.number} of job '{self.job}' cannot be shown: {why}"
            ) from error
        return table.replace_schema_metadata(schema.metadata)

    def _captured(self, entry: ActorEntry) -> StageCapture:
        try:
            head = ActorHead(*decode(entry.head))
            own: Any = None
            if head.inline is not None:
                own = decode(head.inline)
            elif entry.body is not None:
                own = decode(self._read(entry.body))
        except DamagedSnapshot as error:
            raise _gone(self.job, self.number) if self._is_gone() else error from None
        return StageCapture(head.stage, own)

    def _stage(self, operator: str) -> Stage:
        if operator in self._stages:
            return self._stages[operator]
        there = f"those with a state are {', '.join(self._stages)}" if self._stages else "none of its operators has one"
        what = "keeps no state" if operator in self._all else "is no operator of it"
        raise SnapshotError(f"The state of '{operator}' in job '{self.job}' cannot be read, because it {what}; {there}.")


def read_while_it_lasts(find: Callable[[], StoredStates], read: Callable[[StoredStates], T]) -> T:
    """Read from the snapshot that is found; when it is removed meanwhile, from the next one."""
    for _ in range(READS_MOST):
        try:
            return read(find())
        except SnapshotIsGone as error:
            gone = error
    raise SnapshotIsGone(
        f"{READS_MOST} snapshots in a row were removed while they were read ({gone}) Take them less often "
        "(snapshots_every), or read from a savepoint."
    ) from gone


def tables_of(states: StoredStates, operators: Sequence[str]) -> dict[str, pa.Table]:
    """The states of some operators, or of all that have one."""
    return {operator: states.table(operator) for operator in operators or states.operators}


def _gone(job: str, number: int) -> SnapshotIsGone:
    return SnapshotIsGone(f"Snapshot {number} of job '{job}' is not there any more; read the last one.")


def _job_in(root: str, wanted: str) -> str:
    jobs = stored_jobs(root)
    if wanted in jobs:
        return wanted
    named = [job for job in jobs if job.rpartition("~")[0] == wanted]
    if named:
        return max(named, key=number_of)
    there = ", ".join(sorted(jobs)) or "none"
    raise SnapshotError(f"There are no snapshots of job '{wanted}' in this folder; it has those of: {there}.")


def _plan_of(manifest: SnapshotManifest, job: StoredJob | None, shown: str) -> Plan:
    if job is None:
        raise SnapshotError(
            f"The flow of job '{manifest.job}' is not in '{shown}' any more, because the job is over; "
            "read the state of a job that runs, or a savepoint."
        )
    try:
        return unship(msgspec.msgpack.decode(job.content, type=_Flow).shipment)
    except Exception as error:  # unpickling runs user code
        raise SnapshotError(
            f"The flow of job '{manifest.job}' in '{shown}' cannot be read here ({said(error)}); use the version of Dirigo "
            "that it was submitted with, and install what its code imports."
        ) from error
