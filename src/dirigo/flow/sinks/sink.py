"""What a sink of rows is: the classes that every sink of a dataflow derives from.

A sink describes a place. It is prepared once, before the job starts, and then opened by every partition, which writes
on its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import pyarrow as pa

Delivery: TypeAlias = Literal["exactly once", "at least once"]


class Writer(ABC):
    """What one partition of a sink writes with, opened at the worker. It is used by one thread at a time.

    That need not be the same one: after a loss, the writer is opened and resumed on another thread than it then writes on.

    ``write``, ``flush`` and ``close`` are all that a writer needs. After a recovery it is then given again what came after
    the last snapshot: at least once. A writer that shows each row exactly once has ``hold_back``, ``cut``, ``sync``,
    ``commit`` and ``resume`` as well.
    """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take these rows; they have the schema that the writer was opened with."""

    @abstractmethod
    def flush(self) -> None:
        """Make visible what was written: called after each batch."""

    @abstractmethod
    def close(self) -> None:
        """The last row has come: make everything visible. Closing twice does nothing more.

        A writer that holds rows back shows the last ones when the last cut, which follows, is committed.
        """

    def abandon(self) -> None:  # noqa: B027 - most writers hold nothing that has to be let go of
        """The job failed or was cancelled: let go of everything, and make nothing more visible.

        It may be called twice, or after `close`. A process that is killed calls nothing.
        """

    def held_bytes(self) -> int:
        """How much memory the rows take that it has been given and has not let go of."""
        return 0

    # --- for those who watch -------------------------------------------------------------------------------------------

    @property
    def roll_every_ms(self) -> int | None:
        """How long rows may wait to be shown, in a job without snapshots: `roll` is called that long after the first."""
        return None

    def roll(self) -> None:  # noqa: B027 - most writers show rows at once
        """Show the rows that wait."""

    # --- with snapshots ------------------------------------------------------------------------------------------------

    def hold_back(self, generation: int) -> None:  # noqa: B027 - a writer that knows no transactions has rows go at once
        """The job takes snapshots: show rows when `commit` says so. Called before anything else, if at all.

        ``generation`` counts how often the job has begun. A writer of an earlier one, whose process seemed to be lost, may
        wake up and go on writing: the two must share nothing that is not committed.
        """

    def cut(self) -> Any:
        """A snapshot: all rows written so far belong to it, and are complete when this returns; called after `close` too.

        What is returned is plain data (None, numbers, text, bytes, lists and dicts of those): `commit` and `resume` go on
        from it, perhaps in another process. None: this writer knows no transactions.
        """
        return None

    def sync(self, cut: Any) -> None:  # noqa: B027 - as with `cut`
        """Bring what the cut names to the disk, before the snapshot is committed.

        It runs on another thread while this writer goes on, so it looks at nothing that `write` changes.
        """

    def commit(self, cut: Any) -> None:  # noqa: B027 - as with `cut`
        """The snapshot of this cut has been committed: show its rows, and all before them, for cuts may be skipped.

        Cuts come in order. It may be called again, also on a new writer of the same partition in another process, and then
        does nothing more.
        """

    def resume(self, cut: Any) -> None:  # noqa: B027 - as with `cut`
        """Called on a new writer before its first row: go on behind this cut in place of a writer that was lost.

        Commit the cut, and remove what came after it.
        """

    def let_go(self) -> None:
        """This process stops, and the job goes on from a snapshot: keep what a cut names, and let go of the rest."""
        self.abandon()


class Sink(ABC):
    """What a user hands to a dataflow as the place where rows go."""

    default_name: ClassVar[str] = ""
    """The name of a sink that was given none: then several may have it, and are told apart by numbers."""
    is_outside: ClassVar[bool] = False
    """Whether its rows leave the job, and are not written where it runs."""
    is_taken_by_client: ClassVar[bool] = True
    """Of such a sink: whether the process that submits the job takes them."""
    delivery: ClassVar[Delivery] = "at least once"
    """How often a row is there after a recovery from a snapshot: "exactly once" if its writers commit with snapshots."""

    def __init__(self, name: str) -> None:
        """Describe the place; nothing is touched before `prepare`."""
        self.name = name

    @property
    def place(self) -> Path | str | None:
        """What the sink alone may write to, if there is such a thing: a file or folder, or a name that tells it apart.

        Another sink with the same place is refused, in the same job and in any that runs at the same time.
        """
        return None

    def prepare(self, schema: pa.Schema) -> None:  # noqa: B027 - most places need no preparation
        """Called once before the job starts, where it is submitted: refuse columns and places that cannot be written to.

        A job that comes back from a snapshot does not prepare its sinks again.
        """

    @abstractmethod
    def open(self, schema: pa.Schema, partition: int) -> Writer:
        """The writer of one partition, from 0 on: opened once, also if no row comes, and perhaps in another process.

        After a loss, or to commit what a lost writer has prepared, it is opened again.
        """


def place_of(sink: Sink) -> str | None:
    """The place of a sink, the same for all that write there, however each calls it."""
    place = sink.place
    return str(place.resolve()) if isinstance(place, Path) else place
