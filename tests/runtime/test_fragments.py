"""Large frames travel in pieces: whatever is cut comes together again, and small frames are not touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import zmq

import dirigo as dg
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime.ingest.pusher import Pusher
from dirigo.runtime.transport.fragments import FRAME_BYTES_MOST, PIECE_BYTES, cut, joined
from dirigo.runtime.transport.keys import CLIENT, WRITER, KeyRing
from runtime.clusters import PATIENCE_S, LocalCluster, until

SIZES = (0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 3 * PIECE_BYTES - 1, 10 * PIECE_BYTES + 7)
LARGE_BYTES = 20 << 20


def frame(size: int) -> bytes:
    return bytes(number % 251 for number in range(997)) * (size // 997 + 1)


@pytest.mark.parametrize("sizes", [(size,) for size in SIZES] + [(5, size, 7) for size in SIZES] + [SIZES], ids=str)
def test_what_is_cut_comes_together_again(sizes: tuple[int, ...]) -> None:
    frames = [frame(size)[:size] for size in sizes]
    pieces = cut([memoryview(each) for each in frames])
    assert max(map(len, pieces), default=0) <= PIECE_BYTES
    assert joined([bytes(piece) for piece in pieces]) == frames


def test_small_frames_stay_what_they_are() -> None:
    frames = [b"", b"a", bytes(PIECE_BYTES - 1)]
    assert cut(frames) is frames
    assert joined(frames) is frames


def test_a_message_that_ends_in_the_middle_is_not_lost() -> None:
    assert joined([b"a", bytes(PIECE_BYTES)]) == [b"a", bytes(PIECE_BYTES)]


def test_a_piece_gets_through_encryption_and_a_larger_frame_does_not() -> None:
    ring = KeyRing()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        listening, sending = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        ring.server.secure_server(listening)
        port = listening.bind_to_random_port("tcp://127.0.0.1")
        ring.keys_of(CLIENT).secure_client(sending)
        sending.connect(f"tcp://127.0.0.1:{port}")
        sending.send_multipart(cut([bytes(PIECE_BYTES)]))
        assert listening.poll(int(PATIENCE_S * 1000))
        assert joined(listening.recv_multipart()) == [bytes(PIECE_BYTES)]
        sending.send(bytes(FRAME_BYTES_MOST))
        sending.send(b"behind it")
        received = [listening.recv()] if listening.poll(300) else []
        assert received in ([], [b"behind it"])  # which may come on the next connection
    finally:
        context.destroy(0)


# --- what is large and has to get through ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("logs"), workers=2) as made:
        yield made


def test_a_large_submission_large_messages_and_large_results(cluster: LocalCluster) -> None:
    """The text is in the code of the job; rows of it cross from worker to worker, and go to the log."""
    text = "a" * LARGE_BYTES
    flow = dg.Dataflow("large", row_bytes_max=2 * LARGE_BYTES)
    out = dg.to_memory()
    rows = flow.source(dg.from_iterable([{"n": number} for number in range(4)], schema={"n": "int64"}))
    wide = rows.map(lambda row: {"n": row["n"], "text": text}, schema={"n": "int64", "text": "string"})
    wide.key_by("n").aggregate(text=dg.max("text")).sink(out)
    cluster.run(flow)
    assert sorted((row["n"], len(row["text"])) for row in out.rows) == [(number, LARGE_BYTES) for number in range(4)]


def test_a_large_row_from_outside(cluster: LocalCluster) -> None:
    flow = dg.Dataflow("pushed", row_bytes_max=2 * LARGE_BYTES)
    out = dg.to_memory()
    flow.source(PushedSource({"text": "string"}), splits=1).sink(out)
    handle = cluster.submit(flow)
    until(lambda: handle.status().state == "running", "it runs")
    places = cluster.client.source_places(handle.id)
    with Pusher(places, places.splits[0], cluster.controller.access.lowered(WRITER).keys) as pusher:
        pusher.push(pa.record_batch({"text": ["b" * LARGE_BYTES, "small"]}))
        cluster.client.release(handle.id, "pushed", "query", 1, [pusher.finish()], PATIENCE_S)
    handle.drain()
    handle.wait(PATIENCE_S)
    assert [len(row["text"]) for row in out.rows] == [LARGE_BYTES, 5]


def test_an_error_of_any_length_reaches_whoever_submitted_the_job(cluster: LocalCluster) -> None:
    def fail(row: Any) -> Any:
        raise ValueError("x" * LARGE_BYTES)

    flow = dg.Dataflow("failing")
    rows = flow.source(dg.from_iterable([{"n": 1}], schema={"n": "int64"}))
    rows.map(fail, schema={"n": "int64"}).sink(dg.to_memory())
    with pytest.raises(dg.JobFailed, match="ValueError: xxxxx"):
        cluster.run(flow)
