"""Staged rows that outlive the worker which took them in: what is written down beside them, on disk before it is confirmed.

The folder of a split has the files of its attempts, each with a note of its seal behind the rows; a numbered record per
release, which says in which order the attempts are read; and how far the releases are covered by a committed snapshot.
Spark brings a micro-batch no second time once its commit was confirmed. So what was released is kept until then, and the
last micro-batch of each query is remembered for ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from pathlib import Path
from typing import Final

import msgspec

from dirigo.runtime.ingest.pusher import Arrival
from dirigo.runtime.results.log.files import make_folder, replace_file, sync_folder
from dirigo.runtime.snapshots.local_place import LocalPlace
from dirigo.runtime.snapshots.places import Place

_FOLDER: Final = "rows"
ATTEMPT_SUFFIX: Final = ".arrow"
_RELEASE_SUFFIX: Final = ".release"
_COVERED_SUFFIX: Final = ".covered"
_OWNER: Final = "owner"
_SEAL_LENGTH: Final = struct.Struct("<I")
_SEAL_MARK: Final = b"dirigo-sealed\n"  # at the very end of a file whose attempt is complete
_SEAL_BYTES_MOST: Final = 1 << 20
Owner = tuple[int, int]  # a generation of the job, and which placement of it


class Seal(msgspec.Struct, frozen=True):
    """A complete attempt, as it was told when it was sealed."""

    attempt: str
    pushes: int
    rows: int
    size: int  # bytes before this note
    newest_ms: int | None = None
    oldest_ms: int | None = None
    reached_ms: int | None = None
    arrival: Arrival | None = None


class Commit(msgspec.Struct, frozen=True):
    """The last micro-batch of a query that was released."""

    batch: int
    began_ms: int | None
    released_ms: int


class Piece(msgspec.Struct, frozen=True):
    """The rows of one attempt."""

    file: str
    rows: int
    size: int


class KeptRelease(msgspec.Struct, frozen=True):
    """What one micro-batch brought to a split."""

    query: str
    commit: Commit
    pieces: tuple[Piece, ...]
    reached_ms: int | None = None
    arrived_s: float | None = None


class _Covered(msgspec.Struct, frozen=True):
    """What releases that a committed snapshot covers have left behind."""

    first: int  # the number of the first release that is not covered
    last: dict[str, Commit]  # by query


class NotOursError(OSError):
    """A later reader has the split now."""

    def __init__(self) -> None:
        super().__init__("a later generation of the job reads the split now")


def rows_folder(place: Place) -> Path | None:
    """Where rows are kept that are pushed into the job with this folder of snapshots; None if they cannot be."""
    return place.path / _FOLDER if isinstance(place, LocalPlace) else None


class KeptFiles:
    """The folder of one split, which has one owner at a time. Its releases are numbered from 1 on."""

    def __init__(self, folder: Path, owner: Owner) -> None:
        """Take the folder over. Whoever had it before releases nothing any more, however late it notices."""
        self.folder = folder
        self._owner = owner
        make_folder(folder)
        if self._current_owner() > owner:
            raise NotOursError
        replace_file(folder / _OWNER, msgspec.json.encode(owner))
        covered = self._covered()
        self.first = covered.first
        self.last = covered.last
        self.releases: dict[int, KeptRelease] = {}
        numbers = sorted(int(path.name.removesuffix(_RELEASE_SUFFIX)) for path in folder.glob(f"*{_RELEASE_SUFFIX}"))
        for number in numbers:
            self.releases[number] = msgspec.json.decode(self._record(number).read_bytes(), type=KeptRelease)
        self._remove_covered()  # a crash may have left some
        self.next = max(self.releases, default=self.first - 1) + 1
        missing = set(range(self.first, self.next)) - self.releases.keys()
        if missing:
            raise FileNotFoundError(2, f"release {min(missing)} is missing", str(folder))
        for release in self.releases.values():
            self.last[release.query] = release.commit

    def path_of(self, attempt: str) -> Path:
        """Where the rows of an attempt go, by a name that any file may have."""
        return self.folder / f"{hashlib.sha256(attempt.encode()).hexdigest()[:32]}{ATTEMPT_SUFFIX}"

    def seal(self, path: Path, seal: Seal) -> None:
        """Write behind the rows of an attempt that it is complete, and have it on disk."""
        note = msgspec.json.encode(seal)
        with path.open("r+b") as file:
            if file.seek(0, os.SEEK_END) != seal.size:
                raise NotOursError
            file.write(note + _SEAL_LENGTH.pack(len(note)) + _SEAL_MARK)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.folder)

    def sealed(self) -> list[tuple[Path, Seal]]:
        """The complete attempts that were not released. Others, which their tasks bring again, are removed."""
        released = {piece.file for release in self.releases.values() for piece in release.pieces}
        found = []
        for path in sorted(self.folder.glob(f"*{ATTEMPT_SUFFIX}")):
            if path.name in released:
                continue
            seal = _seal_of(path)
            if seal is None or path != self.path_of(seal.attempt):
                path.unlink(missing_ok=True)
            else:
                found.append((path, seal))
        return found

    def seal_of(self, attempt: str) -> Seal | None:
        """Of an attempt that is complete, whoever wrote it; None of others."""
        try:
            return _seal_of(self.path_of(attempt))
        except FileNotFoundError:
            return None

    def release(self, release: KeptRelease) -> int:
        """Have a release on disk; returns its number. It is there as a whole or not at all."""
        if self._current_owner() != self._owner:
            raise NotOursError
        number = self.next
        path = self._record(number)
        written = path.with_name(f".{path.name}.{'-'.join(map(str, self._owner))}")
        replace_file(written, msgspec.json.encode(release))
        try:
            os.link(written, path)  # fails if there is one, unlike a rename
        except FileExistsError as error:
            raise NotOursError from error
        finally:
            with contextlib.suppress(OSError):
                written.unlink()
        try:
            sync_folder(self.folder)
        except OSError:  # it will come again
            path.unlink()
            raise
        self.next = number + 1
        self.releases[number] = release
        self.last[release.query] = release.commit
        return number

    def forget_before(self, first: int) -> None:
        """A committed snapshot covers the releases before this one: they will not be read again."""
        if first <= self.first:
            return
        # By its number: whoever had the split before, and hears late of its snapshot, writes over nothing that is newer.
        replace_file(self.folder / f"{first:012d}{_COVERED_SUFFIX}", msgspec.json.encode(_Covered(first, self.last)))
        sync_folder(self.folder)
        self.first = first
        self._remove_covered()

    def _remove_covered(self) -> None:
        for number in [each for each in self.releases if each < self.first]:
            for piece in self.releases.pop(number).pieces:
                (self.folder / piece.file).unlink(missing_ok=True)
            self._record(number).unlink(missing_ok=True)
        for path in self._covered_files()[:-1]:
            path.unlink(missing_ok=True)

    def _record(self, number: int) -> Path:
        return self.folder / f"{number:012d}{_RELEASE_SUFFIX}"

    def _current_owner(self) -> Owner:
        try:
            generation, placement = msgspec.json.decode((self.folder / _OWNER).read_bytes(), type=Owner)
        except FileNotFoundError:
            return (-1, -1)
        return generation, placement

    def _covered_files(self) -> list[Path]:
        return sorted(self.folder.glob(f"[!.]*{_COVERED_SUFFIX}"))

    def _covered(self) -> _Covered:
        files = self._covered_files()
        return msgspec.json.decode(files[-1].read_bytes(), type=_Covered) if files else _Covered(1, {})


def _seal_of(path: Path) -> Seal | None:
    """The note behind the rows of an attempt; None if it was not complete."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        tail = _SEAL_LENGTH.size + len(_SEAL_MARK)
        if size < tail:
            return None
        file.seek(size - tail)
        head, mark = file.read(_SEAL_LENGTH.size), file.read()
        (length,) = _SEAL_LENGTH.unpack(head)
        if mark != _SEAL_MARK or not 0 < length <= min(_SEAL_BYTES_MOST, size - tail):
            return None
        file.seek(size - tail - length)
        try:
            seal = msgspec.json.decode(file.read(length), type=Seal)
        except msgspec.MsgspecError:
            return None
        return seal if seal.size == size - tail - length else None
