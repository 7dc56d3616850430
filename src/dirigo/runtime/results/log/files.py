"""How the files of a log are made and brought to the disk: all of them here, and for their owner alone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing."""
    _make_folders(folder)


def make_durable_folder(folder: Path) -> None:
    """The same, and have their names on disk."""
    for made in _make_folders(folder):
        sync_folder(made.parent)


def _make_folders(folder: Path) -> list[Path]:
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    return missing


def open_file(path: Path) -> int:
    """A descriptor to read and write a file, which is made if it is not there."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file as a whole, and have it on disk: whatever happens, it has the old content or the new one."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    try:
        try:
            left = memoryview(content)
            while left:  # a disk that is almost full takes a part
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        unfinished.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk: those of new files, and those that were replaced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
