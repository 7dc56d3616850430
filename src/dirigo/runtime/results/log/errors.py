"""What can go wrong with a results log."""

from __future__ import annotations

from pathlib import Path

from dirigo.errors import DirigoError


class LogError(DirigoError):
    """A results log cannot be read or written. The message is one sentence that says what to do."""


def reason_of(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def gone(folder: Path, offset: int, first: int) -> LogError:
    """What a reader is told who comes too late."""
    return LogError(
        f"Offset {offset} of the results log in '{folder}' was removed by retention; the oldest that is left is {first}: "
        "start from there, or let the log retain more."
    )


def damaged(folder: Path, offset: int, after: int) -> LogError:
    """What a reader is told who asks for a record that is not what was written. The folder tells whose it is."""
    which = f"Record {offset}" if after == offset + 1 else f"Records {offset} to {after - 1}"
    are = "is" if after == offset + 1 else "are"
    return LogError(
        f"{which} of the results of job '{folder.parent.name}', sink '{folder.name}', {are} damaged on disk; "
        f"read from offset {after} on, or run the job again."
    )
