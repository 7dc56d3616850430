"""A worker that gives others up soon, so that a test need not wait."""

from __future__ import annotations

from dirigo.runtime.control import Bootstrap
from dirigo.runtime.transport import peers
from dirigo.runtime.worker.process import run_worker

LOST_AFTER_S = 3.0  # longer than a packet that got lost takes to be sent again


def run_impatient_worker(bootstrap: Bootstrap) -> None:
    peers.LOST_AFTER_S = LOST_AFTER_S
    peers.REPORT_AGAIN_S = 0.5
    run_worker(bootstrap)
