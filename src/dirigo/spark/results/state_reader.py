"""Spark out: what an operator of a job keeps, as a batch DataFrame. Each partition of the operator is one of the DataFrame.

Tasks open the folder of snapshots, or the savepoint, themselves; a service is only asked which snapshot is the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dirigo.runtime.control import Access
from dirigo.runtime.errors import ControlError
from dirigo.runtime.snapshots.errors import SnapshotError
from dirigo.runtime.stored_states import SnapshotIsGone, StoredStates, read_while_it_lasts
from dirigo.spark.results.types import arrow_schema, for_spark, spark_schema

STATE: Final = "state"
WITHOUT_SERVICE: Final = ("savepoint", "snapshots")
_FRESH_S: Final = 60.0


@dataclass(frozen=True)
class StateOptions:
    """What the user said with ``.option(...)``."""

    operator: str
    job: str
    savepoint: str | None
    snapshots: str | None
    number: int | None
    is_fresh: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StateOptions:
        job, savepoint, snapshots = (options.get(name) for name in ("job", *WITHOUT_SERVICE))
        fresh, number = options.get("fresh", "false").lower(), options.get("snapshot")
        if job is None and savepoint is None:
            raise SnapshotError('Say whose state to read: .option("job", NAME), or .option("savepoint", FOLDER).')
        if savepoint is not None and snapshots is not None:
            raise SnapshotError(
                "A state is read from a savepoint or from a folder of snapshots: give one of the two options."
            )
        if fresh not in ("true", "false"):
            raise SnapshotError(f"fresh is '{fresh}'; it is either true or false.")
        if number is not None and not number.isdecimal():
            raise SnapshotError(f"snapshot is '{number}'; it is the number of one.")
        if fresh == "true" and (savepoint or snapshots or number):
            raise SnapshotError(
                "fresh=true takes a snapshot, which a folder cannot; leave out savepoint, snapshots and snapshot."
            )
        if savepoint is not None and number is not None:
            raise SnapshotError("A savepoint is one snapshot; leave out the option snapshot.")
        wanted = None if number is None else int(number)
        return cls(options[STATE], job or "", savepoint, snapshots, wanted, fresh == "true")


@dataclass(frozen=True)
class StatePart(InputPartition):  # type: ignore[misc]  # pyspark has no types that hold
    """What one task reads: a partition of the operator, in one snapshot or savepoint."""

    savepoint: str | None
    root: str
    job: str
    number: int
    partition: int

    def states(self) -> StoredStates:
        if self.savepoint is not None:
            return StoredStates.in_savepoint(self.savepoint)
        return StoredStates.in_snapshots(self.root, self.job, self.number)


def state_schema(access: object, options: Mapping[str, str]) -> StructType:
    """The columns of an operator's state."""
    asked = StateOptions.parse(options)

    def found() -> StoredStates:
        return _found(access, asked)[0]

    def schema(states: StoredStates) -> pa.Schema:
        return states.schema(asked.operator)

    # one that was named is not looked for again: it does not come back
    return spark_schema(read_while_it_lasts(found, schema) if asked.number is None else schema(found()))


class StateReader(DataSourceReader):  # type: ignore[misc]
    """The state as of the snapshot that is the last one when the query is planned, or as of one that is taken then."""

    def __init__(self, access: object, options: Mapping[str, str], schema: StructType | None = None) -> None:
        self._access = access
        self._options = StateOptions.parse(options)
        self._schema = schema

    def partitions(self) -> list[StatePart]:
        asked = self._options
        states, root = _found(self._access, asked, may_take_one=True)
        count = states.partitions(asked.operator)
        return [StatePart(asked.savepoint, root, states.job, states.number, number) for number in range(count)]

    def read(self, partition: StatePart) -> Iterator[pa.RecordBatch]:
        try:
            states = partition.states()
            table = states.part(self._options.operator, partition.partition)
        except SnapshotIsGone as error:
            raise SnapshotIsGone(f"{str(error).partition(';')[0]}; load the DataFrame anew.") from None
        target = arrow_schema(self._schema if self._schema is not None else spark_schema(table.schema))
        for batch in table.to_batches():
            if batch.num_rows:
                yield for_spark(batch, target)


def _found(access: object, asked: StateOptions, *, may_take_one: bool = False) -> tuple[StoredStates, str]:
    """The states that are meant, and the folder of their snapshots. Columns are those of any snapshot."""
    if asked.savepoint is not None:
        return StoredStates.in_savepoint(asked.savepoint), ""
    if asked.snapshots is not None:
        return StoredStates.in_snapshots(asked.snapshots, asked.job, asked.number), asked.snapshots
    if not isinstance(access, Access):
        raise SnapshotError(
            "This Spark session knows no service; tell it of one with dg.register(session), "
            'or read from a folder with .option("snapshots", FOLDER) or .option("savepoint", FOLDER).'
        )
    from dirigo.runtime.client.client import Client  # not before it is needed: a folder is read without sockets

    with Client(access) as client:
        try:
            fresh = asked.is_fresh and may_take_one
            place = client.find_snapshot(asked.job, fresh=fresh, wait_s=_FRESH_S, number=asked.number)
        except ControlError:
            if not asked.is_fresh or may_take_one:
                raise
            place = client.find_snapshot(asked.job, fresh=True, wait_s=_FRESH_S)  # there is none so far
    return StoredStates.in_snapshots(place.root, place.job, place.number), place.root
