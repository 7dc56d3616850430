"""The files of one partition of a sink: hidden while they are written, and visible when their rows may be seen.

A visible file is called part-<partition>-<number><suffix>. A hidden one has a dot in front of that, and behind it its
generation and a part by chance, so two writers of one partition never write to one file. To show a file is to rename it.

With snapshots, files are shown by commits. A cut names all files that are not known to be visible for good: those that
are hidden, and those that were renamed since the last cut. A rename is on the disk when a later cut was synced, so
that only commits of the last cut wait for the disk.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

from dirigo.flow.sinks.folder import ResultFolder


class PartFiles:
    """Names files, and shows them. What is in them is up to the writer."""

    def __init__(self, folder: ResultFolder, partition: int) -> None:
        self.folder = folder
        self.partition = partition
        self.is_held_back = False
        self.made = 0  # files of this job
        self._generation = 0
        self._chance = uuid4().hex[:8]
        self._number: int | None = None  # of the next file, once it is known
        self._at_hand: str | None = None  # the hidden name of the file that is being written
        self._pending: dict[str, bool] = {}  # hidden name -> whether it was shown; what the next cut names
        self._replacement = folder.replacement()
        self._has_replaced = False
        self._is_swept = False
        self._lost: OSError | None = None  # why rows of a file may not have come to the disk

    def hold_back(self, generation: int) -> None:
        self.is_held_back = True
        self._generation = generation

    # --- files ---------------------------------------------------------------------------------------------------------

    def begin(self) -> Path:
        """Where the next file is written, hidden."""
        name = f"{self._next_name()}.g{self._generation}-{self._chance}"
        self._at_hand = f".{name}"
        return self.folder.path / self._at_hand

    def begin_visible(self) -> Path:
        """Where the next file is written, for all to see."""
        name = self._next_name()
        self._count()
        return self.folder.path / name

    def complete(self) -> None:
        """The file that was begun is complete: show it, unless that is up to a commit."""
        assert self._at_hand is not None
        hidden, self._at_hand = self._at_hand, None
        self._count()
        if self.is_held_back:
            self._pending[hidden] = False
        else:
            if self.will_replace:
                _sync_file(self.folder.path / hidden)
            self._show(hidden)
            self.replace_old()

    def discard(self) -> None:
        """The file that was begun is not completed."""
        if self._at_hand is not None:
            (self.folder.path / self._at_hand).unlink(missing_ok=True)
            self._at_hand = None

    def replace_old(self) -> None:
        """There are results of this job to be seen, and they are on the disk if old ones go for them."""
        if not self._has_replaced:
            self._has_replaced = True
            self.folder.replace_old(self._replacement)

    @property
    def will_replace(self) -> bool:
        """Whether old results go once there are new ones."""
        return self._replacement is not None and not self._has_replaced

    def abandon(self) -> None:
        """Nothing more is shown: remove what this writer has hidden. Others may still need what they have."""
        self.discard()
        for hidden in self._pending:  # of one that was shown, the hidden name is gone
            (self.folder.path / hidden).unlink(missing_ok=True)
        self._pending = {}

    # --- cuts ----------------------------------------------------------------------------------------------------------

    def cut(self, *, is_last: bool) -> dict[str, Any]:
        if self._lost is not None:
            raise self._lost
        return {
            "hidden": [hidden for hidden, is_shown in self._pending.items() if not is_shown],
            "shown": [hidden for hidden, is_shown in self._pending.items() if is_shown],
            "next": self._number,
            "made": self.made,
            "is_last": is_last,
        }

    def sync(self, cut: dict[str, Any]) -> None:
        """Have the files of a cut on the disk, with their names."""
        for hidden in cut["hidden"]:
            try:
                self._sync(hidden)
            except FileNotFoundError:  # a commit of an earlier cut has shown it meanwhile
                self._sync(_visible(hidden))
        if cut["hidden"] or cut["shown"]:
            self.folder.sync()

    def _sync(self, name: str) -> None:
        try:
            _sync_file(self.folder.path / name)
        except FileNotFoundError:
            raise
        except OSError as error:  # which the system tells once, and the next time that all is well
            self._lost = error
            raise

    def commit(self, cut: dict[str, Any]) -> None:
        for hidden in cut["hidden"]:
            self._show(hidden)
            if hidden in self._pending:
                self._pending[hidden] = True
        for hidden in cut["shown"]:
            self._show(hidden)  # the rename may have been lost with the power
            self._pending.pop(hidden, None)
        if cut["made"]:  # of an empty result too: its first partition makes a file
            self.replace_old()
        if cut["is_last"]:  # nobody comes after it
            if cut["hidden"] or cut["shown"]:
                self.folder.sync()
            self._sweep(None)

    def resume(self, cut: dict[str, Any]) -> None:
        self.commit(cut)
        self._pending = dict.fromkeys([*cut["hidden"], *cut["shown"]], True)
        self._number = cut["next"]
        self.made = cut["made"]
        self._sweep(self._generation)

    # --- names ---------------------------------------------------------------------------------------------------------

    def _next_name(self) -> str:
        if not self._is_swept:
            self.folder.make()
            self._sweep(self._generation)
        if self._number is None:
            self._number = self._first_number()
        chance = "" if self.folder.mode == "error" else f"-{self._chance}"
        # The number has leading zeros so that the files come in the order of their names.
        return f"part-{self.partition}-{self._number:05}{chance}{self.folder.suffix}"

    def _count(self) -> None:
        assert self._number is not None
        self._number += 1
        self.made += 1

    def _first_number(self) -> int:
        """Behind those of earlier jobs."""
        pattern = re.compile(rf"part-{self.partition}-(\d+)")
        found = [int(name[1]) for file in self.folder.results() if (name := pattern.match(file.name))]
        return max(found, default=-1) + 1

    def _show(self, hidden: str) -> None:
        try:
            (self.folder.path / hidden).replace(self.folder.path / _visible(hidden))
        except FileNotFoundError:
            # It was shown before, and perhaps taken away since by whoever reads the results.
            if not self.folder.path.is_dir():
                raise

    def _sweep(self, before: int | None) -> None:
        """Remove what earlier generations have hidden here, or all have. A later one may be at work already."""
        self._is_swept = True
        for file in self.folder.path.glob(f".part-{self.partition}-*{self.folder.suffix}.g*"):
            generation = re.search(r"\.g(\d+)-[0-9a-f]+$", file.name)
            if generation is not None and (before is None or int(generation[1]) < before):
                file.unlink(missing_ok=True)


def _visible(hidden: str) -> str:
    return hidden[1:].rpartition(".")[0]


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
