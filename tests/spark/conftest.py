"""Spark sessions for tests. A classic one lives for a module: a process holds one at a time, and others want their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from dirigo.spark.session import OwnSession
from spark import standalone
from spark.standing import Stand

# A classic session is started by forking, which Connect's library, if it has been used in the process, would stand in the
# way of: it wants to go on in the child, which only becomes Java.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")


@pytest.fixture(scope="module")
def classic_session() -> Iterator[Any]:
    """A session inside this process, for up to three workers and queries beside them."""
    java_was_running = SparkContext._gateway is not None  # other tests of this process may leave it
    own = OwnSession(3, settings=standalone.QUICK_START)
    with own as spark:
        java = spark.sparkContext._gateway.proc
        yield spark
    assert java_was_running or java.returncode is not None, "the Java process outlived its session"


@pytest.fixture(scope="module")
def connect_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of Spark Connect, with a server of its own; it can live beside a classic one."""
    # Not SparkSession.builder.remote, which would turn the whole process to Connect.
    from pyspark.sql.connect.session import SparkSession

    with standalone.connect_server(tmp_path_factory.mktemp("connect")) as address:
        session = SparkSession.builder.remote(address).getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="module")
def standalone_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a standalone cluster of two machines, so to speak, with two cores each."""
    with standalone.cluster(tmp_path_factory.mktemp("standalone")) as master:
        yield master


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)
