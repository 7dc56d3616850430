"""A folder that Arrow reaches: an object store, or a distributed file system.

Files appear there as a whole when they are closed. What is there after a failure nobody refers to, and what is read is
checked, so a store that leaves half a file behind does no harm.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pa_fs

from dirigo.runtime.snapshots.errors import DamagedSnapshot, told
from dirigo.runtime.snapshots.places import Buffer


class ObjectPlace:
    """A folder in a file system of Arrow."""

    def __init__(self, file_system: Any, path: str, shown: str) -> None:
        self.file_system = file_system
        self.path = path
        self.shown = shown

    def within(self, name: str) -> ObjectPlace:
        return ObjectPlace(self.file_system, self._full(name), f"{self.shown.rstrip('/')}/{name}")

    def make(self) -> None:
        with told(self.shown, "write"):
            if self.path:
                self.file_system.create_dir(self.path, recursive=True)
        probe = f"probe-{uuid4().hex}"  # of nobody else's, on whatever machine
        self.write(probe, [b"\0"])
        self.remove_files([probe])

    def write(self, name: str, buffers: Iterable[Buffer]) -> None:
        with told(self.shown, "write"):
            try:
                with self.file_system.open_output_stream(self._full(name), compression=None) as stream:
                    for buffer in buffers:
                        stream.write(buffer)
            except BaseException:
                with contextlib.suppress(OSError, pa.ArrowException):  # closing has made a file of what there was
                    self.file_system.delete_file(self._full(name))
                raise

    def read(self, name: str, offset: int = 0, length: int | None = None) -> memoryview:
        with told(self.shown, "read", name), self.file_system.open_input_file(self._full(name)) as file:
            size = file.size()
            if length is None:
                length = size - offset
            if length < 0 or offset + length > size:
                raise DamagedSnapshot(f"'{name}' in '{self.shown}' is too short.")
            content = memoryview(pa.allocate_buffer(length)).cast("B") if length else memoryview(bytearray())
            file.seek(offset)
            left = content
            while left:
                got = file.readinto(left)
                if not got:
                    raise DamagedSnapshot(f"'{name}' in '{self.shown}' is too short.")
                left = left[got:]
            return content

    def files(self) -> dict[str, int]:
        return {info.base_name: info.size for info in self._entries() if info.type == pa_fs.FileType.File}

    def folders(self) -> list[str]:
        return sorted(info.base_name for info in self._entries() if info.type == pa_fs.FileType.Directory)

    def remove_files(self, names: Iterable[str]) -> None:
        with told(self.shown, "remove"):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self.file_system.delete_file(self._full(name))

    def remove(self) -> None:
        with told(self.shown, "remove"), contextlib.suppress(FileNotFoundError):
            self.file_system.delete_dir(self.path)

    def _entries(self) -> list[Any]:
        with told(self.shown, "read"):
            return list(self.file_system.get_file_info(pa_fs.FileSelector(self.path, allow_not_found=True)))

    def _full(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name
