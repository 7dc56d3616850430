"""Settings for all tests."""

import pytest
from hypothesis import settings

# A test says what holds, never how fast: a machine that is busy must not make it fail.
settings.register_profile("dirigo", deadline=None)
settings.load_profile("dirigo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a file that share a cluster or a Spark session run in one process, and do not start it twice."""
    for item in items:
        folder = item.path.parent.name
        if folder in ("spark", "runtime", "cli") or "oracle" in item.path.name or "structured" in item.path.name:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
