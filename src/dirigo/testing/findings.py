"""What the conformance checks of sources and sinks have in common: sentences, open files, and rows that are compared."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import cloudpickle
import pyarrow as pa

from dirigo.flow.rows.unreadable import rows_told

T = TypeVar("T")

_SHOWN_MOST = 3
_LETTING_GO_S = 1.0
_LOOK_S = 0.01
_OPEN_FILES = Path("/proc/self/fd")


def fail(who: str, what: str) -> NoReturn:
    raise AssertionError(f"{who} {what}.")


def tried(who: str, what: str, call: Callable[[], T]) -> T:
    """What a call gives; one that raises breaks a promise."""
    try:
        return call()
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{who} cannot {what}: {type(error).__name__}: {error}") from error


def sent(who: str, thing: T) -> T:
    """The same as it comes to a worker."""
    advice = "it travels to the workers, so files, connections and locks belong into what it opens there"
    try:
        copy: T = cloudpickle.loads(cloudpickle.dumps(thing))
    except Exception as error:
        raise AssertionError(f"{who} cannot be pickled ({type(error).__name__}: {error}); {advice}.") from error
    return copy


class Held:
    """What this process has open: files and connections, where the system tells, and threads."""

    def __init__(self) -> None:
        self._files = self._now_open()
        self._threads = self._now_running()

    def require_no_more(self, who: str, when: str) -> None:
        """Refuse anything that was opened since and is open still.

        Others in this process, such as a server that a test talks to, may need a moment to close what is theirs.
        """
        until_s = time.monotonic() + _LETTING_GO_S
        while (files := self._now_open() - self._files) | (threads := self._now_running() - self._threads):
            if time.monotonic() >= until_s:
                if files:
                    fail(who, f"holds {', '.join(sorted(set(files)))} open {when}")
                fail(who, f"has the threads {', '.join(sorted(set(threads)))} running {when}")
            time.sleep(_LOOK_S)

    @staticmethod
    def _now_running() -> Counter[str]:
        return Counter(thread.name for thread in threading.enumerate())

    @staticmethod
    def _now_open() -> Counter[str]:
        found = Counter[str]()
        for link in _OPEN_FILES.iterdir() if _OPEN_FILES.exists() else ():
            try:
                found[str(link.readlink())] += 1
            except OSError:  # the listing itself
                continue
        return found


def multiset(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Rows without an order, and with their columns in any."""
    return Counter(map(row_text, rows))


def row_text(row: Mapping[str, Any]) -> str:
    """The same for rows that are the same."""
    return repr(sorted(row.items()))


def rows_in(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in rows_told(batch)]


def require_same(who: str, expected: Counter[str], found: Counter[str], when: str) -> None:
    """Refuse rows that are missing, or that are too many."""
    missing, extra = expected - found, found - expected
    if missing or extra:
        fail(
            who,
            f"does not have each row once {when}: {missing.total()} missing ({_some(missing)}), "
            f"{extra.total()} too many ({_some(extra)})",
        )


def _some(rows: Counter[str]) -> str:
    shown = list(rows.elements())[:_SHOWN_MOST]
    return (", ".join(shown) or "none") + (" ..." if rows.total() > len(shown) else "")
