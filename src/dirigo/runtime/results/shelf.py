"""The results logs of one job, and the note beside them by which a later run of the cluster knows whose they are."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from dirigo.runtime.control import Manifest
from dirigo.runtime.errors import ControlError
from dirigo.runtime.results.log import LogError, ResultLog
from dirigo.runtime.results.log.errors import reason_of
from dirigo.runtime.results.log.files import replace_file, sync_folder

_log = logging.getLogger(__name__)
_NOTE: Final = "~job.json"  # which is no name of a sink
CUT_SHORT: Final = "the cluster ended before the job did"


class _Note(msgspec.Struct, frozen=True):
    """What the logs themselves do not tell."""

    name: str
    partitions: dict[str, int]  # of each sink
    ended_s: float | None = None
    failed: str | None = None


@dataclass
class Shelf:
    """The logs of one job. Those of an earlier run are opened when somebody wants to read them."""

    job: str
    name: str
    folder: Path
    limits: Mapping[str, float]
    partitions: dict[str, int]
    logs: dict[str, ResultLog] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)  # sinks whose log cannot be opened, and why
    open_partitions: dict[str, set[int]] = field(default_factory=dict)
    failed: str | None = None
    is_closed: bool = False  # nothing more is taken
    is_settled: bool = False  # and all of it is on disk
    ended_s: float | None = None

    @classmethod
    def begin(cls, folder: Path, job: str, name: str, manifest: Manifest, limits: Mapping[str, float]) -> Shelf:
        """Make the logs of a new job."""
        partitions = {sink: count for sink, (count, _) in manifest.sinks.items()}
        shelf = cls(job, name, folder / job, limits, partitions)
        try:
            for sink, (count, schema) in manifest.sinks.items():
                shelf.logs[sink] = _open(shelf.folder / sink, limits, pa.ipc.read_schema(pa.py_buffer(schema)))
                shelf.open_partitions[sink] = set(range(count))
            shelf.note()
        except BaseException:  # there is no such job, so nothing of it stays
            shelf.remove()
            raise
        return shelf

    @classmethod
    def find(cls, folder: Path, limits: Mapping[str, float]) -> list[Shelf]:
        """The jobs of earlier runs, oldest first. One that was running when its cluster ended is looked through now."""
        found = []
        for place in sorted((each for each in folder.glob("*~*") if each.is_dir()), key=lambda each: number_of(each.name)):
            try:
                note = msgspec.json.decode((place / _NOTE).read_bytes(), type=_Note)
            except (OSError, msgspec.MsgspecError) as error:
                _log.warning("the results in %s are of no known job (%s); remove the folder", place, error)
                continue
            shelf = cls(place.name, note.name, place, limits, note.partitions, failed=note.failed)
            shelf.is_closed = shelf.is_settled = True
            shelf.ended_s = note.ended_s
            if note.ended_s is None:
                shelf.open()
                if shelf.unreadable or not all(log.ended for log in shelf.logs.values()):
                    shelf.failed = CUT_SHORT
                shelf.ended_s = (place / _NOTE).stat().st_mtime
                shelf._settle()
            found.append(shelf)
        return found

    def open(self) -> None:
        """Open the logs of an earlier run, to be read only."""
        for sink in self.partitions:
            if sink in self.logs or sink in self.unreadable:
                continue
            try:
                self.logs[sink] = _open(self.folder / sink, self.limits)
            except LogError as error:
                _log.warning("the results of job %s, sink %s, cannot be read: %s", self.job, sink, error)
                self.unreadable[sink] = str(error)

    def _settle(self) -> None:
        """Write down how the job ended, and where its logs do: what is damaged later does not pass for a torn tail.

        If that cannot be, as on a full disk, its results are read all the same, and the next start tries it again.
        """
        try:
            self.note()
            for log in self.logs.values():
                log.end()
        except LogError as error:
            _log.warning("how job %s ended is not on disk: %s", self.job, error)
        self.let_go()

    def note(self) -> None:
        """Write down what the logs do not tell."""
        if not self.partitions:
            return
        note = _Note(self.name, self.partitions, self.ended_s, self.failed)
        try:
            replace_file(self.folder / _NOTE, msgspec.json.encode(note))
            sync_folder(self.folder)
        except OSError as error:
            raise LogError(
                f"The results of job '{self.job}' cannot be noted in '{self.folder}' ({reason_of(error)}); free space in "
                "that folder, or start the cluster with another one for results."
            ) from error

    def close(self, failed: str | None) -> None:
        """Nothing more is taken."""
        if not self.is_closed:
            self.failed = failed
            self.is_closed = True
            self.ended_s = time.time()

    def let_go(self) -> None:
        """Close the files."""
        for log in self.logs.values():
            log.close()

    def remove(self) -> None:
        self.let_go()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self, sink: str) -> ResultLog:
        """The log of a sink that the job has; a sentence if it cannot be read."""
        if not self.logs and not self.unreadable:
            self.open()
            self.let_go()
        if sink in self.unreadable:
            raise ControlError(self.unreadable[sink])
        return self.logs[sink]

    def has_unsynced(self) -> bool:
        return not self.is_settled and any(log.has_unsynced for log in self.logs.values())

    def complete(self) -> Iterator[str]:
        """Sinks whose partitions have all ended."""
        return (sink for sink, waiting in self.open_partitions.items() if not waiting)


def number_of(job: str) -> int:
    """The number of a job's submission, from its id: name~number."""
    number = job.rpartition("~")[2]
    return int(number) if number.isdecimal() else 0


def _open(folder: Path, limits: Mapping[str, float], schema: pa.Schema | None = None) -> ResultLog:
    log = ResultLog(folder, schema, retain_bytes=int(limits["retain_bytes"]), retain_s=limits["retain_s"])
    if log.cut_bytes:
        _log.warning(
            "cut %d bytes off the results in %s, which were not whole when their writer ended", log.cut_bytes, folder
        )
    return log
