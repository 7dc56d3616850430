"""A worker that joins a job later helps with it, whatever has become of the snapshot that the job went on from."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from dirigo.runtime.client.shipment import named_shipment
from dirigo.runtime.control import Install
from dirigo.runtime.snapshots.errors import DamagedSnapshot
from dirigo.runtime.transport.payload import Schemas
from dirigo.runtime.worker.installed_job import InstalledJob
from runtime.clusters import counting
from runtime.one_worker import SamePlan


@pytest.mark.parametrize("worker", [0, 1])
def test_who_only_helps_needs_nothing_of_a_snapshot_that_is_gone(tmp_path: Path, worker: int) -> None:
    flow, _ = counting()
    install = Install(
        "counting~1.1", pickle.dumps(SamePlan(flow)), (0,), 1 << 20, named_shipment("fifo")[0], str(tmp_path), restore=3
    )
    if worker in install.workers:
        with pytest.raises(DamagedSnapshot):
            InstalledJob(install, worker, lambda *_: None, Schemas(), tmp_path)
    else:
        assert not InstalledJob(install, worker, lambda *_: None, Schemas(), tmp_path).readers
