"""A cluster whose results log meets a bug as soon as all workers are there."""

from __future__ import annotations

from cli.process_cluster import ProcessCluster
from dirigo.runtime.results.server import LogServer


class BrokenLogCluster(ProcessCluster):
    """Named to the service by DIRIGO_CLUSTER_CLASS."""

    def wait_ready(self, timeout_s: float = 60) -> None:
        super().wait_ready(timeout_s)

        def broken(*_: object) -> None:
            raise RuntimeError("a bug of ours")

        LogServer._serve_waiting = broken  # type: ignore[assignment, method-assign]
