"""Folders in the temporary directory that go with the process which made them, or when the next one starts.

A process that is killed cannot remove its folders. So each folder holds a file that its owner keeps locked, and the system
lets go of the lock when the process ends, in whatever way. Whoever starts later removes the folders whose lock nobody holds.
Only folders of the same user that hold such a file are touched, and links are never followed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

_PREFIX: Final = "dirigo-"
_LOCK: Final = ".owner"  # beside the files of the owner, so that nobody takes it for one of them
_FILES: Final = "files"
_TRIES: Final = 8
_LOOK_S: Final = 0.02
SUCCEEDED_WITHIN_S: Final = 30.0  # a process that died is followed by another one in its place, which looks at its folder

_owned: dict[Path, OwnFolder] = {}  # of this process
_removing = threading.RLock()  # a process that ends in the middle of a removal would leave the rest


class OwnFolder:
    """A folder of this process, for its user alone; as a context, it is removed at the end. ``path`` is where files go."""

    def __init__(self, kind: str) -> None:
        for _ in range(_TRIES):
            base = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
            lock = os.open(base / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            if _is_locked_by(lock, base):
                break
            os.close(lock)  # somebody who tidies up was faster
        else:
            raise OSError(f"cannot keep a folder in {tempfile.gettempdir()}")
        self._base = base
        self.lock = lock
        os.write(lock, f"{os.getpid()}\n".encode())
        self.path = base / _FILES
        self.path.mkdir(mode=0o700)
        _owned[base] = self

    def remove(self) -> None:
        """Remove it with all that it holds. Removing twice does nothing more."""
        with _removing:
            if self._base in _owned:
                _remove(self._base)
                if _owned.pop(self._base, None) is not None:
                    os.close(self.lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


def remove_own() -> None:
    """The process is about to end: remove all folders that it still has."""
    for folder in list(_owned.values()):
        folder.remove()


def remove_no_more(patience_s: float = 1.0) -> None:
    """This process is about to end: let whoever removes a folder finish, and nobody begin with another one."""
    _removing.acquire(timeout=patience_s)


def show_life() -> None:
    """Note in the folders of this process that it lives: called now and then by processes that others take the place of."""
    for folder in list(_owned.values()):
        with suppress(OSError):
            os.utime(folder.lock)


def remove_abandoned(
    kind: str = "",
    *,
    but: str | None = None,
    first: Callable[[Path], None] = lambda _: None,
    gone_for_s: float = 0.0,
    patience_s: float = 0.0,
) -> None:
    """Remove the folders whose owners are gone: those of a kind, or all ``but`` those of another one.

    ``first`` is called with the files of each folder before it is removed. Folders whose owner showed life within the last
    ``gone_for_s`` stay: the process that takes its place will read what it has left. Owners that are about to end are
    waited for ``patience_s`` at most.
    """
    until = time.monotonic() + patience_s
    while not _removed_abandoned(kind, but, first, gone_for_s) and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _removed_abandoned(kind: str, but: str | None, first: Callable[[Path], None], gone_for_s: float) -> bool:
    """Whether no folder of that kind is left."""
    is_none_left = True
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            is_meant = entry.name.startswith(f"{_PREFIX}{kind}")
            if is_meant and (but is None or not entry.name.startswith(f"{_PREFIX}{but}")):
                with suppress(OSError), _removing:  # gone meanwhile, or nothing of ours
                    _remove_if_abandoned(Path(entry.path), first, gone_for_s)
                    is_none_left = is_none_left and not Path(entry.path).exists()
    return is_none_left


def _remove_if_abandoned(base: Path, first: Callable[[Path], None], gone_for_s: float) -> None:
    folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            return
        lock = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        found = os.fstat(lock)
        was_just_here = time.time() - found.st_mtime < gone_for_s
        if stat.S_ISREG(found.st_mode) and not was_just_here and _is_locked_by(lock, base):
            first(base / _FILES)
            _remove(base)
    finally:
        os.close(lock)


def _remove(base: Path) -> None:
    """The lock is removed last, so that a removal that was interrupted, or that somebody wrote against, is resumed."""
    shutil.rmtree(base / _FILES, ignore_errors=True)
    if (base / _FILES).exists():
        return
    with suppress(OSError):
        (base / _LOCK).unlink(missing_ok=True)
        base.rmdir()


def _is_locked_by(lock: int, base: Path) -> bool:
    """Whether the lock could be taken, and is still the one of that folder: it may have been removed meanwhile."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there, held = os.lstat(base / _LOCK), os.fstat(lock)
    except (BlockingIOError, FileNotFoundError):
        return False
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)
