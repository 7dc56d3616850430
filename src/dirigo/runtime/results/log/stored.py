"""A results log as it lies on disk now, for whoever only reads it: nothing is changed, and its writer may be alive."""

from __future__ import annotations

from pathlib import Path

from dirigo.runtime.results.log import manifest
from dirigo.runtime.results.log.errors import LogError, gone, reason_of
from dirigo.runtime.results.log.segment import Segment, find_segments, read_frames

_ATTEMPTS = 5


class StoredLog:
    """What was in the folder when this was made. A record that is being written is not there yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id, self.schema = manifest.load(folder)
        self._ended_at = manifest.ended_at(folder)  # before the records: none comes after the end
        self._synced_to = manifest.synced_to(folder)
        self._visible_to = manifest.visible_to(folder)  # before the records, too: those that lie before it do not change
        self._segments = _load(folder, self._ended_at) or [Segment.beginning(folder, 0)]
        manifest.check_end(folder, self._ended_at, self._segments[-1].next)

    @property
    def ended(self) -> bool:
        return self._ended_at is not None

    @property
    def first(self) -> int:
        return self._segments[0].first

    @property
    def next(self) -> int:
        if self._ended_at is not None:
            return self._ended_at
        if self._visible_to is not None:
            return self._visible_to
        return max(self._segments[-1].next, self._synced_to)

    def read(self, offset: int, bytes_max: int) -> list[bytes]:
        """Frames from `offset` on, at least one if there is one."""
        if offset < self.first:
            raise gone(self.folder, offset, self.first)
        return read_frames(self.folder, self._segments, offset, self.next, bytes_max)


def _load(folder: Path, ended_at: int | None) -> list[Segment]:
    for _ in range(_ATTEMPTS):
        segments = find_segments(folder)
        try:
            for number, segment in enumerate(segments):
                before = segments[number + 1].first if number + 1 < len(segments) else ended_at
                segment.load(with_frames=False, before=before)
        except FileNotFoundError:  # retention removed one meanwhile
            continue
        except OSError as error:
            raise LogError(f"The results log in '{folder}' cannot be read ({reason_of(error)}).") from error
        return segments
    raise LogError(f"The results log in '{folder}' changes too fast to be read from disk; read it through its cluster.")
