"""Connections without keys that announce huge frames, or come in crowds and say nothing: they take next to no memory.

What they send is written by hand: the greeting of the wire protocol, then a frame of a length that is only announced.
"""

from __future__ import annotations

import os
import socket as sockets
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dirigo.runtime.client.client import Client
from runtime.clusters import PATIENCE_S, LocalCluster, counting, until

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
ANNOUNCED_BYTES = 1 << 30
SENT_MIB_MOST = 192  # of what was announced, unless the other side hangs up before
GROWTH_MIB_MOST = 64
CROWD = 600
STAYING_MOST = 300
LISTENERS = ("controller", "log", "control lane", "data lane", "ingest")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("logs"), workers=1) as made:
        yield made


def listener(cluster: LocalCluster, name: str) -> tuple[str, int]:
    """The endpoint of a listening socket, and the process that listens."""
    access, hello = cluster.controller.access, cluster.controller.slots[0].hello
    assert hello is not None
    mine, workers = os.getpid(), hello.pid
    return {
        "controller": (access.controller, mine),
        "log": (access.log, mine),
        "control lane": (hello.control, workers),
        "data lane": (hello.data, workers),
        "ingest": (hello.ingest, workers),
    }[name]


def greeted(endpoint: str) -> sockets.socket:
    """A connection on which both sides have greeted; who they are comes next."""
    where = urlsplit(endpoint)
    assert where.hostname is not None
    assert where.port is not None
    stranger = sockets.create_connection((where.hostname, where.port), PATIENCE_S)
    stranger.sendall(GREETING)
    heard = b""
    while len(heard) < len(GREETING):
        more = stranger.recv(len(GREETING) - len(heard))
        assert more, "it greets back"
        heard += more
    return stranger


def resident_mib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20


def virtual_mib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE") >> 20


def is_cut(stranger: sockets.socket) -> bool:
    """Whether the other side has hung up."""
    stranger.setblocking(False)
    try:
        return not stranger.recv(1_000)
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("name", LISTENERS)
@pytest.mark.parametrize("flags", [0x06, 0x02], ids=["command", "message"])
def test_who_announces_a_huge_frame_is_cut_off(cluster: LocalCluster, name: str, flags: int) -> None:
    endpoint, pid = listener(cluster, name)
    before = resident_mib(pid), virtual_mib(pid)
    with greeted(endpoint) as stranger:
        stranger.sendall(bytes([flags]) + struct.pack(">Q", ANNOUNCED_BYTES))
        with suppress(ConnectionError):
            for _ in range(SENT_MIB_MOST):
                stranger.sendall(bytes(1 << 20))
        after = resident_mib(pid), virtual_mib(pid)
        assert after[0] - before[0] < GROWTH_MIB_MOST
        assert after[1] - before[1] < ANNOUNCED_BYTES >> 21, "nor is the memory set aside"
        until(lambda: is_cut(stranger), "it is cut off")


@pytest.mark.parametrize("name", ["controller", "data lane"])
def test_a_crowd_that_does_not_shake_hands_is_kept_small(cluster: LocalCluster, name: str) -> None:
    """The first of the crowd make room for those who come later, of whom some may have keys."""
    endpoint, pid = listener(cluster, name)
    flow, out = counting(f"beside-a-crowd-{name.replace(' ', '-')}", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    before = resident_mib(pid)
    with ExitStack() as crowd:
        strangers = []
        for _ in range(CROWD):
            strangers.append(crowd.enter_context(greeted(endpoint)))
            with suppress(ConnectionError):
                strangers[-1].sendall(b"\x06" + struct.pack(">Q", 100_000) + bytes(90_000))
        until(lambda: sum(map(is_cut, strangers)) >= CROWD - STAYING_MOST, "most are cut off", 8.0)
        assert resident_mib(pid) - before < GROWTH_MIB_MOST
        with Client(cluster.controller.access) as client:  # who has keys gets in beside them
            assert client.job_status(handle.id).state == "running"
        assert cluster.worker(0).state == "ready"
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in


@pytest.mark.acceptance
@pytest.mark.parametrize("name", LISTENERS)
def test_who_does_not_shake_hands_has_little_time(cluster: LocalCluster, name: str) -> None:
    endpoint, _ = listener(cluster, name)
    began_s = time.monotonic()
    with greeted(endpoint) as stranger:
        until(lambda: is_cut(stranger), "it is cut off")
    assert time.monotonic() - began_s < 25.0, "which is less than the 30 s of the socket library"
