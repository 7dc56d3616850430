"""A folder of this machine, or one that is mounted. Files are for their owner alone, and durable when they have a name."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa

from dirigo.runtime.results.log.files import make_durable_folder, sync_folder
from dirigo.runtime.snapshots.errors import DamagedSnapshot, told
from dirigo.runtime.snapshots.places import Buffer

_FILE_MODE: Final = 0o600
_GATHERED_BYTES: Final = 1 << 20  # small buffers are written together, larger ones from where they are
UNFINISHED: Final = ".unfinished"
_REMOVED_AGAIN_AFTER_S: Final = (0.05, 0.1, 0.2, 0.4)  # a folder that others still write into


class LocalPlace:
    """A folder that is reached by a path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown = str(path)

    def within(self, name: str) -> LocalPlace:
        return LocalPlace(self.path / name)

    def make(self) -> None:
        with told(self.shown, "write"):
            make_durable_folder(self.path)
        probe = f"probe-{uuid4().hex}"  # of nobody else's, on whatever machine
        self.write(probe, [b"\0"])
        self.remove_files([probe])

    def write(self, name: str, buffers: Iterable[Buffer]) -> None:
        # By process, so that nobody who writes the same file gets into the way of this one before it is whole.
        unfinished = self.path / f".{name}-{os.getpid()}{UNFINISHED}"
        with told(self.shown, "write"):
            unfinished.unlink(missing_ok=True)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
            try:
                with os.fdopen(descriptor, "wb", buffering=_GATHERED_BYTES) as file:
                    file.writelines(buffers)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(self.path / name)
                sync_folder(self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    unfinished.unlink()
                raise

    def read(self, name: str, offset: int = 0, length: int | None = None) -> memoryview:
        with told(self.shown, "read", name):
            descriptor = os.open(self.path / name, os.O_RDONLY | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if length is None:
                    length = size - offset
                if length < 0 or offset + length > size:  # before there is memory for what is not there
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
        with told(self.shown, "read"):
            try:
                entries = os.scandir(self.path)
            except FileNotFoundError:
                if self.path.parent.is_dir():
                    return {}
                raise
            found = {}
            with entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        if entry.is_file(follow_symlinks=False):
                            found[entry.name] = entry.stat(follow_symlinks=False).st_size
            return found

    def folders(self) -> list[str]:
        with told(self.shown, "read"), os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def remove_files(self, names: Iterable[str]) -> None:
        with told(self.shown, "remove"):
            has_removed = False
            for name in names:
                (self.path / name).unlink(missing_ok=True)
                has_removed = True
            if has_removed:
                sync_folder(self.path)

    def remove(self) -> None:
        """With all that is in it. Workers that have not heard yet may still write into it, or remove their files."""
        with told(self.shown, "remove"):
            for pause_s in (*_REMOVED_AGAIN_AFTER_S, None):
                try:
                    shutil.rmtree(self.path)
                    break
                except OSError as error:
                    if not self.path.exists():
                        return
                    if pause_s is None or error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                        raise
                    time.sleep(pause_s)
            sync_folder(self.path.parent)
