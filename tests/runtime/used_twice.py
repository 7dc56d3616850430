"""A process that hosts one worker after another, in a module of its own: a new process has to be able to import it."""

from __future__ import annotations

import time

from dirigo.runtime import control
from dirigo.runtime.worker import process as worker_process
from dirigo.runtime.worker.process import run_worker


def work_twice(leave_after_s: float, first: control.Bootstrap, second: control.Bootstrap) -> None:
    """What a host does that keeps its processes: Spark, for one."""
    worker_process._LEAVE_AFTER_S = leave_after_s
    run_worker(first)
    run_worker(second)
    time.sleep(2 * leave_after_s)  # the process does other things
