"""The results logs of one job, and the note beside them by which a later run of the cluster knows whose they are."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from dirigo.runtime.control import Manifest
from dirigo.runtime.errors import ControlError
from dirigo.runtime.results.epochs import Epochs, channels_of
from dirigo.runtime.results.log import LogError, ResultLog
from dirigo.runtime.results.log import manifest as marks
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
    holds_back: bool = False


@dataclass
class Cut:
    """Where a snapshot cuts the logs of its job."""

    offsets: dict[str, int]  # by sink
    ended: frozenset[str]  # sinks of which nothing comes behind it
    is_synced: bool = False  # what lies before it is on disk


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
    holds_back: bool = False  # rows become visible with the snapshots of the job
    may_go_on: bool = False  # its job was running when its cluster ended, and may be resumed
    goes_on: bool = False  # in the next cluster: its end here is none on disk
    run: str = ""  # the generation of the job whose records are taken; its id is that of the job at first
    epochs: Epochs | None = None
    cuts: dict[int, Cut] = field(default_factory=dict)  # by snapshot, in their order; older ones than the committed are gone
    committing: Cut | None = None  # what is to become visible
    committed: int = 0  # the last snapshot that was
    is_told: bool = False  # that all partitions have ended

    @classmethod
    def begin(
        cls, folder: Path, job: str, name: str, manifest: Manifest, limits: Mapping[str, float], *, holds_back: bool = False
    ) -> Shelf:
        """Make the logs of a new job."""
        partitions = {sink: count for sink, (count, _) in manifest.sinks.items()}
        shelf = cls(job, name, folder / job, limits, partitions, holds_back=holds_back)
        try:
            for sink, (_, schema) in manifest.sinks.items():
                columns = pa.ipc.read_schema(pa.py_buffer(schema))
                shelf.logs[sink] = _open(shelf.folder / sink, limits, columns, holds_back=holds_back)
            shelf._begin_run(job, {})
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
            shelf.holds_back = note.holds_back
            shelf.may_go_on = note.ended_s is None and note.holds_back
            if note.ended_s is None and not note.holds_back:
                shelf.cut_short()
            found.append(shelf)
        return found

    def cut_short(self) -> None:
        """The job of an earlier run does not go on. What it held back is gone."""
        self.may_go_on = False
        self.open()
        if self.unreadable or not all(log.ended for log in self.logs.values()):
            self.failed = CUT_SHORT
        self.ended_s = (self.folder / _NOTE).stat().st_mtime
        self._settle()

    def resume(self, cuts: Mapping[str, int] | None, run: str, ended: Mapping[str, Collection[int]]) -> None:
        """The job of an earlier run goes on from a committed snapshot that cut its logs there, or from the beginning."""
        try:
            for sink in self.partitions:
                log = self.logs[sink] = _open(self.folder / sink, self.limits, cut=0 if cuts is None else cuts[sink])
                marks.mark_visible(log.folder, log.visible)
        except (LogError, OSError, KeyError) as error:
            self.let_go()
            self.logs.clear()
            if isinstance(error, LogError):
                raise
            why = f"sink '{error.args[0]}' is not in the snapshot" if isinstance(error, KeyError) else reason_of(error)
            raise LogError(f"The results of job '{self.job}' cannot be resumed ({why}); submit it again.") from error
        self.may_go_on = self.is_closed = self.is_settled = False
        self.ended_s = None
        self._begin_run(run, ended)
        self.committing = self._cut_here()

    def roll_back(self, cuts: Mapping[str, int] | None, run: str, ended: Mapping[str, Collection[int]]) -> None:
        """Take back what lies behind the cuts of a committed snapshot, or everything; another generation begins."""
        offsets = {sink: 0 if cuts is None else cuts.get(sink, -1) for sink in self.logs}
        pending = {} if self.committing is None else self.committing.offsets
        for sink, log in self.logs.items():  # all of them or none
            least = max(log.visible, pending.get(sink, 0))
            if not least <= offsets[sink] <= log.next:
                raise LogError(
                    f"The results of job '{self.job}', sink '{sink}', cannot go back to offset {offsets[sink]}: readers see "
                    f"what lies before {least}, and they end at {log.next}; submit the job again."
                )
        for sink, log in self.logs.items():
            log.truncate(offsets[sink])
        self._begin_run(run, ended)
        if cuts is not None:
            self.committing = self._cut_here()

    def _begin_run(self, run: str, ended: Mapping[str, Collection[int]]) -> None:
        """Take the records of a generation, in which these partitions of sinks have ended already."""
        self.run = run
        self.cuts.clear()
        self.is_told = False
        for sink, count in self.partitions.items():
            self.open_partitions[sink] = set(range(count)).difference(ended.get(sink, ()))
        if self.holds_back:
            open_channels = channels_of(self.open_partitions)
            if self.epochs is not None:
                self.epochs.close()
            self.epochs = Epochs(open_channels, self._append, self._note_cut, self._note_end, self.folder)

    def _append(self, sink: str, frame: bytes, rows: int) -> None:
        self.logs[sink].append(frame, rows)

    def _note_cut(self, snapshot: int) -> None:
        self.cuts[snapshot] = self._cut_here()

    def _note_end(self, sink: str, partition: int) -> None:
        self.open_partitions[sink].discard(partition)

    def _cut_here(self) -> Cut:
        return Cut({sink: log.next for sink, log in self.logs.items()}, frozenset(self.complete()))

    @property
    def have_all_ended(self) -> bool:
        """Whether nothing more will come from any partition of a sink."""
        return not any(self.open_partitions.values())

    def commit(self, snapshot: int) -> bool:
        """What lies before the cut of a snapshot is to become visible; False if there is no such cut."""
        if snapshot <= self.committed:
            return True
        cut = self.cuts.get(snapshot)
        if cut is None and self.have_all_ended:  # nothing comes any more that could be cut off
            cut = self._cut_here()
        if cut is None:
            return False
        self.committing = cut
        self.committed = snapshot
        self.cuts = {number: each for number, each in self.cuts.items() if number > snapshot}
        return True

    def commit_end(self) -> None:
        """The job has finished: all of it is to become visible, whatever snapshots were under way."""
        assert self.have_all_ended
        self.committing = self._cut_here()
        self.cuts.clear()

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
        note = _Note(self.name, self.partitions, self.ended_s, self.failed, self.holds_back)
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
        """Close the files, and forget what is held back."""
        if self.epochs is not None:
            self.epochs.close()
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
        if self.is_settled:
            return False
        return self.committing is not None or any(log.has_unsynced for log in self.logs.values())

    def complete(self) -> Iterator[str]:
        """Sinks whose partitions have all ended."""
        return (sink for sink, waiting in self.open_partitions.items() if not waiting)


def number_of(job: str) -> int:
    """The number of a job's submission, from its id: name~number."""
    number = job.rpartition("~")[2]
    return int(number) if number.isdecimal() else 0


def _open(
    folder: Path,
    limits: Mapping[str, float],
    schema: pa.Schema | None = None,
    *,
    holds_back: bool = False,
    cut: int | None = None,
) -> ResultLog:
    retain_bytes, retain_s = int(limits["retain_bytes"]), limits["retain_s"]
    log = ResultLog(folder, schema, retain_bytes=retain_bytes, retain_s=retain_s, holds_back=holds_back, cut=cut)
    if log.cut_bytes:
        _log.warning(
            "cut %d bytes off the results in %s, which were not whole when their writer ended", log.cut_bytes, folder
        )
    return log
