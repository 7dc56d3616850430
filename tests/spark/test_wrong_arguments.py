"""What the calls about services say to arguments of another kind. Nothing is started for it."""

from __future__ import annotations

from pathlib import Path

import pytest

import dirigo as dg
from runtime.pretenders import PretendedCluster


def test_they_name_what_they_take(tmp_path: Path) -> None:
    with pytest.raises(dg.ControlError, match=r"connect takes the name of a service, such as connect\('dirigo'\), not 5\."):
        dg.connect(5)  # type: ignore[arg-type]
    with pytest.raises(dg.ControlError, match=r"register takes a Spark session, not None\."):
        dg.register(None)
    with PretendedCluster(tmp_path / "logs", 1) as cluster:
        for workers in ("2", 1.5, True):
            with pytest.raises(dg.ControlError, match=rf"a pool has a whole number of workers, not {workers!r}\."):
                cluster.client.resize(workers)  # type: ignore[arg-type]
