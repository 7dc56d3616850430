"""Folders for tests: one in memory where writers die in the middle, and a file system of Arrow that fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow.fs as pa_fs

from dirigo.runtime.snapshots.errors import DamagedSnapshot
from dirigo.runtime.snapshots.places import Buffer, Place


class ProcessDiedError(Exception):
    """The process that wrote is gone."""


class MemoryPlace:
    """A folder that promises no more than a place has to. A writer dies in the change ``dies_at``."""

    def __init__(self) -> None:
        self.shown = "memory"
        self.content: dict[str, bytes] = {}
        self.dies_at: int | None = None
        self.chance = random.Random(0)

    def within(self, name: str) -> Place:
        return self

    def make(self) -> None:
        """It is there."""

    def write(self, name: str, buffers: Iterable[Buffer]) -> None:
        content = b"".join(buffers)
        if self._dies():
            # As in an object store where nobody could remove what a broken connection left.
            outcome = self.chance.choice(("nothing", "half", "whole"))
            if outcome != "nothing":
                self.content[name] = content if outcome == "whole" else content[: len(content) // 2]
            raise ProcessDiedError
        self.content[name] = content

    def read(self, name: str, offset: int = 0, length: int | None = None) -> memoryview:
        content = self.content.get(name)
        if content is None:
            raise DamagedSnapshot(f"'{name}' is missing")
        end = len(content) if length is None else offset + length
        if end > len(content):
            raise DamagedSnapshot(f"'{name}' is too short")
        return memoryview(bytearray(content[offset:end]))

    def files(self) -> dict[str, int]:
        return {name: len(content) for name, content in self.content.items()}

    def folders(self) -> list[str]:
        return []

    def remove_files(self, names: Iterable[str]) -> None:
        chosen = list(names)
        if self._dies():
            for name in chosen:  # in any order, as the disk likes it
                if self.chance.random() < 0.5:
                    self.content.pop(name, None)
            raise ProcessDiedError
        for name in chosen:
            self.content.pop(name, None)

    def remove(self) -> None:
        self.content.clear()

    def _dies(self) -> bool:
        if self.dies_at is None:
            return False
        self.dies_at -= 1
        return self.dies_at < 0


class FailingFiles(pa_fs.FileSystemHandler):  # type: ignore[misc]  # Arrow has no types
    """A file system that passes on to another one, and calls ``before`` with the name of what is asked first."""

    def __init__(self, inner: pa_fs.FileSystem, before: Callable[[str], None]) -> None:
        self.inner = inner
        self.before = before

    def _asked(self, name: str, *arguments: Any, **options: Any) -> Any:
        self.before(name)
        return getattr(self.inner, name)(*arguments, **options)

    def get_type_name(self) -> str:
        return "failing"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> Any:
        return self._asked("get_file_info", paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._asked("get_file_info", selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._asked("create_dir", path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._asked("delete_dir", path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._asked("delete_dir_contents", path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self._asked("delete_file", path)

    def move(self, src: str, dest: str) -> None:
        self._asked("move", src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        self._asked("copy_file", src, dest)

    def open_input_stream(self, path: str) -> Any:
        return self._asked("open_input_stream", path)

    def open_input_file(self, path: str) -> Any:
        return self._asked("open_input_file", path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return self._asked("open_output_stream", path)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        return self._asked("open_append_stream", path)
