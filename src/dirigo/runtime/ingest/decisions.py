"""Which attempts are the winners of a micro-batch, written down before any of them is released.

A micro-batch goes to several splits, perhaps at several workers, which cannot release it at one moment. If some have, and
then somebody is lost, the rest must still be of the same attempts: others would have cut its rows in another way. So whoever
carries out a commit first decides, and what was decided is carried out again after any loss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from dirigo.runtime.results.log.files import make_durable_folder, replace_file, sync_folder

_SUFFIX: Final = ".decision"
_QUERIES_REMEMBERED: Final = 4096  # as many as a split does


class Decision(msgspec.Struct, frozen=True):
    """The last micro-batch of a query whose commit was begun."""

    source: str
    query: str
    batch: int
    attempts: tuple[tuple[int, str], ...]  # (split, attempt)


class Decisions:
    """Those of one job, in a folder of their own. Used by one thread, but for ``all``."""

    def __init__(self, folder: Path) -> None:
        """Raises ``OSError`` if the folder cannot be used, and ``ValueError`` if what is in it was not written by this."""
        self._folder = folder
        make_durable_folder(folder)
        paths = sorted(folder.glob(f"[!.]*{_SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)  # the oldest goes first
        found = [msgspec.json.decode(path.read_bytes(), type=Decision) for path in paths]
        self._last = {(each.source, each.query): each for each in found}

    def last(self, source: str, query: str) -> Decision | None:
        return self._last.get((source, query))

    def all(self) -> list[Decision]:
        """After a loss, each of them has to be carried out again. Splits that have released it say so."""
        return list(self._last.values())

    def decide(self, source: str, query: str, batch: int, attempts: Sequence[tuple[int, str]]) -> Decision | None:
        """What to release, which is on disk then: these attempts, or those that were decided on before.

        None if a later micro-batch of the query was decided on already: then this one was released.
        """
        last = self._last.get((source, query))
        if last is not None and batch <= last.batch:
            return last if batch == last.batch else None
        decision = Decision(source, query, batch, tuple(attempts))
        replace_file(self._file(source, query), msgspec.json.encode(decision))
        sync_folder(self._folder)
        self._last.pop((source, query), None)
        self._last[source, query] = decision
        if len(self._last) > _QUERIES_REMEMBERED:
            oldest = next(iter(self._last))
            self._file(*oldest).unlink(missing_ok=True)
            del self._last[oldest]
        return decision

    def forget(self, decision: Decision) -> None:
        """No split has released anything of it, or can: the micro-batch may come with other attempts."""
        if self._last.get((decision.source, decision.query)) is decision:
            self._file(decision.source, decision.query).unlink(missing_ok=True)
            sync_folder(self._folder)
            del self._last[decision.source, decision.query]

    def _file(self, source: str, query: str) -> Path:
        name = hashlib.sha256(msgspec.json.encode((source, query))).hexdigest()[:32]
        return self._folder / f"{name}{_SUFFIX}"
