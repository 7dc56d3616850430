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
from dirigo.runtime.results.log.files import replace_file, sync_folder
from dirigo.runtime.snapshots.local_place import LocalPlace
from dirigo.runtime.snapshots.places import Place

_FOLDER: Final = "rows"
ATTEMPT_SUFFIX: Final = ".arrow"
_RELEASE_SUFFIX: Final = ".release"
_COVERED_SUFFIX: Final = ".covered"
_OWNER_SUFFIX: Final = ".owner"
_SEAL_LENGTH: Final = struct.Struct("<I")
_SEAL_MARK: Final = b"dirigo-sealed\n"  # at the very end of a file whose attempt is complete
_SEAL_BYTES_MOST: Final = 1 << 20
_LOOKS_MOST: Final = 10
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
        folder.mkdir(mode=0o700, exist_ok=True)  # but not those above it: without them the job is over
        sync_folder(folder.parent)
        # A file for each owner: one that comes late, after a later one, writes over nothing.
        replace_file(self._owner_file(owner), b"")
        self._require_ours()
        for earlier in [each for each in self._owners() if each < owner]:
            self._owner_file(earlier).unlink(missing_ok=True)
        self.first = self.next = 1
        self.last: dict[str, Commit] = {}  # by query
        self.releases: dict[int, KeptRelease] = {}
        self._look()

    def _look(self) -> None:
        """See what is there. An earlier owner may be removing what a snapshot covers, and has written that down before."""
        for tries_left in reversed(range(_LOOKS_MOST)):
            try:
                self._look_once()
                return
            except FileNotFoundError:
                if not tries_left:
                    raise

    def _look_once(self) -> None:
        covered = self._covered()
        self.first, self.last = covered.first, covered.last
        self.releases.clear()
        folder = self.folder
        numbers = sorted(int(path.name.removesuffix(_RELEASE_SUFFIX)) for path in folder.glob(f"*{_RELEASE_SUFFIX}"))
        for number in numbers:
            self.releases[number] = self._read(number)
        self._remove_covered()  # a crash may have left some
        self.next = max(self.releases, default=self.first - 1) + 1
        missing = set(range(self.first, self.next)) - self.releases.keys()
        if missing:
            raise FileNotFoundError(2, f"release {min(missing)} is missing", str(folder))
        for release in self.releases.values():
            self._remember(release)

    def _remember(self, release: KeptRelease) -> None:
        """In the order of their last micro-batches, in which queries are forgotten if they are too many."""
        self.last.pop(release.query, None)
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
            is_there = os.fstat(file.fileno()).st_nlink > 0
        if not is_there:  # who has the split now found it incomplete
            raise NotOursError
        sync_folder(self.folder)

    def sealed(self) -> list[tuple[Path, Seal]]:
        """The complete attempts that were not released. Others, which their tasks bring again, are removed."""
        released = {piece.file for release in self.releases.values() for piece in release.pieces}
        found = []
        for path in sorted(self.folder.glob(f"*{ATTEMPT_SUFFIX}")):
            if path.name in released:
                continue
            try:
                seal = _seal_of(path)
            except FileNotFoundError:  # whose task, or an earlier owner, has dropped it
                continue
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

    def release(self, release: KeptRelease) -> list[int]:
        """Have a release on disk; returns its number. It is there as a whole or not at all.

        An earlier owner may have had it on its way to the disk when the split was taken over. What came in this way counts:
        it is returned as well, and alone if this release is among it.
        """
        self._require_ours()
        first = self.next
        path = self._record(first)
        written = path.with_name(f".{path.name}.{'-'.join(map(str, self._owner))}")
        replace_file(written, msgspec.json.encode(release))
        try:
            while not self._link(written):
                self._require_ours()
                late = self._read(self.next)
                self._note(late)
                if late.query == release.query and late.commit.batch >= release.commit.batch:
                    return list(range(first, self.next))
        finally:
            with contextlib.suppress(OSError):
                written.unlink()
        self._note(release)
        return list(range(first, self.next))

    def _link(self, written: Path) -> bool:
        """Give a release the next number, durably; False if there is one with it, which stays."""
        path = self._record(self.next)
        try:
            os.link(written, path)
        except FileExistsError:  # unlike with a rename
            return False
        try:
            sync_folder(self.folder)
        except OSError:  # it will come again
            path.unlink()
            raise
        return True

    def _note(self, release: KeptRelease) -> None:
        self.releases[self.next] = release
        self._remember(release)
        self.next += 1

    def _read(self, number: int) -> KeptRelease:
        return msgspec.json.decode(self._record(number).read_bytes(), type=KeptRelease)

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

    def _require_ours(self) -> None:
        if max(self._owners()) > self._owner:
            raise NotOursError

    def _owners(self) -> list[Owner]:
        """Of which the last one has the split."""
        names = [path.name.removesuffix(_OWNER_SUFFIX).split("-") for path in self.folder.glob(f"[!.]*{_OWNER_SUFFIX}")]
        return [(int(generation), int(placement)) for generation, placement in names]

    def _owner_file(self, owner: Owner) -> Path:
        generation, placement = owner
        return self.folder / f"{generation}-{placement}{_OWNER_SUFFIX}"

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
