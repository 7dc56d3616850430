"""Settings for all tests."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import settings

# A test says what holds, never how fast: a machine that is busy must not make it fail.
settings.register_profile("dirigo", deadline=None)
settings.load_profile("dirigo")

# For every Java process of Spark that tests start, and commands that tests start, and the small program that works out how
# to start it: they live for a few small queries, for which thorough compiling costs more than it saves.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)

FOLDERS_THAT_SHARE = ("spark", "runtime", "cli", "commands")
FILES_THAT_SHARE = ("oracle", "structured", "summarising", "connections")


def shares(file: PurePosixPath) -> bool:
    """Whether the tests of a file share a cluster or a Spark session."""
    return file.parent.name in FOLDERS_THAT_SHARE or any(word in file.name for word in FILES_THAT_SHARE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file that shares something in one process, in their order, and do not start it twice."""
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # without types of its own
        """Gives processes whole files, or single tests. Marks of groups are lost with pytest 9.2, silently."""

        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return file if shares(PurePosixPath(file)) else nodeid

    return Sharing(config, log)
