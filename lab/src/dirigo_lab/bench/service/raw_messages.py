"""How fast one hop between two processes can be at best: bare pyzmq over loopback, with CURVE and without.

The messages say nothing and nobody looks at them, so whatever a message between workers costs more than this is our own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from time import perf_counter

import zmq

SECONDS = 2.0  # for each figure
SMALL_BYTES = 100
LARGE_BYTES = 100_000
_WAIT_MS = 10_000  # for a message that should be there at once
_WARM_UP_HOPS = 200
_UNANSWERED_BYTES_MOST = 4_000_000  # one way: what may be under way, so that the queues between us stay short
_UNANSWERED_MOST = 8_192
_LOOK_UP_EVERY = 64  # messages
_BYTES_WORTH_SHARING = 10_000  # smaller ones are copied faster than they are kept track of
_ECHO, _TAKE, _TELL = b"e", b"d", b"t"  # the first byte of a message says what is to be done with it


@dataclass(frozen=True)
class HopCost:
    """What one hop costs, with CURVE or without."""

    curve: bool
    hop_us: float  # half of a round trip of a small message, the median
    hop_p99_us: float
    small_messages_per_s: float  # one way, as many under way as the queues take
    large_mb_per_s: float


@dataclass(frozen=True)
class ServerKeys:
    """The key pair of the process that answers; the other one makes its own."""

    public: bytes
    secret: bytes


def measure_hops(seconds: float = SECONDS) -> tuple[HopCost, ...]:
    """With CURVE, then without."""
    return tuple(measure_hop(curve, seconds) for curve in (True, False))


def measure_hop(curve: bool, seconds: float = SECONDS) -> HopCost:
    """Start a process that answers, and send it messages of both sizes for so many seconds each."""
    if seconds <= 0:
        raise ValueError(f"a hop is measured for more than 0 seconds, unlike {seconds}")
    keys = ServerKeys(*zmq.curve_keypair()) if curve else None
    told = json.dumps({"public": keys.public.decode(), "secret": keys.secret.decode()} if keys else None)
    command = [sys.executable, "-m", "dirigo_lab.bench.service.raw_messages", "answer"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(told + "\n")  # not as an argument: everybody on the machine can read those
            process.stdin.flush()
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("the process that answers raw messages ended before it had a port")
            return _measure(f"tcp://127.0.0.1:{port}", keys, seconds)
        finally:
            process.kill()  # it holds nothing that anybody would miss


def _measure(endpoint: str, keys: ServerKeys | None, seconds: float) -> HopCost:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.rcvtimeo = socket.sndtimeo = _WAIT_MS
        socket.sndhwm = socket.rcvhwm = 0  # bounded by what is unanswered instead
        if keys is not None:
            socket.curve_serverkey = keys.public
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.connect(endpoint)
        hops = _hops_us(socket, seconds)
        return HopCost(
            curve=keys is not None,
            hop_us=median(hops),
            hop_p99_us=quantiles(hops, n=100)[98],
            small_messages_per_s=_one_way_per_s(socket, SMALL_BYTES, seconds),
            large_mb_per_s=_one_way_per_s(socket, LARGE_BYTES, seconds) * LARGE_BYTES / 1e6,
        )


def _hops_us(socket: zmq.Socket[bytes], seconds: float) -> list[float]:
    """Half of every round trip: one message is under way at a time."""
    message = _ECHO + bytes(SMALL_BYTES - 1)
    for _ in range(_WARM_UP_HOPS):
        socket.send(message)
        socket.recv()
    hops: list[float] = []
    end = perf_counter() + seconds
    while (begin := perf_counter()) < end or len(hops) < 2:
        socket.send(message)
        socket.recv()
        hops.append((perf_counter() - begin) * 5e5)
    return hops


def _one_way_per_s(socket: zmq.Socket[bytes], size: int, seconds: float) -> float:
    """Messages per second when they go one way; only now and then one is acknowledged, which bounds what is under way."""
    under_way = max(2, min(_UNANSWERED_MOST, _UNANSWERED_BYTES_MOST // size))
    every = under_way // 2  # so that there is always something to do while an acknowledgment travels
    take, tell = _TAKE + bytes(size - 1), _TELL + bytes(size - 1)
    copy = size < _BYTES_WORTH_SHARING
    begin = perf_counter()
    sent = answered = 0
    while perf_counter() < begin + seconds or sent == 0:
        for _ in range(every - 1):
            socket.send(take, 0, copy)
        socket.send(tell, 0, copy)
        sent += every
        if sent - answered >= under_way:
            socket.recv()
            answered += every
    while answered < sent:
        socket.recv()
        answered += every
    return sent / (perf_counter() - begin)


def answer() -> None:
    """The other process: send back what is to be echoed, drop what is to be taken, tell when asked to.

    It ends when its standard input does, and so with whoever started it.
    """
    told = json.loads(sys.stdin.readline())
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = 0
        if told is not None:
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = told["public"].encode(), told["secret"].encode()
        sys.stdout.write(f"{socket.bind_to_random_port('tcp://127.0.0.1')}\n")
        sys.stdout.flush()
        watch = zmq.Poller()
        watch.register(socket, zmq.POLLIN)
        watch.register(sys.stdin, zmq.POLLIN)
        while sys.stdin.fileno() not in dict(watch.poll()):
            with suppress(zmq.Again):
                for _ in range(_LOOK_UP_EVERY):
                    _serve(socket, socket.recv(zmq.NOBLOCK, copy=False))


def _serve(socket: zmq.Socket[bytes], frame: zmq.Frame) -> None:
    kind = frame.buffer[:1]
    if kind == _ECHO:
        socket.send(frame.bytes)
    elif kind == _TELL:
        socket.send(_TELL)


def main() -> None:
    """`python -m dirigo_lab.bench.service.raw_messages` writes the figures as JSON."""
    if sys.argv[1:] == ["answer"]:
        answer()
    else:
        sys.stdout.write(json.dumps([asdict(cost) for cost in measure_hops()], indent=2) + "\n")


if __name__ == "__main__":
    main()
