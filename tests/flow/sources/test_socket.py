"""Lines from a server, here one on the same machine."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dirigo.flow.errors import FlowError
from dirigo.flow.sources import BadRow, Split, from_socket
from dirigo.flow.sources.socket import LINE_LIMIT_BYTES


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)
        yield listening


def connected(server: socket.socket, split: Split) -> socket.socket:
    """The server's end of the split's connection."""
    assert split.read(1) is None
    return server.accept()[0]


def read_to_end(split: Split, rows_max: int = 1000) -> tuple[list[dict[str, Any]], list[BadRow]]:
    rows: list[dict[str, Any]] = []
    bad: list[BadRow] = []
    until = time.monotonic() + 10
    while not split.ended:
        assert time.monotonic() < until
        piece = split.read(rows_max)
        if piece is not None:
            assert piece.rows.num_rows + len(piece.bad) <= rows_max
            rows += piece.rows.to_pylist()
            bad += piece.bad
    return rows, bad


def split_to(server: socket.socket, **options: Any) -> Split:
    (split,) = from_socket("127.0.0.1", server.getsockname()[1], **options).splits(4)
    return split


def test_lines_come_until_the_peer_closes(server: socket.socket) -> None:
    split = split_to(server)
    with connected(server, split) as peer:
        peer.sendall("one\ntwo\r\n\nfünf\nlast without break".encode())
    rows, bad = read_to_end(split, rows_max=2)
    split.close()
    assert [row["line"] for row in rows] == ["one", "two", "", "fünf", "last without break"]
    assert bad == []


def test_a_line_may_come_in_parts_and_reading_never_waits_for_it(server: socket.socket) -> None:
    split = split_to(server)
    with connected(server, split) as peer:
        peer.sendall(b"hel")
        begin = time.monotonic()
        assert [split.read(10) for _ in range(5)] == [None] * 5
        assert time.monotonic() - begin < 1
        assert not split.ended
        peer.sendall(b"lo\n")
    assert read_to_end(split)[0] == [{"line": "hello"}]
    split.close()


def test_the_time_of_arrival_can_be_had(server: socket.socket) -> None:
    split = split_to(server, received=True, time="received")
    with connected(server, split) as peer:
        peer.sendall(b"x\n")
    ((row,), _) = read_to_end(split)
    split.close()
    assert abs((datetime.now(UTC) - row["received"]).total_seconds()) < 10


def test_a_line_that_is_too_long_or_no_text_is_a_bad_row(server: socket.socket) -> None:
    split = split_to(server)
    rows: list[dict[str, Any]] = []
    bad: list[BadRow] = []
    with connected(server, split) as peer:
        peer.settimeout(5)
        rest = memoryview(b"good\n" + b"x" * (2 * LINE_LIMIT_BYTES) + b"\n\xff\nfine\n")
        while rest:  # the loopback holds only so much, so sending and reading take turns
            rest = rest[peer.send(rest[: 1 << 16]) :]
            piece = split.read(100)
            if piece is not None:
                rows += piece.rows.to_pylist()
                bad += piece.bad
    more_rows, more_bad = read_to_end(split)
    split.close()
    assert [row["line"] for row in rows + more_rows] == ["good", "fine"]
    long_line, no_text = bad + more_bad
    assert long_line.row == "x" * LINE_LIMIT_BYTES
    assert f"line 2: it is longer than {LINE_LIMIT_BYTES} bytes" in long_line.error
    assert (no_text.row, no_text.error.split(": ")[-1]) == ("\\xff", "it is not UTF-8.")


def test_a_line_of_exactly_the_limit_is_good(server: socket.socket) -> None:
    split = split_to(server)
    rows: list[dict[str, Any]] = []
    with connected(server, split) as peer:
        peer.settimeout(5)
        rest = memoryview(b"x" * LINE_LIMIT_BYTES + b"\n")
        while rest:
            rest = rest[peer.send(rest[: 1 << 16]) :]
            piece = split.read(100)
            rows += [] if piece is None else piece.rows.to_pylist()
    rows += read_to_end(split)[0]
    split.close()
    assert [len(row["line"]) for row in rows] == [LINE_LIMIT_BYTES]


def test_a_lost_connection_is_an_error_after_the_lines_that_came(server: socket.socket) -> None:
    split = split_to(server)
    with connected(server, split) as peer:
        peer.sendall(b"one\nhal")
        time.sleep(0.05)
        piece = split.read(10)
        # A lingering time of zero makes closing a reset.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert piece is not None
    assert piece.rows.to_pylist() == [{"line": "one"}]
    torn = split.read(10)
    assert torn is not None
    assert [each.row for each in torn.bad] == ["hal"]
    with pytest.raises(FlowError, match="the connection was lost"):
        split.read(10)
    assert split.ended


def test_a_server_that_is_not_there_is_named(server: socket.socket) -> None:
    port = server.getsockname()[1]
    server.close()
    (split,) = from_socket("127.0.0.1", port, name="ticks").splits(1)
    with pytest.raises(FlowError, match=rf"ticks \(127.0.0.1:{port}\): the server cannot be reached \(connection refused\)"):
        read_to_end(split)


def test_a_server_that_does_not_answer_is_given_up() -> None:
    # A full queue of connections that nobody accepts: the next one gets no answer.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        waiting = []
        try:
            for _ in range(4):
                each = socket.socket()
                each.setblocking(False)
                each.connect_ex(listening.getsockname())
                waiting.append(each)
            split = split_to(listening, connect_timeout="100ms")
            with pytest.raises(FlowError, match="does not answer within 100ms"):
                read_to_end(split)
        finally:
            for each in waiting:
                each.close()


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(FlowError, match="70000 is no port"):
        from_socket("localhost", 70000)


def test_closing_early_leaves_nothing_open(server: socket.socket) -> None:
    split = split_to(server)
    with connected(server, split) as peer:
        split.close()
        split.close()
        peer.settimeout(5)
        assert peer.recv(1) == b""
    assert split.ended
    assert split.read(1) is None
