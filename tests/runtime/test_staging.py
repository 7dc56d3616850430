"""What is staged is released once, whole, and never lost; what is abandoned goes away."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.event_time.time_column import LATEST_MS
from dirigo.flow.sources.pushed import PushedSplit
from dirigo.runtime.control import SourcePlaces, SplitPlace
from dirigo.runtime.ingest.pusher import PUSH_BYTES, STAGED, Arrival, Pusher, PushError, StagingAck, StagingHeader
from dirigo.runtime.ingest.staging import Staging, StagingError
from dirigo.runtime.transport.fragments import joined
from dirigo.runtime.transport.keys import WRITER, KeyPair, KeyRing

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("ms", "UTC"))])


def batch(numbers: Iterable[int]) -> pa.RecordBatch:
    values = pa.array(numbers, pa.int64())
    return pa.RecordBatch.from_arrays([values, values.cast(SCHEMA.field("at").type)], schema=SCHEMA)


def frame(*numbers: int) -> bytes:
    content: bytes = batch(numbers).serialize().to_pybytes()
    return content


def staged(staging: Staging, attempt: str, *numbers: int) -> str:
    staging.stage(attempt, [frame(*numbers)])
    assert staging.seal(attempt) == len(numbers)
    return attempt


def read(staging: Staging, rows_max: int = 1000) -> list[int]:
    """Everything that has been released."""
    split = PushedSplit(SCHEMA, 0)
    split.attach(staging)
    found: list[int] = []
    while (piece := split.read(rows_max)) is not None:
        found += piece.rows.column("n").to_pylist()
    return found


def files(staging: Staging) -> int:
    return len(list(staging.folder.iterdir()))


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path / "staged", SCHEMA, time="at")


def test_only_what_is_released_is_read_and_then_its_file_is_gone(staging: Staging) -> None:
    staged(staging, "winner", 1, 2)
    staged(staging, "loser", 1)
    staging.stage("half", [frame(7)])
    assert read(staging) == []
    assert staging.release("q", 0, ["winner"])
    assert staging.queued_bytes() > 0
    assert read(staging) == [1, 2]
    assert staging.queued_bytes() == 0
    assert files(staging) == 2
    staging.drop(["loser", "half", "never heard of"])
    assert files(staging) == 0


def test_a_micro_batch_is_released_once_however_its_rows_are_cut(staging: Staging) -> None:
    staged(staging, "first", 1, 2)
    assert staging.release("q", 5, ["first"])
    staged(staging, "again", 2)
    staged(staging, "again too", 1)
    assert not staging.release("q", 5, ["again", "again too"])
    assert not staging.release("q", 4, [])
    assert staging.release("another query", 5, [staged(staging, "other", 3)])
    assert read(staging) == [1, 2, 3]
    assert files(staging) == 0


def test_a_release_that_lacks_one_attempt_releases_none(staging: Staging) -> None:
    staged(staging, "there", 1)
    staging.stage("half", [frame(2)])
    for missing in ("gone", "half"):
        with pytest.raises(StagingError, match=f"attempt {missing} is not staged here"):
            staging.release("q", 0, ["there", missing])
    assert read(staging) == []
    assert staging.release("q", 0, ["there"]), "the batch was not released by the failure"
    assert read(staging) == [1]


@settings(max_examples=40)
@given(
    attempts=st.lists(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=3), max_size=4),
    rows_max=st.integers(1, 7),
)
def test_attempts_come_whole_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, attempts: list[list[list[int]]], rows_max: int
) -> None:
    staging = Staging(tmp_path_factory.mktemp("staged"), SCHEMA)
    for number, pushes in enumerate(attempts):
        for push in pushes or [[]]:
            staging.stage(str(number), [frame(*push)])
        staging.seal(str(number))
    staging.release("q", 0, [str(number) for number in range(len(attempts))])
    assert read(staging, rows_max) == [n for pushes in attempts for push in pushes for n in push]
    assert files(staging) == 0
    assert staging.queued_bytes() == 0


def test_the_file_is_an_arrow_stream(staging: Staging) -> None:
    staged(staging, "a", 1, 2, 3)
    (path,) = staging.folder.iterdir()
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        assert stream.read_all().column("n").to_pylist() == [1, 2, 3]


def test_rows_outlive_their_file(staging: Staging) -> None:
    staging.release("q", 0, [staged(staging, "a", *range(50_000))])
    split = PushedSplit(SCHEMA, 0)
    split.attach(staging)
    piece = split.read(100_000)
    assert piece is not None
    staging.close()
    assert not staging.folder.exists()
    assert piece.rows.column("n").to_pylist() == list(range(50_000))


def test_time_is_told_with_the_last_acknowledgment_and_comes_with_the_release(staging: Staging) -> None:
    def push(number: int, last: bool, *frames: bytes, reached_ms: int | None = None, attempt: str = "a") -> StagingAck:
        return staging.receive(StagingHeader("j", "s", 0, attempt, number, last, reached_ms), frames)

    assert push(0, False, frame(70, 20)) == StagingAck("a", 0)
    assert push(1, True, frame(30, LATEST_MS + 1)) == StagingAck("a", 1, newest_ms=70, oldest_ms=20)
    assert push(0, True, reached_ms=90, attempt="time") == StagingAck("time", 0)
    assert files(staging) == 1, "what only tells the time needs no file"
    assert staging.release("q", 0, ["a", "time"])
    released = staging.take()
    assert released is not None
    assert released.reached_ms == 90


# --- when rows came --------------------------------------------------------------------------------------------------------

NOW_S = 1_000.0  # when a micro-batch is released that Spark planned 100 ms before
BEGAN_MS = 999_900


@pytest.mark.parametrize(
    ("before", "oldest_ms", "every_ms", "arrived_ms"),
    [
        # The first micro-batch: there was no look before it.
        (None, None, 0, BEGAN_MS),
        (None, 999_000, 2_000, BEGAN_MS),
        # One after the other: Spark looked when it planned the one before.
        ((997_900, 998_000), None, 2_000, 997_900),
        ((997_900, 998_000), 998_400, 2_000, 998_400),  # event time can be the clock
        ((997_900, 998_000), 5_000, 2_000, 997_900),  # it is of long ago, so it cannot
        ((997_900, 998_000), 2_000_000, 2_000, BEGAN_MS),  # nor does anything come from the future
        ((994_000, 999_800), None, 2_000, 994_000),  # the one before took longer than the interval
        ((999_000, 999_600), None, 0, 999_000),  # as soon as the one before is done
        ((999_000, 999_600), 999_300, 0, 999_300),
        # A stream without rows for a while: Spark has looked since, again and again.
        ((900_000, 900_100), None, 2_000, 997_900),
        ((900_000, 900_100), 990_000, 2_000, 997_900),
        ((900_000, 900_100), 999_000, 2_000, 999_000),
        ((900_000, 900_100), None, 0, BEGAN_MS),
        # A clock of another machine that is fast.
        ((NOW_S * 1000 + 4_000, 999_990), None, 0, BEGAN_MS),
    ],
)
def test_rows_count_from_the_earliest_moment_at_which_the_oldest_can_have_come(
    tmp_path: Path, before: tuple[int, int] | None, oldest_ms: int | None, every_ms: int, arrived_ms: int
) -> None:
    now_s = NOW_S
    staging = Staging(tmp_path, SCHEMA, time="at", wall_clock=lambda: now_s)
    if before is not None:
        now_s = before[1] / 1000
        staging.stage("before", [])
        staging.seal("before", arrival=Arrival(int(before[0]), None, every_ms))
        assert staging.release("query", 0, ["before"])
        assert staging.take() is not None
        now_s = NOW_S
    staged(staging, "rows", 1, 2)
    staging.stage("told", [])
    staging.seal("told", None, Arrival(BEGAN_MS, oldest_ms, every_ms))
    assert staging.release("query", 1, ["rows", "told"])
    released = staging.take()
    assert released is not None
    assert released.arrived_s == arrived_ms / 1000


def test_nobody_came_in_the_future(tmp_path: Path) -> None:
    staging = Staging(tmp_path, SCHEMA, time="at", wall_clock=lambda: NOW_S)
    staging.stage("a", [])
    staging.seal("a", None, Arrival(int(NOW_S * 1000) + 5_000))
    staging.release("query", 0, ["a"])
    released = staging.take()
    assert released is not None
    assert released.arrived_s == NOW_S


def test_the_oldest_event_time_is_told_with_the_last_acknowledgment(staging: Staging) -> None:
    staging.receive(StagingHeader("j", "s", 0, "a", 0, last=False), [frame(30, 20), frame(25)])
    ack = staging.receive(StagingHeader("j", "s", 0, "a", 1, last=True), [frame(22, 40)])
    assert (ack.oldest_ms, ack.newest_ms) == (20, 40)


def test_a_lost_push_is_asked_for_and_a_copy_is_acknowledged_and_not_taken_twice(staging: Staging) -> None:
    def push(number: int, *frames: bytes, last: bool = False) -> StagingAck:
        return staging.receive(StagingHeader("j", "s", 0, "a", number, last), frames)

    assert push(1, frame(2)) == StagingAck("a", -1, is_missing=True)
    assert files(staging) == 0
    assert push(0, frame(1)) == StagingAck("a", 0)
    assert push(2, frame(3), last=True) == StagingAck("a", 0, is_missing=True)
    assert push(0, frame(1)) == StagingAck("a", 0)
    assert push(1, frame(2)) == StagingAck("a", 1)
    assert push(2, frame(3), last=True) == StagingAck("a", 2, newest_ms=3, oldest_ms=1)
    assert push(1, frame(2)) == StagingAck("a", 2, newest_ms=3, oldest_ms=1)
    assert push(2, frame(3), last=True) == StagingAck("a", 2, newest_ms=3, oldest_ms=1)
    assert staging.release("q", 0, ["a"])
    assert read(staging) == [1, 2, 3]
    assert push(0, frame(1)).error is not None, "a copy that was long on its way begins nothing"
    assert files(staging) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        SCHEMA.serialize().to_pybytes(),
        frame(1)[:-8],
        frame(1) + frame(2),
        pa.record_batch({"x": [1]}).serialize().to_pybytes(),
    ],
)
def test_bad_frames_are_one_error_and_cost_only_their_attempt(staging: Staging, content: bytes) -> None:
    staged(staging, "good", 1)
    ack = staging.receive(StagingHeader("j", "s", 0, "bad", 0, last=True), [frame(9), content])
    assert ack.error is not None
    assert "RecordBatch" in ack.error or "frame of its own" in ack.error
    assert files(staging) == 1
    staging.release("q", 0, ["good"])
    assert read(staging) == [1]


def test_a_full_disk_is_one_error_and_loses_nothing(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no device that is always full")
    staging = Staging(tmp_path / "staged", SCHEMA)
    staged(staging, "good", 1)
    (staging.folder / f"{1:08}.arrow").symlink_to(full)  # the file of the next attempt
    ack = staging.receive(StagingHeader("j", "s", 0, "bad", 0, last=True), [frame(*range(10_000))])
    assert ack.error is not None
    assert "No space left on device; free space there" in ack.error
    staged(staging, "next", 2)
    staging.release("q", 0, ["good", "next"])
    assert read(staging) == [1, 2]


def test_some_of_the_disk_is_left_to_others(tmp_path: Path) -> None:
    staging = Staging(tmp_path / "staged", SCHEMA, reserve_bytes=1 << 60)
    with pytest.raises(StagingError, match="not enough room left; free space there"):
        staging.stage("a", [frame(1)])
    assert files(staging) == 0


def test_what_is_abandoned_is_forgotten_by_age(tmp_path: Path) -> None:
    now = 0.0
    staging = Staging(tmp_path / "staged", SCHEMA, open_for_s=10, sealed_for_s=100, clock=lambda: now)
    staging.stage("open", [frame(1)])
    staged(staging, "sealed", 2)
    now = 9.0
    staging.stage("open", [frame(1)])
    now = 15.0
    staged(staging, "x", 3)
    assert files(staging) == 3, "it was heard of 6 s ago"
    now = 99.0
    staged(staging, "y", 4)
    assert files(staging) == 3
    now = 101.0
    staged(staging, "z", 5)
    assert files(staging) == 3
    with pytest.raises(StagingError, match="dropped after too long a time; start the query again"):
        staging.release("q", 0, ["sealed"])
    assert staging.release("q", 0, ["x", "y", "z"])


def test_attempts_are_bounded_and_complete_ones_are_never_the_victims(tmp_path: Path) -> None:
    staging = Staging(tmp_path / "staged", SCHEMA, attempts_most=2)
    staging.stage("oldest", [frame(1)])
    staged(staging, "done", 2)
    staged(staging, "done too", 3)
    with pytest.raises(StagingError, match="2 attempts wait for their commit"):
        staging.stage("more", [frame(4)])
    with pytest.raises(StagingError, match="oldest is not staged"):
        staging.seal("oldest")
    assert staging.release("q", 0, ["done", "done too"])
    assert read(staging) == [2, 3]


def test_after_the_end_nothing_is_released_and_all_that_was_is_read(staging: Staging) -> None:
    staging.release("q", 0, [staged(staging, "a", 1)])
    staged(staging, "b", 2)
    staging.end()
    with pytest.raises(StagingError, match="has ended"):
        staging.release("q", 1, ["b"])
    assert not staging.ended
    assert read(staging) == [1]
    assert staging.ended


def test_left_overs_of_an_earlier_process_are_removed(tmp_path: Path) -> None:
    staged(Staging(tmp_path, SCHEMA), "a", 1)
    assert files(Staging(tmp_path, SCHEMA)) == 0


def test_one_thread_stages_while_another_one_reads(staging: Staging) -> None:
    found: list[int] = []

    def work() -> None:
        split = PushedSplit(SCHEMA, 0)
        split.attach(staging)
        while not split.ended:
            piece = split.read(100)
            found.extend([] if piece is None else piece.rows.column("n").to_pylist())

    thread = threading.Thread(target=work)
    thread.start()
    for number in range(300):
        staging.release("q", number, [staged(staging, str(number), number, number)])
    staging.end()
    thread.join(60)
    assert found == [number for number in range(300) for _ in range(2)]
    assert staging.queued_bytes() == 0


# --- the side that pushes ----------------------------------------------------------------------------------------------


class NoKeys:
    def secure_client(self, socket: zmq.Socket[bytes], server_public: str) -> None:
        """Let everybody in."""


class Taker:
    """A worker's data socket. It keeps silent until it is asked to take in, so that bounds are seen."""

    def __init__(self, staging: Staging, own: KeyPair | None = None) -> None:
        self.staging = staging
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        if own is not None:
            own.secure_server(self.socket)
        port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.place = SplitPlace(0, 3, 7, f"tcp://127.0.0.1:{port}", "" if own is None else own.public)
        self.places = SourcePlaces("j", "s", b"", (self.place,))
        self.sizes: list[int] = []

    def take_in(self, wait_ms: int = 200) -> int:
        """Take in what has come, and only then acknowledge it; returns how many pushes that was."""
        acks = []
        while self.socket.poll(wait_ms):
            peer, _, body, *frames = joined(self.socket.recv_multipart())
            self.sizes.append(sum(map(len, frames)))
            acks.append((peer, self.staging.receive(msgspec.msgpack.decode(body, type=StagingHeader), frames)))
        for peer, ack in acks:
            self.socket.send_multipart([peer, STAGED, msgspec.msgpack.encode(ack)])
        return len(acks)

    def __enter__(self) -> Taker:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)


