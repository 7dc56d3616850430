"""Captures as bytes, and back: pickled, with large buffers apart, where what is decoded goes on referring to them.

Arrow pickles a batch column by column, which takes 100 microseconds, and the whole of what a slice was cut from. So batches
are written as messages of Arrow's IPC format, and only a large one that is no slice as its buffers, which are not copied.

The names of the functions that rebuild are in what was written: they stay as they are as long as ``_VERSION`` does.
"""

from __future__ import annotations

import copyreg
import pickle
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from dirigo.runtime.snapshots.blobs import ALIGNMENT
from dirigo.runtime.snapshots.errors import DamagedSnapshot, SnapshotError
from dirigo.runtime.snapshots.places import Buffer
from dirigo.runtime.transport.plain_columns import has_dictionary

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<IIQ")  # version, number of buffers apart, length of the pickled text
_APART_BYTES_LEAST: Final = 4096  # what is smaller is copied into the text
_BARE_BYTES_LEAST: Final = 1 << 20  # from here on, copying a batch takes longer than taking it to pieces
_WRITABLE: Final = 1  # in the lowest bit of a length


def encode(captured: Any) -> list[Buffer]:
    """What was captured as buffers that follow each other. Large ones are shared with it, so it must not change any more."""
    text = BytesIO()
    apart: list[memoryview] = []
    _CapturePickler(text, apart).dump(captured)
    pickled = text.getbuffer()
    lengths = [len(buffer) << 1 | (not buffer.readonly) for buffer in apart]
    head = _HEADER.pack(_VERSION, len(apart), len(pickled)) + struct.pack(f"<{len(lengths)}Q", *lengths)
    buffers: list[Buffer] = [head, pickled]
    length = len(head) + len(pickled)
    for buffer in apart:
        buffers += [bytes(-length % ALIGNMENT), buffer]
        length += -length % ALIGNMENT + len(buffer)
    return buffers


def decode(buffer: Buffer) -> Any:
    """What was captured. It refers to the buffer, and is changeable where it was: a buffer that is not has to be copied."""
    view = memoryview(buffer).cast("B")
    try:
        version, count, length = _HEADER.unpack_from(view)
        if version != _VERSION:
            raise SnapshotError(
                f"A state in a snapshot is in format {version} and this version of Dirigo reads format {_VERSION}; use the "
                "version that wrote it."
            )
        lengths = struct.unpack_from(f"<{count}Q", view, _HEADER.size)
    except struct.error as error:
        raise DamagedSnapshot("A state in a snapshot is too short.") from error
    begin = _HEADER.size + 8 * count
    text = view[begin : begin + length]
    return pickle.loads(text, buffers=_apart(view, begin + length, lengths))


def _apart(view: memoryview, offset: int, lengths: Sequence[int]) -> Iterator[Buffer]:
    for entry in lengths:
        length = entry >> 1
        offset += -offset % ALIGNMENT
        part = view[offset : offset + length]
        yield bytearray(part) if entry & _WRITABLE and part.readonly else part
        offset += length


class _CapturePickler(pickle.Pickler):
    """Pickles Arrow's classes in its own way, and keeps large buffers apart."""

    def __init__(self, text: BytesIO, apart: list[memoryview]) -> None:
        super().__init__(text, protocol=5, buffer_callback=self._keep_apart)
        self.dispatch_table = _Reductions(self)
        self._buffers = apart
        self._schemas: dict[bytes, pa.Schema] = {}
        self._last: pa.Schema | None = None

    def _keep_apart(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether a buffer is copied into the text after all."""
        view = buffer.raw()
        if len(view) < _APART_BYTES_LEAST:
            return True
        self._buffers.append(view)
        return False

    def reduce_batch(self, batch: pa.RecordBatch) -> tuple[Any, ...]:
        schema = self._known(batch.schema)
        if _is_bare(batch):
            return (_batch_of_columns, (schema, batch.columns))
        if has_dictionary(schema):
            return (_batch_of_stream, (_sealed(_stream_of(batch)),))
        return (_batch_of_message, (schema, _sealed(batch.serialize())))

    def reduce_array(self, array: pa.Array) -> tuple[Any, ...]:
        if _is_bare(array):
            reduction: tuple[Any, ...] = array.__reduce__()
            return reduction
        return (_array_of, (pa.RecordBatch.from_arrays([array], names=["array"]),))

    def reduce_chunked(self, chunked: pa.ChunkedArray) -> tuple[Any, ...]:
        return (_chunked_of, (chunked.type, chunked.chunks))

    def reduce_table(self, table: pa.Table) -> tuple[Any, ...]:
        return (_table_of, (self._known(table.schema), table.to_batches()))

    def reduce_schema(self, schema: pa.Schema) -> tuple[Any, ...]:
        return (_schema_of, (schema.serialize().to_pybytes(),))

    def _known(self, schema: pa.Schema) -> pa.Schema:
        """The same object for the same schema, which is then pickled once. Nearly always it is that of the batch before."""
        if self._last is None or not self._last.equals(schema, check_metadata=True):
            self._last = self._schemas.setdefault(schema.serialize().to_pybytes(), schema)
        return self._last


def _array_classes(base: type) -> Iterator[type]:
    subclasses: list[type] = base.__subclasses__()
    for each in subclasses:
        yield each
        yield from _array_classes(each)


_REDUCTIONS: Final[Mapping[type, Callable[[_CapturePickler, Any], tuple[Any, ...]]]] = {
    pa.RecordBatch: _CapturePickler.reduce_batch,
    pa.Table: _CapturePickler.reduce_table,
    pa.ChunkedArray: _CapturePickler.reduce_chunked,
    pa.Schema: _CapturePickler.reduce_schema,
    **dict.fromkeys(_array_classes(pa.Array), _CapturePickler.reduce_array),
}


class _Reductions(dict[type, Callable[[Any], Any]]):
    """How classes are pickled: ours for Arrow's, and for all others what they say themselves."""

    def __init__(self, pickler: _CapturePickler) -> None:
        super().__init__(copyreg.dispatch_table)
        for kind, reduction in _REDUCTIONS.items():
            self[kind] = reduction.__get__(pickler)


def _is_bare(values: Any) -> bool:
    """Whether a batch or an array is worth taking to pieces: it is large, and holds little but what is seen of it."""
    seen = values.nbytes
    return bool(seen >= _BARE_BYTES_LEAST and values.get_total_buffer_size() <= seen + seen // 4)


def _sealed(buffer: pa.Buffer) -> pickle.PickleBuffer:
    return pickle.PickleBuffer(memoryview(buffer).toreadonly())


def _stream_of(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch with its dictionaries, which a message of its own does not hold."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


# --- what rebuilds ---


def _schema_of(text: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(text))


def _batch_of_message(schema: pa.Schema, message: Buffer) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def _batch_of_stream(stream: Buffer) -> pa.RecordBatch:
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_next_batch()


def _batch_of_columns(schema: pa.Schema, columns: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _array_of(batch: pa.RecordBatch) -> pa.Array:
    return batch.column(0)


def _chunked_of(kind: pa.DataType, chunks: list[pa.Array]) -> pa.ChunkedArray:
    return pa.chunked_array(chunks, type=kind)


def _table_of(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, schema=schema)
