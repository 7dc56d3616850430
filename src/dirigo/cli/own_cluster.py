"""A cluster that is there for one command alone: started for it, stopped after it, whatever happens in between."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import typer

from dirigo.cli.connecting import INTERRUPTED
from dirigo.cli.output import console, fail
from dirigo.spark.service import READY_S, AnyCluster, new_cluster


def check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        fail(f"a cluster of {workers} workers does nothing; ask for 1 or more")


@contextmanager
def own_cluster(**settings: Any) -> Iterator[AnyCluster]:
    """A cluster whose workers are ready. Ctrl-C, and a signal to end, stop it and end the command."""
    with _interruptible():
        cluster: AnyCluster | None = None
        try:
            with console.status("starting Spark ...") as status:
                cluster = new_cluster(**settings)
                status.update("waiting for workers ...")
                cluster.wait_ready(READY_S)
            yield cluster
        except KeyboardInterrupt:
            console.print("\ncancelled")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            if cluster is not None:
                with _not_interruptible(), console.status("stopping ..."):
                    cluster.stop()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Whoever ends this process with a signal wants nothing left behind, as after Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _not_interruptible() -> Iterator[None]:
    """Ctrl-C pressed twice must not leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {sign: signal.signal(sign, signal.SIG_IGN) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _interrupt(sign: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise KeyboardInterrupt