def test_pushes_are_small_and_few_are_unacknowledged(staging: Staging) -> None:
    numbers = range(2_000_000)  # 32 MB
    with Taker(staging) as taker:
        refs = []

        def push() -> None:
            with Pusher(taker.places, taker.place, NoKeys()) as pusher:
                pusher.push(batch(numbers))
                refs.append(pusher.finish())

        thread = threading.Thread(target=push)
        thread.start()
        rounds = [taker.take_in()]
        while thread.is_alive():
            rounds.append(taker.take_in(20))
    assert 1 < max(rounds) <= 8
    assert max(taker.sizes) <= PUSH_BYTES + 4096
    (ref,) = refs
    assert (ref.worker, ref.incarnation, ref.split, ref.rows) == (3, 7, 0, len(numbers))
    assert staging.release("q", 0, [ref.attempt])
    assert read(staging, 100_000) == list(numbers)


def test_who_has_no_connection_does_not_wait_for_ever(staging: Staging) -> None:
    """As between two attempts of one who is refused: then there is not even a queue for what is sent."""
    failures: list[Exception] = []

    def finish(pusher: Pusher) -> None:
        try:
            pusher.finish()
        except PushError as error:
            failures.append(error)

    with Taker(staging, KeyPair.new()) as taker, Pusher(taker.places, taker.place, NoKeys(), patience_s=0.2) as stranger:
        stranger.push(batch([1]))
        stranger._socket.disconnect(taker.place.endpoint)
        thread = threading.Thread(target=finish, args=(stranger,), daemon=True)
        thread.start()
        thread.join(20.0)
    assert [str(error).partition(";")[0] for error in failures] == ["Worker 3 has not taken in rows for 0.2 s"]


