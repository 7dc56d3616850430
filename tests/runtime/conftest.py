"""Clusters for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from dirigo.runtime.errors import ControlError
from runtime.clusters import PATIENCE_S, LocalCluster


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two workers that all tests share which harm nobody."""
    with LocalCluster(tmp_path_factory.mktemp("logs")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The shared cluster; what a test leaves running there is cancelled."""
    before = [(worker.id, worker.incarnation) for worker in shared_cluster.workers()]
    yield shared_cluster
    for job in shared_cluster.client.jobs():
        if job.ended_s is None:
            with suppress(ControlError):  # it has ended meanwhile
                shared_cluster.client.cancel(job.id)
            shared_cluster.client.job_status(job.id, wait_s=PATIENCE_S)
    assert [(worker.id, worker.incarnation) for worker in shared_cluster.workers()] == before  # nobody was lost


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[..., LocalCluster]]:
    """A cluster of the test's own, which may come to harm."""
    with ExitStack() as stack:
        yield lambda workers=2: stack.enter_context(LocalCluster(tmp_path / "logs", workers))
