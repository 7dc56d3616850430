"""Folders where snapshots lie: what is asked of one, wherever it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Place(Protocol):
    """A folder. All its methods block, and raise ``SnapshotError``: a host may call them on a thread of its own."""

    shown: str  # how messages name it, without secrets

    def within(self, name: str) -> Place:
        """A folder in this one."""

    def make(self) -> None:
        """Make it if it is not there, for its owner alone, and find out whether it can be written."""

    def write(self, name: str, buffers: Iterable[Buffer]) -> None:
        """Write a file as a whole. On return it is durable; if it fails, the file has its old content, or is not there."""

    def read(self, name: str, offset: int = 0, length: int | None = None) -> memoryview:
        """A part of a file, or all of it, in memory of its own that may be written."""

    def files(self) -> dict[str, int]:
        """The sizes of all files that lie directly in it, by name. A folder that is not there holds none."""

    def folders(self) -> list[str]:
        """The names of the folders that lie directly in it, in order."""

    def remove_files(self, names: Iterable[str]) -> None:
        """Remove files for good; those which are not there are no error."""

    def remove(self) -> None:
        """Remove it with all that it holds. It is no error if it is not there."""
