"""The folder that a sink writes its files into: what may already be there, and what may be removed."""

from __future__ import annotations

from pathlib import Path

from dirigo.flow.errors import FlowError


def prepare_folder(folder: Path, pattern: str, overwrite: bool, what: str) -> None:
    """Make the folder ready. Earlier results, which are called like `pattern`, go only if the user said so.

    Files that are no results of this kind of sink are never removed, and are not mixed with new results either.
    """
    make_folder(folder, what)
    visible = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    strange = [entry for entry in visible if not entry.match(pattern)]
    if visible and not overwrite:
        raise FlowError(
            f"{what}: the folder '{folder}' already has files in it; choose another one, or give overwrite=True."
        )
    if strange:
        raise FlowError(
            f"{what}: '{strange[0]}' is no earlier result of this kind and is not removed; choose another folder."
        )
    unfinished = [entry for entry in folder.glob(f".{pattern}.*") if overwrite and entry.is_file()]
    for entry in [*visible, *unfinished]:
        entry.unlink()


def make_folder(folder: Path, what: str) -> None:
    """The folder and those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FlowError(f"{what}: '{folder}' cannot be made a folder ({reason}); choose another path.") from error
