"""Work spread over processes, with progress while it runs. Every process is gone when the work is done or given up."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing.sharedctypes import Synchronized
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_POLL_S = 0.2
_counters: Any = None


def report_progress(index: int, value: int) -> None:
    """Called inside a task: how far task number ``index`` is."""
    if _counters is not None:
        _counters[index] = value


def _adopt(counters: Synchronized[Any]) -> None:
    global _counters
    _counters = counters


def spread(
    task: Callable[[int, Item], Result], items: Sequence[Item], processes: int | None = None
) -> Iterator[tuple[list[int], int | None, Result | None]]:
    """Run ``task(index, item)`` for every item, in any order.

    Yields (progress of all tasks, index, result) for every result, and (progress, None, None) from time to time.
    """
    context = multiprocessing.get_context("spawn")  # a forked child could inherit a lock that a progress display holds
    counters: Any = context.Array("Q", max(1, len(items)), lock=False)
    workers = max(1, min(processes or os.cpu_count() or 1, len(items)))
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_adopt, initargs=(counters,))
    try:
        pending = {pool.submit(task, index, item): index for index, item in enumerate(items)}
        while pending:
            done, _ = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            for future in done:
                index = pending.pop(future)
                yield list(counters), index, future.result()
            if not done:
                yield list(counters), None, None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
