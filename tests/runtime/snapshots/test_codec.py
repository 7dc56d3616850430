"""Captures as bytes and back: the same values, without copies of what is large."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from dirigo.runtime.snapshots import DamagedSnapshot, SnapshotError, decode, encode
from dirigo.runtime.snapshots.blobs import ALIGNMENT

LARGE = 1 << 18  # of eight bytes each


@dataclass
class Capture:
    """As an operator would keep it."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    counts: dict[Any, Any] = field(default_factory=dict)


class Entry(msgspec.Struct):
    """As the kernel would keep it."""

    number: int
    content: Any = None


def joined(captured: Any) -> memoryview:
    """The bytes of a capture, where a file would have been read to."""
    text = b"".join(encode(captured))
    memory = memoryview(pa.allocate_buffer(len(text))).cast("B")
    memory[:] = text
    return memory


def small(number: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"key": [number, None, 3], "text": ["x", "", str(number)], "list": [[1], None, []]})


def large() -> pa.RecordBatch:
    return pa.record_batch({"key": np.arange(LARGE), "text": pa.array(["some text"] * LARGE)})


DICTIONARY = pa.record_batch({"word": pa.array(["a", "b", "a", None]).dictionary_encode(), "n": [1, 2, 3, 4]})
TWO_CHUNKS = pa.chunked_array([[1, 2], [None]])
VALUES: dict[str, Any] = {
    "plain": {"a": (1, 2.5, None, True, "ü", b"\0", {3}, 2**70)},
    "none": None,
    "ours": [Capture([small(1)], {("k", 1): 2}), Entry(3, {"x": small()})],
    "small batches": [small(number) for number in range(50)],
    "large batch": large(),
    "slice of a large batch": large().slice(7, 3),
    "large slice": large().slice(1, LARGE // 2),
    "no rows": small().slice(0, 0),
    "no columns": pa.RecordBatch.from_struct_array(pa.array([{}, {}])),
    "metadata": small().replace_schema_metadata({"k": "v"}),
    "other schemas": [small(), DICTIONARY, small(), small().replace_schema_metadata({"k": "v"})],
    "dictionaries": [DICTIONARY, DICTIONARY.slice(1, 2)],
    "arrays": [
        pa.array([1, None]),
        pa.array(["x"] * 5).slice(2),
        pa.nulls(3),
        pa.array(np.arange(LARGE)),
        DICTIONARY.column(0),
    ],
    "chunks": [TWO_CHUNKS, pa.chunked_array([], type=pa.int8())],
    "table": pa.table({"a": TWO_CHUNKS, "b": pa.chunked_array([["x"], ["y", "z"]])}),
    "schema": small().schema.with_metadata({"k": "v"}),
    "scalars": [pa.scalar(3), np.int64(4), np.datetime64("2020-01-01")],
}


@pytest.mark.parametrize("name", VALUES)
def test_a_capture_comes_back(name: str) -> None:
    value = VALUES[name]
    found = decode(joined(value))
    assert found == value
    for batch, original in zip(batches(found), batches(value), strict=True):
        batch.validate(full=True)
        assert batch.schema.equals(original.schema, check_metadata=True)


def batches(value: Any) -> list[pa.RecordBatch]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, pa.RecordBatch)]


def test_what_is_large_is_not_copied_in_either_direction() -> None:
    batch, array, text = large(), np.arange(LARGE), bytes(LARGE)
    captured = {"batch": batch, "array": array, "frame": memoryview(text).nbytes}
    addresses = {address_of(buffer) for buffer in encode(captured) if len(buffer) >= LARGE}
    assert addresses == {
        array.ctypes.data,
        *(buffer.address for column in batch.columns for buffer in column.buffers() if buffer),
    }
    memory = joined(captured)
    begin = address_of(memory)
    found = decode(memory)
    for address in (found["array"].ctypes.data, *addresses_in(found["batch"])):
        assert begin <= address < begin + len(memory)
        assert address % ALIGNMENT == 0


def addresses_in(batch: pa.RecordBatch) -> list[int]:
    return [buffer.address for column in batch.columns for buffer in column.buffers() if buffer is not None]


def address_of(buffer: Any) -> int:
    address: int = pa.py_buffer(buffer).address
    return address


def test_a_slice_is_written_without_the_rest() -> None:
    assert sum(map(len, encode([large().slice(7, 3), large().column(0).slice(3, 2)]))) < 5000


@pytest.mark.parametrize("length", [3, LARGE])
def test_what_could_be_changed_can_be_changed_again(length: int) -> None:
    captured: dict[str, Any] = {"sums": np.zeros(length), "bytes": bytearray(length)}
    text = joined(captured)
    for memory in (text, text.toreadonly(), bytes(text)):
        found = decode(memory)
        found["sums"][1] = 5.0
        found["bytes"][2] = 1
        assert found["sums"].sum() == 5.0
    assert captured["sums"].sum() == 0


def test_a_batch_in_two_places_is_written_once() -> None:
    batch = large()
    once = sum(map(len, encode([batch])))
    captured = {"a": batch, "b": [batch]}
    assert sum(map(len, encode(captured))) < once + 1000
    assert decode(joined(captured)) == captured


def test_many_small_batches_take_little_room() -> None:
    schema_bytes = small().schema.serialize().size
    length = sum(map(len, encode([small(number) for number in range(100)])))
    assert length < 100 * (small().serialize().size + 60) + schema_bytes + 1000


def test_what_is_too_short_or_of_another_version_is_refused() -> None:
    text = joined([1, 2])
    with pytest.raises(DamagedSnapshot, match="too short"):
        decode(text[:7])
    text[0] = 99
    with pytest.raises(SnapshotError, match="format 99"):
        decode(text)
