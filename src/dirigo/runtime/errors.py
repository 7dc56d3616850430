"""What can go wrong between a user and the service."""

from __future__ import annotations

from dirigo.errors import DirigoError


class ControlError(DirigoError):
    """The service cannot do what it was asked for. The message is one sentence that says what to do."""


class JobFailed(DirigoError):  # noqa: N818  # what happened to the job
    """A job failed. The message says why; ``remote_traceback`` is where, if it was in user code."""

    def __init__(self, message: str, remote_traceback: str | None = None) -> None:
        super().__init__(message)
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n\n{self.remote_traceback}" if self.remote_traceback else message


class StillRunning(DirigoError, TimeoutError):  # noqa: N818  # what is so, and no failure
    """Somebody has waited for a job for as long as was said, and it goes on."""
