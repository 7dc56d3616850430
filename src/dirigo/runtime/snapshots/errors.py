"""What can go wrong with a folder of snapshots, each in a sentence that names the folder and says what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from dirigo.errors import DirigoError


class SnapshotError(DirigoError):
    """A folder of snapshots cannot be used. The message is one sentence that says what to do."""


class DamagedSnapshot(SnapshotError):  # noqa: N818  # what became of it
    """A file of a snapshot is missing or is not what was written; an earlier snapshot may still be whole."""


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_FOLDER: Final = frozenset({errno.ENOTDIR, errno.EEXIST})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})
_LONGEST_REASON: Final = 300  # object stores say the same thing for every attempt


@contextmanager
def told(shown: str, doing: str, file: str = "") -> Iterator[None]:
    """Turn what the system says about a folder into a sentence for its user. ``doing`` is what cannot be done."""
    try:
        yield
    except FileNotFoundError as error:
        if file and doing == "read":
            raise DamagedSnapshot(f"'{file}' is missing in '{shown}'.") from error
        raise SnapshotError(
            f"The folder of snapshots '{shown}' is not there on this machine; "
            "make it, or name a folder that all workers share."
        ) from error
    except (OSError, pa.ArrowException) as error:
        code = error.errno if isinstance(error, OSError) else None
        if code == errno.EIO and file and doing == "read":
            raise DamagedSnapshot(f"'{file}' in '{shown}' cannot be read: {_reason(error)}.") from error
        raise SnapshotError(_sentence(shown, doing, error, code)) from error


def _sentence(shown: str, doing: str, error: Exception, code: int | None) -> str:
    if code in _FULL:
        return f"The folder of snapshots '{shown}' is full ({_reason(error)}); free some space, or name another folder."
    if code == errno.EROFS:
        return f"The folder of snapshots '{shown}' can only be read; mount it for writing, or name another folder."
    if code in _FORBIDDEN:
        return (
            f"The folder of snapshots '{shown}' cannot be {_participle(doing)}: {_reason(error)}; give the user who runs "
            "the service access to it, or name another folder."
        )
    if code in _NO_FOLDER:
        return f"'{shown}' is not a folder, and snapshots need one; name another folder."
    return (
        f"The folder of snapshots '{shown}' cannot be {_participle(doing)}: {_reason(error)}; check that it can be reached, "
        "or name another folder."
    )


def _participle(doing: str) -> str:
    return {"read": "read", "write": "written", "remove": "removed"}[doing]


def _reason(error: Exception) -> str:
    """What the system says, in one line and without the path, which the sentence has already."""
    if isinstance(error, OSError) and error.errno and error.strerror:
        return os.strerror(error.errno).lower()
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:_LONGEST_REASON].rstrip(".")
