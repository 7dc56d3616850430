"""Lines of text that a server on the network sends."""

from __future__ import annotations

import errno
import os
import select
import socket
import time as clock
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from dirigo.flow.api.duration import Duration, format_milliseconds, positive_milliseconds
from dirigo.flow.errors import FlowError
from dirigo.flow.sources.source import BadRow, Source, SourceBatch, Split, require_wanted

LINE_LIMIT_BYTES: Final = 1 << 20
_RECEIVED_AT_ONCE_BYTES: Final = 1 << 18
_WAIT_MS: Final = 2


def from_socket(
    host: str,
    port: int,
    *,
    received: bool = False,
    connect_timeout: Duration = "10s",
    time: str | None = None,
    out_of_orderness: Duration = "0ms",
    idle_after: Duration | None = None,
    name: str = "lines",
) -> SocketSource:
    """Connect to a server and take the lines that it sends, until it closes the connection.

    There is one column, `line`; with `received=True` also `received`, the time at which the line came. Parse lines further
    with `map`. A line of more than 1 MiB is a bad row, of which the first MiB is kept.
    """
    return SocketSource(
        host,
        port,
        received=received,
        connect_timeout=connect_timeout,
        time=time,
        out_of_orderness=out_of_orderness,
        idle_after=idle_after,
        name=name,
    )


class SocketSource(Source):
    """Lines from a server. There is one connection, so it cannot be split."""

    default_name = "lines"

    def __init__(
        self,
        host: str,
        port: int,
        *,
        received: bool,
        connect_timeout: Duration,
        time: str | None,
        out_of_orderness: Duration,
        idle_after: Duration | None,
        name: str,
    ) -> None:
        columns = [("line", pa.string())]
        if received:
            columns.append(("received", pa.timestamp("ms", "UTC")))
        super().__init__(
            pa.schema(columns),
            name=name,
            is_bounded=False,
            time=time,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
        )
        if not 0 < port < 65536:
            raise FlowError(f"{name}: {port} is no port; give a number from 1 to 65535.")
        self.host = host
        self.port = port
        self.connect_timeout_ms = positive_milliseconds(connect_timeout, f"{name}: connect_timeout")

    def splits(self, wanted: int) -> Sequence[Split]:
        require_wanted(wanted, self.name)
        return [SocketSplit(self)]


