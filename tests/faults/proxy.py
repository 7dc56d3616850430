"""A proxy on this machine between any two processes of a cluster: it cuts, delays, half-closes and swallows connections.

Whoever is given an endpoint of ``through`` connects to the proxy, which connects to the true endpoint. One thread carries
all bytes. What may be done to a connection is asked for from any thread, and done by that one.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from random import Random
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 1 << 16
_HELD_BYTES_MOST = 1 << 20  # of one direction, before the proxy stops reading
_LOOK_S = 0.02
_DELAYS_S = (0.05, 1.5)
_RESET = struct.pack("ii", 1, 0)  # a close without a farewell

KINDS = ("cut", "delay", "half_close", "blackhole")


class Way:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.held = bytearray()
        self.carried = 0  # bytes
        self.swallowed = 0
        self.is_swallowed = False  # what comes is thrown away


class Connection:
    """Two sockets, and what goes between them."""

    def __init__(self, name: str, accepted: socket.socket, onward: socket.socket) -> None:
        self.name = name
        self.forth = Way(accepted, onward)  # from whoever connected
        self.back = Way(onward, accepted)
        self.is_open = True
        self.paused_until_s = 0.0
        self.is_hit = False  # it is cut already, or as good as that

    @property
    def ways(self) -> tuple[Way, Way]:
        return self.forth, self.back

    @property
    def is_busy(self) -> bool:
        """Whether it has carried more than the greetings of the socket library."""
        return self.is_open and not self.is_hit and self.forth.carried + self.back.carried > 2_000


class Proxy:
    """All connections of one test. As a context, it leaves nothing open."""

    def __init__(self) -> None:
        self.done: Counter[tuple[str, str]] = Counter()  # (kind, name of the connection) -> how often
        self._selector = selectors.DefaultSelector()
        self._wishes: deque[Callable[[], None]] = deque()
        self._bell, self._rung = socket.socketpair()
        self._rung.setblocking(False)
        self._selector.register(self._rung, selectors.EVENT_READ)
        self._listeners: dict[socket.socket, tuple[str, tuple[str, int]]] = {}
        self._endpoints: dict[tuple[str, str], str] = {}
        self._connections: list[Connection] = []
        self._closed_names: set[str] = set()
        self._is_stopping = False
        self._lock = threading.Lock()  # around the endpoints
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_stopping = True
        self._bell.send(b"x")
        self._thread.join()

    # --- for the test --------------------------------------------------------------------------------------------------

    def through(self, endpoint: str, name: str) -> str:
        """An endpoint that leads to another one, by way of the proxy; the same one for the same name."""
        with self._lock:
            known = self._endpoints.get((endpoint, name))
            if known is not None:
                return known
            target = urlsplit(endpoint)
            assert target.hostname is not None
            assert target.port is not None
            listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            listener.setblocking(False)
            self._listeners[listener] = (name, (target.hostname, target.port))
            made = self._endpoints[endpoint, name] = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        self._ask(lambda: self._watch(listener))
        return made

    def connections(self, *words: str) -> list[Connection]:
        """Those that are open and in use, and have all of these words in their names."""
        return [each for each in list(self._connections) if each.is_busy and all(word in each.name for word in words)]

    def cut(self, connections: Iterable[Connection]) -> None:
        """End them without a word; what is under way is lost."""
        self._each("cut", connections, self._close)

    def delay(self, connections: Iterable[Connection], seconds: float) -> None:
        """Nothing arrives for a while, and then all of it."""

        def pause(connection: Connection) -> None:
            connection.paused_until_s = time.monotonic() + seconds

        self._each("delay", connections, pause)

    def half_close(self, connections: Iterable[Connection], *, is_forth: bool) -> None:
        """One end hears that nothing more comes. The other one hears nothing of it, and sends into the void."""

        def half(connection: Connection) -> None:
            way, other = connection.ways if is_forth else connection.ways[::-1]
            way.is_swallowed = other.is_swallowed = connection.is_hit = True
            try:
                way.sink.shutdown(socket.SHUT_WR)
            except OSError:
                self._close(connection)

        self._each("half_close", connections, half)

    def blackhole(self, connections: Iterable[Connection]) -> None:
        """They stay open, and nothing that is sent arrives any more."""

        def swallow(connection: Connection) -> None:
            connection.is_hit = connection.forth.is_swallowed = connection.back.is_swallowed = True

        self._each("blackhole", connections, swallow)

    def swallow_back(self, connections: Iterable[Connection]) -> None:
        """They stay open; what is sent to whoever connected is thrown away."""

        def swallow(connection: Connection) -> None:
            connection.back.is_swallowed = True

        self._each("swallow", connections, swallow)

    def swallow_forth(self, connections: Iterable[Connection]) -> None:
        """They stay open; what whoever connected sends is thrown away."""

        def swallow(connection: Connection) -> None:
            connection.forth.is_swallowed = True

        self._each("swallow", connections, swallow)

    def close_for(self, name: str) -> None:
        """Whoever connects by this name from now on finds nobody."""
        self._closed_names.add(name)

    def open_for(self, name: str) -> None:
        self._closed_names.discard(name)

    def disturb(self, rng: Random, kinds: Iterable[str], *words: str) -> bool:
        """Do something to a connection, both at random; whether there was one."""
        found = self.connections(*words)
        if not found:
            return False
        chosen = [rng.choice(found)]
        kind = rng.choice(list(kinds))
        if kind == "cut":
            self.cut(chosen)
        elif kind == "delay":
            self.delay(chosen, rng.uniform(*_DELAYS_S))
        elif kind == "half_close":
            self.half_close(chosen, is_forth=rng.random() < 0.5)
        else:
            self.blackhole(chosen)
        return True

    def count(self, *kinds: str) -> int:
        """How often something was done to a connection that was in use."""
        return sum(count for (kind, _), count in self.done.items() if not kinds or kind in kinds)

    # --- the thread ----------------------------------------------------------------------------------------------------

    def _each(self, kind: str, connections: Iterable[Connection], act: Callable[[Connection], None]) -> None:
        """Have it done, and wait until it is."""
        is_done = threading.Event()
        chosen = list(connections)

        def do() -> None:
            for connection in chosen:
                if connection.is_open and not connection.is_hit:
                    self.done[kind, connection.name] += 1
                    act(connection)
                    self._attend(connection)
            is_done.set()

        self._ask(do)
        assert is_done.wait(30.0), "the proxy's thread has ended"

    def _ask(self, wish: Callable[[], None]) -> None:
        self._wishes.append(wish)
        self._bell.send(b"x")

    def _watch(self, listener: socket.socket) -> None:
        self._selector.register(listener, selectors.EVENT_READ)

    def _run(self) -> None:
        while not self._is_stopping:
            for key, events in self._selector.select(_LOOK_S):
                end = key.fileobj
                assert isinstance(end, socket.socket)
                if end is self._rung:
                    self._rung.recv(_CHUNK)
                elif end in self._listeners:
                    self._accept(end)
                else:
                    self._carry(key.data, end, events)
            while self._wishes:
                self._wishes.popleft()()
            for connection in self._connections:
                if connection.paused_until_s:
                    self._attend(connection)
        for connection in list(self._connections):
            self._close(connection)
        for listener in self._listeners:
            listener.close()
        self._selector.close()
        self._bell.close()
        self._rung.close()

    def _accept(self, listener: socket.socket) -> None:
        name, target = self._listeners[listener]
        accepted, _ = listener.accept()
        try:
            if name in self._closed_names:
                raise ConnectionRefusedError
            onward = socket.create_connection(target, 5.0)
        except OSError:
            accepted.close()
            return
        for end in (accepted, onward):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(name, accepted, onward)
        self._connections.append(connection)
        for end in (accepted, onward):
            self._selector.register(end, selectors.EVENT_READ, connection)

    def _carry(self, connection: Connection, end: socket.socket, events: int) -> None:
        incoming, outgoing = connection.ways if end is connection.forth.source else connection.ways[::-1]
        try:
            if events & selectors.EVENT_WRITE:
                self._write(outgoing)
            if events & selectors.EVENT_READ:
                self._read(connection, incoming)
        except BlockingIOError:
            pass
        except OSError:
            self._close(connection)
        self._attend(connection)

    def _read(self, connection: Connection, way: Way) -> None:
        data = way.source.recv(_CHUNK)
        if not data:
            self._close(connection)
        elif way.is_swallowed:
            way.swallowed += len(data)
        else:
            way.carried += len(data)
            way.held += data
            self._write(way)

    def _write(self, way: Way) -> None:
        if way.held:
            del way.held[: way.sink.send(way.held)]

    def _attend(self, connection: Connection) -> None:
        """Look at both ends only for what can be done."""
        if not connection.is_open:
            return
        if connection.paused_until_s and time.monotonic() >= connection.paused_until_s:
            connection.paused_until_s = 0.0
        for end, incoming, outgoing in (
            (connection.forth.source, connection.forth, connection.back),
            (connection.back.source, connection.back, connection.forth),
        ):
            events = 0
            if not connection.paused_until_s:
                events |= selectors.EVENT_READ if len(incoming.held) < _HELD_BYTES_MOST else 0
                events |= selectors.EVENT_WRITE if outgoing.held else 0
            is_known = end in self._selector.get_map()
            if events and is_known:
                self._selector.modify(end, events, connection)
            elif events:
                self._selector.register(end, events, connection)
            elif is_known:
                self._selector.unregister(end)

    def _close(self, connection: Connection) -> None:
        if not connection.is_open:
            return
        connection.is_open = False
        self._connections.remove(connection)
        for way in connection.ways:
            if way.source in self._selector.get_map():
                self._selector.unregister(way.source)
            way.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            way.source.close()
