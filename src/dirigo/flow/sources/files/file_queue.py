"""The files of one split, one after the other: which is at hand, and how to come back to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dirigo.flow.errors import FlowError


class FileQueue:
    """Its position is which file is at hand, and where in that file, which is up to whoever reads it.

    The name of the file is kept as well, so that files that were added or removed since are noticed.
    """

    def __init__(self, files: Sequence[Path], what: str) -> None:
        self._files = list(files)
        self._index = 0
        self._what = what

    @property
    def at_hand(self) -> Path | None:
        """None if all are read."""
        return self._files[self._index] if self._index < len(self._files) else None

    def go_on(self) -> None:
        """The file at hand is read."""
        self._index += 1

    def clear(self) -> None:
        self._files.clear()

    def position(self, within: Any) -> list[Any]:
        """``within``: where in the file at hand; None for its beginning."""
        return [self._index, str(self.at_hand or ""), within]

    def seek(self, position: Sequence[Any]) -> Any:
        """Where in the file at hand to go on."""
        self._index, name, within = position
        if name != str(self.at_hand or ""):
            raise FlowError(
                f"{self._what}: the files have changed since they were read up to '{name or 'the last one'}'; put them back"
                " as they were."
            )
        return within


def changed_file(file: Path, what: str) -> FlowError:
    """Of a file that is not what it was when a part of it was read."""
    return FlowError(f"{what}: '{file}' has changed since a part of it was read; put it back as it was.")