class SocketSplit(Split):
    """One connection. It is made by the first reads, without waiting for it."""

    def __init__(self, source: SocketSource) -> None:
        self._source = source
        self._what = f"{source.name} ({source.host}:{source.port})"
        self._socket: socket.socket | None = None
        self._is_connected = False
        self._is_closed_by_peer = False
        self._failure: FlowError | None = None
        self._connect_until_s = 0.0
        self._addresses: list[tuple[int, tuple[object, ...]]] = []
        self._lines = _LineBuffer()

    def read(self, rows_max: int) -> SourceBatch | None:
        if self.ended:
            return None
        if not self._is_connected and not self._connect():
            return None
        lines, bad = self._lines.take(rows_max, self._what)
        if not lines and not bad:
            self._receive()
            lines, bad = self._lines.take(rows_max, self._what)
        if not lines and not bad:
            if self._failure is not None:
                self.close()
                raise self._failure
            self.ended = self._is_closed_by_peer
            return None
        return SourceBatch(self._batch_of(lines), bad)

    def close(self) -> None:
        self.ended = True
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> bool:
        """Go on connecting; whether it is done. All addresses of the host are tried in turn."""
        if self._connect_until_s == 0.0:
            self._connect_until_s = clock.monotonic() + self._source.connect_timeout_ms / 1000
            self._addresses = self._resolve()
        if self._socket is None:
            self._start_connecting()
        if self._socket is None:
            return False  # the next address has its turn at the next read
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        if not poll.poll(_WAIT_MS):
            if clock.monotonic() >= self._connect_until_s:
                timeout = format_milliseconds(self._source.connect_timeout_ms)
                raise self._given_up(f"does not answer within {timeout}")
            return False
        problem = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            self._drop_address(os.strerror(problem))
            return False
        self._is_connected = True
        return True

    def _resolve(self) -> list[tuple[int, tuple[object, ...]]]:
        try:
            found = socket.getaddrinfo(self._source.host, self._source.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise self._given_up(f"is not known ({error.strerror or error})") from error
        return [(family, address) for family, _, _, _, address in found]

    def _start_connecting(self) -> None:
        family, address = self._addresses[0]
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        problem = self._socket.connect_ex(address)
        if problem not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            self._drop_address(os.strerror(problem))

    def _drop_address(self, problem: str) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        del self._addresses[0]
        if not self._addresses:
            raise self._given_up(f"cannot be reached ({problem.lower()})")

    def _given_up(self, problem: str) -> FlowError:
        self.close()
        return FlowError(f"{self._what}: the server {problem}; start it first, or check host and port.")

    def _receive(self) -> None:
        if self._socket is None or self._is_closed_by_peer:
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(_WAIT_MS):
            return
        try:
            received = self._socket.recv(_RECEIVED_AT_ONCE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._failure = FlowError(
                f"{self._what}: the connection was lost ({(error.strerror or str(error)).lower()}); start the job again."
            )
            self._is_closed_by_peer = True
            self._lines.abandon()
            return
        if received:
            self._lines.add(received)
        else:
            self._is_closed_by_peer = True
            self._lines.end()

    def _batch_of(self, lines: list[str]) -> pa.RecordBatch:
        columns = [pa.array(lines, pa.string())]
        if len(self._source.schema) > 1:
            now = datetime.fromtimestamp(self.clock(), UTC)
            columns.append(
                pa.array([now] * len(lines), pa.timestamp("us", "UTC")).cast(pa.timestamp("ms", "UTC"), safe=False)
            )
        return pa.RecordBatch.from_arrays(columns, schema=self._source.schema)


class _LineBuffer:
    """What has been received but not yet read. It holds one over-long line's beginning at most, so its size is bounded."""

    def __init__(self) -> None:
        self._complete: list[bytes] = []  # in reverse order, so that taking the first is cheap
        self._partial = bytearray()
        self._is_torn = False
        self._number = 0

    def add(self, received: bytes) -> None:
        """Called only when all complete lines have been taken."""
        *ended, rest = received.split(b"\n")
        lines: list[bytes] = []
        for line in ended:
            self._extend(line)
            lines.append(self._finish())
        self._extend(rest)
        self._complete = lines[::-1]

    def end(self) -> None:
        """No more comes: what is left is a line too."""
        if self._partial:
            self._complete = [self._finish()]

    def abandon(self) -> None:
        """No more comes although it should: what is left is no line."""
        self._is_torn = bool(self._partial)
        self.end()

    def take(self, rows_max: int, what: str) -> tuple[list[str], list[BadRow]]:
        lines: list[str] = []
        bad: list[BadRow] = []
        while self._complete and len(lines) + len(bad) < rows_max:
            line = self._complete.pop()
            self._number += 1
            if self._is_torn:
                bad.append(BadRow(line.decode(errors="backslashreplace"), f"{what}, line {self._number}: it was cut off."))
                continue
            if len(line) > LINE_LIMIT_BYTES:
                kept = line[:LINE_LIMIT_BYTES].decode(errors="backslashreplace")
                bad.append(BadRow(kept, f"{what}, line {self._number}: it is longer than {LINE_LIMIT_BYTES} bytes."))
                continue
            try:
                lines.append(line.removesuffix(b"\r").decode())
            except UnicodeDecodeError:
                bad.append(BadRow(line.decode(errors="backslashreplace"), f"{what}, line {self._number}: it is not UTF-8."))
        return lines, bad

    def _extend(self, part: bytes) -> None:
        room = LINE_LIMIT_BYTES + 1 - len(self._partial)  # one more than the limit marks the line as too long
        self._partial += part[:room]

    def _finish(self) -> bytes:
        line = bytes(self._partial)
        self._partial.clear()
        return line
