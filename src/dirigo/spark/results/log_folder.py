"""A results log that is read from its folder, without a cluster: the same questions and answers as of a client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dirigo.runtime.control import LogInfo
from dirigo.runtime.results.log import LogError, StoredLog


@dataclass(frozen=True)
class LogFolder:
    """Where the log is; travels to the tasks, which must see the same disk."""

    path: str

    def connect(self) -> LogFolderClient:
        return LogFolderClient(Path(self.path))


class LogFolderClient:
    """Answers from the files as they are when it is asked, at once: there is nobody to wait for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log: StoredLog | None = None

    def log_info(self, job: str, sink: str | None) -> LogInfo:  # noqa: ARG002
        """The log is told by its folder alone: neither a job nor a sink need be named."""
        log = self._log = StoredLog(self._folder)
        return LogInfo(log.id, sink or "", log.schema.serialize().to_pybytes(), log.first, log.next, log.ended)

    def log_read(self, job: str, sink: str, offset: int, bytes_max: int, wait_s: float) -> list[bytes]:  # noqa: ARG002
        if self._log is None or offset >= self._log.next:
            self._log = StoredLog(self._folder)
        if job != self._log.id:
            raise LogError(f"There is another results log in '{self._folder}' now; begin the query anew.")
        return self._log.read(offset, bytes_max)

    def close(self) -> None:
        """Nothing is held open."""
