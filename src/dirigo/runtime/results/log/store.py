"""The results log of one sink: record batches are appended at one end, retention drops whole old segments at the other.

The job never waits for readers. Records are on disk after ``sync``, and all but those in the last two segments in any case:
so a crash of the machine can only have torn these, and opening the log cuts off their tail as far as nothing in it is whole.
A record that is not whole and has whole ones behind it is no torn tail: nothing is cut, and whoever reads it is told. Nor is
one that was on disk: ``sync`` writes down how far it came.

A log that holds back, of a job with snapshots, shows readers what lies before ``visible``, which moves when a snapshot is
committed. What lies behind it may be taken back, and is dropped when the log is opened anew: so of that nothing is promised.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from dirigo.runtime.results.log import files, manifest
from dirigo.runtime.results.log.errors import LogError, gone, reason_of
from dirigo.runtime.results.log.record import header
from dirigo.runtime.results.log.segment import Segment, find_segments, read_frames

_SEGMENTS_MIN: Final = 8  # that the retained bytes are cut into
_UNSYNCED_SEGMENTS: Final = 2


@dataclass
class Unsynced:
    """What of a log is not on disk yet. ``sync`` it, from any thread; the log may go on meanwhile."""

    folder: Path
    descriptors: list[int]
    folders: list[Path]
    to: int | None  # the offset before which all is on disk then; None if that is known, or not to be written down

    def sync(self) -> None:
        try:
            for descriptor in self.descriptors:
                os.fdatasync(descriptor)
            for folder in self.folders:
                files.sync_folder(folder)
            if self.to is not None:
                manifest.mark_synced(self.folder, self.to)
        except OSError as error:
            raise _not_written(self.folder, error) from error
        finally:
            self.close()

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []


class ResultLog:
    """One log is one folder of segment files. Used by one thread.

    With a schema, the log is begun if the folder has none yet; without, it must be there. What a crash left behind the last
    whole record is cut off. At most `retain_bytes` are kept, and nothing older than `retain_s`, in whole segments: the one
    that is being written stays, and so does what readers cannot see yet.

    `holds_back`: begin a log that shows nothing before ``show``. `cut`: of such a log, keep what lies before this offset
    when it is opened; without one, that is what readers could see.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema | None = None,
        *,
        retain_bytes: int = 1 << 30,
        retain_s: float = 86_400,
        segment_bytes: int = 16 << 20,
        clock: Callable[[], float] = time.time,
        holds_back: bool = False,
        cut: int | None = None,
    ) -> None:
        if min(retain_bytes, segment_bytes) < 1 or retain_s <= 0:
            raise LogError("A results log retains at least 1 byte for more than 0 s, in segments of at least 1 byte.")
        self.folder = folder
        self._retain_bytes = retain_bytes
        self._retain_ms = int(retain_s * 1000)
        # Whole segments are dropped: of few large ones, little of what may be retained would be.
        self._segment_bytes = min(segment_bytes, max(1, retain_bytes // _SEGMENTS_MIN))
        self._clock = clock
        self.id, self.schema = _begin_or_load(folder, schema, holds_back)
        self._ended_at = manifest.ended_at(folder)
        self._synced_to = manifest.synced_to(folder)
        self._visible_to = manifest.visible_to(folder)  # None if nothing is held back
        self._hidden_bytes = 0  # of records that readers do not see yet
        if self._visible_to is not None:
            self._check_cut(cut)
            self._synced_to = self._visible_to if cut is None else cut
        self._descriptor: int | None = None
        self._before: int | None = None  # the segment before the active one, while it may not be on disk
        self._new_names = [folder, folder.parent, folder.parent.parent]  # folders whose entries may not be on disk
        self.unsynced_bytes = 0
        self.cut_bytes = 0  # of what was being written when the machine or the writer died
        try:
            self._segments = find_segments(folder)
            self._load()
            self._active = self._segments[-1]
            if self._ended_at is None:
                self._descriptor = self._open_active()
                os.ftruncate(self._descriptor, self._active.size)
                if len(self._segments) > 1:  # who wrote it may have been killed before it was on disk
                    self._before = files.open_file(self._segments[-2].path)
                if self._visible_to is not None:
                    self._drop_from(self._synced_to)
                    self._visible_to = self._synced_to
        except OSError as error:
            self.close()
            raise LogError(f"The results log in '{folder}' cannot be opened ({reason_of(error)}).") from error
        self._bytes = sum(segment.size for segment in self._segments)
        self._expire(int(clock() * 1000))

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended_at is not None

    @property
    def first(self) -> int:
        """The oldest offset that is still there."""
        return self._segments[0].first

    @property
    def next(self) -> int:
        """The offset that the next append gets."""
        return self._active.next if self._ended_at is None else self._ended_at

    @property
    def visible(self) -> int:
        """The offset before which readers see what there is."""
        return self.next if self._visible_to is None or self._ended_at is not None else self._visible_to

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._bytes

    @property
    def rows(self) -> int:
        """Rows that are still there."""
        return sum(segment.rows for segment in self._segments)

    def append(self, frame: bytes | memoryview, rows: int) -> int:
        """Add one record batch, as ``RecordBatch.serialize()`` makes it; returns its offset."""
        if self._descriptor is None or self.ended:
            raise LogError(
                f"The results log in '{self.folder}' {'has ended' if self.ended else 'is closed'}; begin another one."
            )
        now_ms = int(self._clock() * 1000)
        segment = self._active
        if segment.size >= self._segment_bytes:
            segment = self._roll()
        size = len(frame) if type(frame) is bytes else memoryview(frame).nbytes
        offset = segment.next
        head = header(rows, frame, size, offset, now_ms)
        try:
            written = os.pwritev(self._descriptor, (head, frame), segment.size)
            if written != len(head) + size:
                self._write_rest(memoryview(b"".join((head, frame))), written)
        except OSError as error:
            self._cut_active()
            raise _not_written(self.folder, error) from error
        segment.add(rows, size, now_ms)
        self._bytes += len(head) + size
        self.unsynced_bytes += len(head) + size
        if self._visible_to is not None:
            self._hidden_bytes += len(head) + size
        if len(self._segments) > 1:
            self._expire(now_ms)
        return offset

    @property
    def has_unsynced(self) -> bool:
        """Whether something is not on disk yet."""
        return self.unsynced_bytes > 0 or bool(self._new_names)

    def take_unsynced(self) -> Unsynced | None:
        """What is not on disk yet, for somebody who has the time to bring it there; None if all of it is."""
        if not self.has_unsynced:
            return None
        is_news = self._visible_to is None and self.next > self._synced_to
        taken = Unsynced(self.folder, [], self._new_names, self.next if is_news else None)
        try:
            for descriptor in (self._before, self._descriptor):
                if descriptor is not None:
                    taken.descriptors.append(os.dup(descriptor))
        except OSError as error:
            taken.close()
            raise _not_written(self.folder, error) from error
        self._new_names = []
        self.unsynced_bytes = 0
        if is_news:
            self._synced_to = self.next
        return taken

    def sync(self) -> None:
        """Have everything on disk."""
        taken = self.take_unsynced()
        if taken is not None:
            taken.sync()

    def end(self) -> None:
        """Nothing more will come, and all is on disk; readers learn of it, also after the log was opened anew.

        What a log holds back must have been shown or dropped before.
        """
        if self.ended:
            return
        assert self.visible == self.next, "what is held back is neither shown nor dropped"
        self.sync()
        end = self.next
        try:
            manifest.mark_ended(self.folder, end)
        except OSError as error:
            raise _not_written(self.folder, error) from error
        self._ended_at = end

    def read(self, offset: int, bytes_max: int) -> list[bytes]:
        """Frames from `offset` on, about `bytes_max` bytes of them, at least one if there is one."""
        if offset < self.first:
            raise gone(self.folder, offset, self.first)
        return read_frames(self.folder, self._segments, offset, self.visible, bytes_max)

    def show(self, to: int) -> None:
        """Let readers see what lies before this offset, which was noted on disk: see ``manifest.mark_visible``."""
        if self._visible_to is not None and to > self._visible_to:
            self._visible_to = to
            self._hidden_bytes = self._bytes_from(to)

    def truncate(self, offset: int) -> None:
        """Take back the records from this offset on, as if they had never come. Nothing that readers see is taken back.

        It needs no disk to be quick: if the machine crashes, opening the log drops what lies behind a snapshot anyway.
        """
        if not self.visible <= offset <= self.next:
            raise LogError(
                f"The results log in '{self.folder}' cannot go back to offset {offset}: readers see what lies before "
                f"{self.visible}, and it ends at {self.next}; submit the job again."
            )
        if offset < self.next:
            try:
                self._drop_from(offset)
            except OSError as error:
                raise _not_written(self.folder, error) from error

    def expire(self) -> None:
        """Drop what is too old. Appending does it too: this is for logs to which nothing comes any more."""
        self._expire(int(self._clock() * 1000))

    def close(self) -> None:
        """Take no more records. What is there can still be read."""
        for descriptor in (self._descriptor, self._before):
            if descriptor is not None:
                os.close(descriptor)
        self._descriptor = self._before = None

    def _check_cut(self, cut: int | None) -> None:
        if cut is None or cut == self._ended_at or (self._ended_at is None and cut >= (self._visible_to or 0)):
            return
        last = self._visible_to if self._ended_at is None else self._ended_at
        raise LogError(
            f"The results log in '{self.folder}' shows what lies before offset {last}, and the snapshot was at {cut}; "
            "submit the job again."
        )

    def _bytes_from(self, offset: int) -> int:
        """Bytes of the records from this offset on."""
        size = 0
        for segment in reversed(self._segments):
            if segment.next <= offset:
                break
            size += segment.size - (0 if offset <= segment.first else segment.starts[offset - segment.first])
        return size

    def _drop_from(self, offset: int) -> None:
        """Drop records, the newest file first: a crash in between leaves a shorter log, and no hole in it."""
        segments = self._segments
        if segments[-1].next <= offset:
            return
        while segments and segments[-1].first >= offset:
            segments[-1].path.unlink(missing_ok=True)
            del segments[-1]
        if segments:
            segments[-1].truncate(offset)
        if not segments or segments[-1].next < offset:  # what lay before it is damaged, and keeps its offsets
            segments.append(Segment.beginning(self.folder, offset))
        self._active = segments[-1]
        self._bytes = sum(segment.size for segment in segments)
        self._hidden_bytes = self._bytes_from(self._visible_to or 0)
        self.close()
        self._descriptor = self._open_active()
        os.ftruncate(self._descriptor, self._active.size)
        if len(segments) > 1:
            self._before = files.open_file(segments[-2].path)
        if self.folder not in self._new_names:  # a file that was removed may be made again
            self._new_names.append(self.folder)

    def _load(self) -> None:
        """Find the records. Only in the last two segments of a log that has not ended can one be torn: see ``_roll``."""
        segments = self._segments
        trusted = len(segments) if self._ended_at is not None else max(0, len(segments) - _UNSYNCED_SEGMENTS)
        tails = []  # bytes behind the last record of each; what else is wrong is said to whoever reads it
        for number, segment in enumerate(segments):
            before = segments[number + 1].first if number + 1 < len(segments) else self._ended_at
            tails.append(segment.load(with_frames=number >= trusted, before=before))
        if not segments:  # its only file is gone, if it had any records
            segments.append(Segment.beginning(self.folder, 0))
            tails.append(0)
        manifest.check_end(self.folder, self._ended_at, segments[-1].next)
        if self._ended_at is None:
            while len(segments) > trusted + 1 and not segments[-1].starts:
                is_cut = tails[-2] or segments[-2].next != segments[-1].first
                if not is_cut or segments[-2].next < self._synced_to:
                    break
                segments.pop().path.unlink()
                self.cut_bytes += tails.pop()
            if segments[-1].next < self._synced_to:
                self._begin_behind_damage()
            else:
                self.cut_bytes += tails[-1]

    def _begin_behind_damage(self) -> None:
        """Records that were on disk are gone: they keep their offsets, and whoever reads them is told."""
        last = self._segments[-1]
        os.close(files.open_file(last.path))  # it may be gone, and its name says where the log begins
        last.newest_ms = last.newest_ms or int(self._clock() * 1000)
        self._segments.append(Segment.beginning(self.folder, self._synced_to))

    def _expire(self, now_ms: int) -> None:
        segments = self._segments
        visible = self.visible
        while len(segments) > 1 and segments[0].next <= visible:
            is_too_much = self._bytes - self._hidden_bytes > self._retain_bytes
            if not is_too_much and segments[0].newest_ms >= now_ms - self._retain_ms:
                break
            try:
                segments[0].path.unlink(missing_ok=True)
            except OSError as error:
                raise LogError(f"'{segments[0].path}' cannot be removed ({reason_of(error)}); check its folder.") from error
            self._bytes -= segments[0].size
            del segments[0]

    def _roll(self) -> Segment:
        """Begin the next segment file, once the one before the active one is on disk: two at most are not."""
        before, self._active = self._active, Segment.beginning(self.folder, self._active.next)
        try:
            if self._before is not None:
                os.fdatasync(self._before)
            descriptor = self._open_active()
        except OSError as error:
            self._active = before
            raise _not_written(self.folder, error) from error
        if self._before is not None:
            os.close(self._before)
        self._before, self._descriptor = self._descriptor, descriptor
        if self.folder not in self._new_names:
            self._new_names.append(self.folder)
        self._segments.append(self._active)
        return self._active

    def _open_active(self) -> int:
        return files.open_file(self._active.path)

    def _write_rest(self, whole: memoryview, written: int) -> None:
        """The system took only a part, as it does with very large frames."""
        assert self._descriptor is not None
        while written < len(whole):
            written += os.pwrite(self._descriptor, whole[written:], self._active.size + written)

    def _cut_active(self) -> None:
        """Half a record was written: the next one would begin at its place, so only its remains are in the way."""
        assert self._descriptor is not None
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self._active.size)


def _not_written(folder: Path, error: OSError) -> LogError:
    return LogError(f"The results log in '{folder}' cannot be written ({reason_of(error)}); make room for it.")


def _begin_or_load(folder: Path, schema: pa.Schema | None, holds_back: bool) -> tuple[str, pa.Schema]:
    if schema is not None and not manifest.exists(folder):
        return manifest.create(folder, schema, holds_back=holds_back), schema
    identity, stored = manifest.load(folder)
    if schema is not None and not stored.equals(schema):
        raise LogError(f"The results log in '{folder}' has other columns than the ones to write; choose another folder.")
    return identity, stored
