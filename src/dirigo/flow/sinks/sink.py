"""What a sink of rows is: the classes that every sink of a dataflow derives from.

A sink describes a place. It is prepared once, before the job starts, and then opened by every partition, which writes
on its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import pyarrow as pa


class Writer(ABC):
    """What one partition of a sink writes with, opened at the worker. It is used by one thread at a time."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Take these rows; they have the schema that the writer was opened with."""

    @abstractmethod
    def flush(self) -> None:
        """Make visible what was written: called after each batch."""

    @abstractmethod
    def close(self) -> None:
        """The last row has come: make everything visible. Closing twice does nothing more."""

    def abandon(self) -> None:  # noqa: B027 - most writers hold nothing that has to be let go of
        """The job failed or was cancelled: let go of everything, and make nothing more visible.

        It may be called twice, or after `close`. A process that is killed calls nothing.
        """

    def held_bytes(self) -> int:
        """How much memory the rows take that it has been given and has not let go of."""
        return 0


class Sink(ABC):
    """What a user hands to a dataflow as the place where rows go."""

    default_name: ClassVar[str] = ""
    """The name of a sink that was given none: then several may have it, and are told apart by numbers."""
    is_outside: ClassVar[bool] = False
    """Whether its rows leave the job, and are not written where it runs."""
    is_taken_by_client: ClassVar[bool] = True
    """Of such a sink: whether the process that submits the job takes them."""

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
        """Called once before the job starts, where it is submitted: refuse columns and places that cannot be written to."""

    @abstractmethod
    def open(self, schema: pa.Schema, partition: int) -> Writer:
        """The writer of one partition, from 0 on: opened once, also if no row comes, and perhaps in another process."""


def place_of(sink: Sink) -> str | None:
    """The place of a sink, the same for all that write there, however each calls it."""
    place = sink.place
    return str(place.resolve()) if isinstance(place, Path) else place
