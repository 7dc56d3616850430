"""A cluster that is there for one command alone: started for it, stopped after it, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dirigo.cli.display.output import console, fail
from dirigo.cli.signals import shield
from dirigo.spark.service.service import READY_S, AnyCluster, new_cluster


def check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        fail(f"a cluster of {workers} workers does nothing; ask for 1 or more")


@contextmanager
def own_cluster(**settings: Any) -> Iterator[AnyCluster]:
    """A cluster whose workers are ready; it is stopped whatever happens."""
    cluster: AnyCluster | None = None
    try:
        with console.status("starting Spark ...") as status:
            cluster = new_cluster(**settings)
            status.update("waiting for workers ...")
            cluster.wait_ready(READY_S)
        yield cluster
    finally:
        if cluster is not None:
            with shield(), console.status("stopping ..."):
                cluster.stop()