def test_pushes_are_encrypted_with_the_keys_of_the_cluster(staging: Staging) -> None:
    with Taker(staging, KeyPair.new()) as taker:
        with Pusher(taker.places, taker.place, NoKeys(), patience_s=0.2) as stranger:
            stranger.push(batch([1]))
            with pytest.raises(PushError):
                stranger.finish()
        with Pusher(taker.places, taker.place, KeyRing().keys_of(WRITER)) as pusher:
            pusher.push(batch([1, 5]))
            thread = threading.Thread(target=taker.take_in, args=(500,))
            thread.start()
            pusher.finish()
            thread.join()
        assert pusher.newest_ms == 5
        assert staging.release("q", 0, [pusher.attempt])
        assert read(staging) == [1, 5], "the stranger was not let in"


def test_a_worker_that_does_not_answer_is_not_waited_for_without_bound(staging: Staging) -> None:
    with Taker(staging) as taker, Pusher(taker.places, taker.place, NoKeys(), patience_s=0.2) as pusher:
        pusher.push(batch([1]))
        with pytest.raises(PushError, match=r"Worker 3 has not taken in rows for 0.2 s"):
            pusher.finish()


def test_a_failing_task_takes_back_what_it_staged(staging: Staging) -> None:
    with Taker(staging) as taker:

        def fail() -> None:
            with Pusher(taker.places, taker.place, NoKeys()) as pusher:
                pusher.push(batch(range(200_000)))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert taker.take_in() >= 2
        assert files(staging) == 0


def test_what_the_worker_objects_to_is_what_the_task_raises(staging: Staging) -> None:
    with Taker(staging) as taker, Pusher(taker.places, taker.place, NoKeys()) as pusher:
        pusher.push(pa.record_batch({"x": [1]}))
        thread = threading.Thread(target=taker.take_in, args=(1000,))
        thread.start()
        with pytest.raises(PushError, match="is no record batch of this source"):
            pusher.finish()
        thread.join()
