"""Reading on where a snapshot was taken: positions of splits, and what is kept of a reader."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import dirigo as dg
from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.watermark import END, Watermark
from dirigo.flow.sources import Source, from_generator, from_socket, shaped
from dirigo.flow.sources.reader import ReaderCapture, SourceReader
from dirigo.flow.sources.source import SourceBatch, Split
from dirigo.kernel import CriticalOutput, Output

SCHEMA = {"n": int, "at": int}
Emitted = list[Output | CriticalOutput]


def made(first: int, count: int) -> list[dict[str, Any]]:
    """Every fifth row is a bad one."""
    return [{"n": "x" if n % 5 == 3 else n, "at": n * 10} for n in range(first, first + count)]


def generated(idle_after: str | None = None) -> Source:
    return from_generator(made, SCHEMA, 60, block=7, time="at", out_of_orderness="50ms", idle_after=idle_after)


def reader_of(source: Source) -> SourceReader:
    (split,) = source.splits(1)
    return SourceReader(source, split, "rows.source/0", "rows/0", 100)


def sent(capture: ReaderCapture) -> ReaderCapture:
    """As it comes back from a disk."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(capture), type=ReaderCapture)


def emitted(reader: SourceReader, rows_max: int = 4) -> Emitted:
    """What it emits to its end."""
    outputs: Emitted = []
    while not reader.has_ended:
        outputs += reader.read(rows_max, 0.0)
    return outputs


def test_a_reader_goes_on_from_a_capture_as_if_nothing_had_happened() -> None:
    undisturbed = emitted(reader_of(generated()))
    for reads in range(19):
        first = reader_of(generated())
        outputs: Emitted = []
        for _ in range(reads):
            outputs += first.read(4, 0.0)
        capture = first.capture()
        again = reader_of(generated())
        again.restore(sent(capture))
        assert again.capture() == sent(capture)
        rest = emitted(again)
        assert outputs + rest == undisturbed, reads
        assert rest == emitted(first), "the capture has changed nothing"
        assert (again.rows, again.newest_ms, again.watermark) == (first.rows, first.newest_ms, first.watermark)


def test_a_reader_that_has_ended_is_captured_as_ended_and_never_read() -> None:
    reader = reader_of(generated())
    emitted(reader)
    capture = sent(reader.capture())
    assert (capture.has_ended, capture.position) == (True, None)
    again = reader_of(generated())
    again.restore(capture)
    assert again.has_ended
    assert again.split.ended
    assert again.read(4, 0.0) == ()
    assert again.capture() == capture


class Offsets(Source):
    """A source of one's own, whose position is the dict that it counts in."""

    is_replayable = True

    def __init__(self) -> None:
        super().__init__(SCHEMA, name="offsets", is_bounded=True)

    def splits(self, wanted: int) -> list[Split]:
        return [OffsetsSplit(self)]


class OffsetsSplit(Split):
    def __init__(self, source: Source) -> None:
        self.source = source
        self.offsets = {"a": 0}

    def read(self, rows_max: int) -> SourceBatch:
        first = self.offsets["a"]
        self.offsets["a"] = last = min(first + 5, 50)
        self.ended = last == 50
        return self.source.batch_of([{"n": n, "at": n} for n in range(first, last)])

    def position(self) -> dict[str, int]:
        return self.offsets

    def seek(self, position: dict[str, int]) -> None:
        self.offsets = position

    def close(self) -> None: ...


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_a_split_counts_on_is_not_in_a_capture_that_was_taken_before(wrapped: bool) -> None:
    """A capture is written down by another thread, and later."""

    def source() -> Source:
        return shaped(Offsets(), dg.loads.constant(1_000_000)) if wrapped else Offsets()

    reader = reader_of(source())
    for _ in range(3):
        reader.read(2 if wrapped else 5, 0.0)  # of five rows that were read ahead, some are given
    capture = reader.capture()
    given = reader.rows
    emitted(reader)
    again = reader_of(source())
    again.restore(sent(capture))
    emitted(again)
    assert capture.rows == given
    assert again.rows == 50


def test_an_idle_reader_is_idle_still_and_counts_anew_how_long_nothing_comes() -> None:
    class Silent(type(generated().splits(1)[0])):  # type: ignore[misc]
        def read(self, rows_max: int) -> None:
            return None

    def silent() -> SourceReader:
        source = generated("1s")
        split = Silent(source, made, 0, 1)
        return SourceReader(source, split, "rows.source/0", "rows/0", 100)

    first = silent()
    assert list(first.read(4, 0.0)) == []
    waiting = silent()
    waiting.restore(sent(first.capture()))
    assert list(waiting.read(4, 30.0)) == [], "nobody read for so long, so nothing could come"
    (idle,) = waiting.read(4, 31.5)
    assert isinstance(idle, CriticalOutput)
    assert isinstance(idle.payload, Watermark)
    assert idle.payload.is_idle
    again = silent()
    again.restore(sent(waiting.capture()))
    assert not again.holds_others_back
    assert list(again.read(4, 99.0)) == [], "it has said so already"


def test_a_source_without_positions_is_refused_by_name() -> None:
    source = from_socket("localhost", 9, name="lines")
    assert not source.is_replayable
    with pytest.raises(FlowError, match="'lines' cannot be read again from a position"):
        reader_of(source).capture()
    (split,) = source.splits(1)
    assert split.position() is None
    with pytest.raises(FlowError, match="SocketSplit cannot be read from a position"):
        split.seek(0)


def test_the_last_output_of_a_restored_reader_is_the_end() -> None:
    reader = reader_of(generated())
    reader.read(4, 0.0)
    again = reader_of(generated())
    again.restore(reader.capture())
    last = emitted(again)[-1]
    assert isinstance(last, CriticalOutput)
    assert last.payload == Watermark(END)
    assert last.final
