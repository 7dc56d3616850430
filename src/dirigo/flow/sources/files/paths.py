"""Which files a path means, and which of them each split reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dirigo.flow.errors import FlowError
from dirigo.flow.local_path import PathArgument, local_path


def files_at(path: PathArgument, what: str) -> list[Path]:
    """The file, or all files in the folder and below, in the order of their names.

    Names that start with a dot or an underscore are skipped: by custom they are no data, but marks and unfinished work.
    """
    place = local_path(path, what)
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise FlowError(f"{what}: there is no file or folder '{place}'; check the path.")
    found = [file for file in place.rglob("*") if not _is_hidden(file.relative_to(place)) and file.is_file()]
    if not found:
        raise FlowError(f"{what}: there are no files in the folder '{place}'; check the path.")
    return sorted(found, key=lambda file: file.relative_to(place).parts)


def dealt_out(files: Sequence[Path], wanted: int) -> list[list[Path]]:
    """The files of each split: split k of n reads the files k, k + n, k + 2n, ..."""
    count = min(wanted, len(files))
    return [list(files[number::count]) for number in range(count)]


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith((".", "_")) for part in relative.parts)
