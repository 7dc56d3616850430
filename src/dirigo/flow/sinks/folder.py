"""The folder that a sink writes its files into: what may already be there, and when earlier results are replaced.

A sink that overwrites leaves the old files where they are when it is prepared, and notes their names in a hidden file.
Whoever shows the first new file carries that out. The names of new files have a part by chance, and are never on that list.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args
from uuid import uuid4

from dirigo.flow.errors import FlowError, OperatorFailure

Mode: TypeAlias = Literal["error", "append", "overwrite"]

_TO_REPLACE: Final = ".dirigo-to-replace.json"  # once there are new results
_REPLACING: Final = ".dirigo-replacing.json"  # there are, and some of the old files may be gone
_ADVICE: Final = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there",
    errno.ENOENT: "the folder must stay while the job runs",
    errno.EACCES: "let the workers write there",
    errno.EROFS: "let the workers write there",
}


class ResultFolder:
    """A folder of files called part-*<suffix>, and the sink that has it for itself."""

    def __init__(self, path: Path, suffix: str, mode: Mode, sink: str) -> None:
        if mode not in get_args(Mode):
            raise FlowError(f'{sink}: mode is {mode!r}; give "error", "append" or "overwrite".')
        self.path = path
        self.suffix = suffix
        self.mode: Mode = mode
        self._sink = sink

    def results(self) -> list[Path]:
        """The visible files of this kind, in the order of their names."""
        return sorted(self.path.glob(f"part-*{self.suffix}"))

    def make(self) -> None:
        """The folder and those above it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FlowError(
                f"{self._sink}: '{self.path}' cannot be made a folder ({_reason(error)}); choose another path."
            ) from error

    def prepare(self) -> None:
        """Make the folder ready. Earlier results stay, and are replaced later if the user said so.

        Files that are no results of this kind of sink are never removed, and are not mixed with new results either.
        """
        self.make()
        try:
            visible = sorted(entry for entry in self.path.iterdir() if not entry.name.startswith((".", "_")))
            if visible and self.mode == "error":
                raise FlowError(
                    f"{self._sink}: the folder '{self.path}' already has files in it; choose another one, or give "
                    'mode="append" or mode="overwrite".'
                )
            strange = [entry for entry in visible if not entry.match(f"part-*{self.suffix}")]
            if strange:
                raise FlowError(
                    f"{self._sink}: '{strange[0]}' is no earlier result of this kind and is not removed; "
                    "choose another folder."
                )
            self._finish_replacing()
            (self.path / _TO_REPLACE).unlink(missing_ok=True)  # of a job that never had results
            for entry in self.path.glob(f".part-*{self.suffix}.*"):
                if entry.is_file():  # left by a job that was killed
                    entry.unlink()
            old = [entry.name for entry in self.results()]
            if self.mode == "overwrite" and old:
                self._write_list({"for": uuid4().hex, "files": old})
        except OSError as error:
            raise FlowError(
                f"{self._sink}: the folder '{self.path}' cannot be written to ({_reason(error)}); choose another one."
            ) from error

    def replacement(self) -> str | None:
        """What names the list of files to replace, as it is now; None if there is none."""
        found = self._list(_TO_REPLACE) if self.mode == "overwrite" else None
        return None if found is None else str(found["for"])

    def replace_old(self, replacement: str | None) -> None:
        """There are new results: remove the old ones. ``replacement`` names the list that is meant.

        Another job may have made a list of its own by now, if the one that this writer belongs to was given up.
        """
        if self.mode != "overwrite":
            return
        if replacement is not None and self.replacement() == replacement:
            self.sync()  # the new ones must not be lost with the old ones
            with suppress(FileNotFoundError):  # another partition was faster
                (self.path / _TO_REPLACE).rename(self.path / _REPLACING)
        self._finish_replacing()

    def sync(self) -> None:
        """Have the names in the folder on the disk."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Have a disk that is full, read-only or gone end the job with one sentence."""
        try:
            yield
        except OSError as error:
            gone = not self.path.is_dir()
            advice = _ADVICE[errno.ENOENT] if gone else _ADVICE.get(error.errno or 0, "see to that folder")
            reason = "the folder is gone" if gone else _reason(error)
            raise OperatorFailure(f"sink '{self._sink}' cannot write to '{self.path}' ({reason}); {advice}.") from error

    def _finish_replacing(self) -> None:
        found = self._list(_REPLACING)
        if found is not None:
            for name in found["files"]:
                (self.path / name).unlink(missing_ok=True)
            (self.path / _REPLACING).unlink(missing_ok=True)

    def _list(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def _write_list(self, content: dict[str, Any]) -> None:
        unfinished = self.path / f"{_TO_REPLACE}.unfinished"
        with unfinished.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.path / _TO_REPLACE)
        self.sync()


def refuse_unknown(sink: str, options: dict[str, object]) -> None:
    """Say what took the place of an option that is no more."""
    if "overwrite" in options:
        raise FlowError(f'{sink}: overwrite= is now mode=; give mode="overwrite" to replace earlier results.')
    if options:
        raise TypeError(f"{sink}() has no option {next(iter(options))!r}")


def _reason(error: OSError) -> str:
    return (os.strerror(error.errno) if error.errno else str(error)).lower()
