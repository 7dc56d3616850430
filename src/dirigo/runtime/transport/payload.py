"""Payloads as bytes: Arrow batches as Arrow writes them, everything else pickled with its large buffers apart.

A payload is packed when it leaves a worker and unpacked when, and where, it is executed; on the way it is a
``PackedPayload``, which can be sent on as it is. A batch travels without its schema, which each receiver
gets to know once by a short hash. Pickling and unpickling run user code, so what is not made of batches is
``sealed`` where user code runs, before the kernel gets it: when it leaves, its bytes are there.

Unpickling is safe because only holders of the cluster's keys can connect, and they may run code here anyway.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import cloudpickle
import pyarrow as pa

from dirigo.kernel import Address, job_of
from dirigo.runtime.transport.plain_columns import has_dictionary

INLINE_BYTES_MOST = 4096  # smaller bodies ride in the head of their packet; each frame of its own costs some microseconds
_PICKLED, _BATCH, _BATCHES = 0, 1, 2
_NOT_ALONE = -1  # in place of the id of a schema whose batches have to be pickled

Frame = bytes | memoryview
_NOT_HERE: Final = object()  # in place of the content of what came from elsewhere


class Schemas:
    """The schemas that this process has met, by a hash of their content."""

    def __init__(self) -> None:
        self.by_id: dict[int, pa.Schema] = {}
        self.texts: dict[int, bytes] = {}
        self._last: dict[str, dict[tuple[Address, int, int], tuple[pa.Schema, int]]] = {}  # by job

    def has_dictionary(self, to: Address, port: int, slot: int, schema: pa.Schema) -> bool:
        """Whether a batch of this schema cannot travel without it."""
        return self.id_of(to, port, slot, schema) == _NOT_ALONE

    def id_of(self, to: Address, port: int, slot: int, schema: pa.Schema) -> int:
        """The id of a schema that goes to an actor. Nearly always it is the one that went there before."""
        job = job_of(to)
        last = self._last.get(job)
        if last is None:
            last = self._last[job] = {}
        key = (to, port, slot)
        known = last.get(key)
        if known is not None and known[0].equals(schema):
            return known[1]
        number = _NOT_ALONE
        if not has_dictionary(schema):
            text = schema.serialize().to_pybytes()
            number = int.from_bytes(blake2b(text, digest_size=7).digest(), "little")
            self.learn(number, text)
        last[key] = (schema, number)
        return number

    def learn(self, number: int, text: bytes) -> None:
        if number not in self.by_id:
            self.by_id[number] = pa.ipc.read_schema(pa.py_buffer(text))
            self.texts[number] = text

    def forget_job(self, job: str) -> None:
        self._last.pop(job, None)


class PackedPayload:
    """A payload in bytes: a small description, and the bodies that did not fit into it."""

    __slots__ = ("_content", "frames", "head", "nbytes", "schemas")

    def __init__(self, head: Sequence[Any], frames: Sequence[Frame], schemas: Schemas, content: Any = _NOT_HERE) -> None:
        self.head = head  # (kind, number of frames, port, parts) or (_PICKLED, number of frames, body, buffers)
        self.frames = frames
        self.schemas = schemas
        self._content = content  # what was sealed, for those who execute it in this very process
        self.nbytes = _inlined_bytes(head) + sum(map(len, frames))

    def unpack(self) -> Any:
        """The payload. Runs user code, unless it is made of batches."""
        if self._content is not _NOT_HERE:
            return self._content
        kind = self.head[0]
        if kind == _BATCH:
            return (self.head[2], self._batch(self.head[3][0]))
        if kind == _BATCHES:
            return (self.head[2], [(part[0], self._batch(part)) for part in self.head[3]])
        body, buffers = self.head[2], self.head[3]
        return pickle.loads(self._body(body), buffers=[self._body(buffer) for buffer in buffers])

    @property
    def rows(self) -> int:
        """How many rows it carries, without looking into it; of several tables, the longest has."""
        return max((part[3] for part in self.head[3]), default=1) if self.head[0] != _PICKLED else 1

    def schema_ids(self) -> list[int]:
        return [part[1] for part in self.head[3]] if self.head[0] != _PICKLED else []

    def _batch(self, part: Sequence[Any]) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(pa.py_buffer(self._body(part[2])), self.schemas.by_id[part[1]])

    def _body(self, body: int | bytes) -> Frame:
        return self.frames[body] if isinstance(body, int) else body


def pack(payload: Any, to: Address, schemas: Schemas) -> PackedPayload:
    """A payload as bytes."""
    frames: list[Frame] = []
    if type(payload) is tuple and len(payload) == 2 and type(payload[0]) is int:
        port, content = payload
        if isinstance(content, pa.RecordBatch) and not schemas.has_dictionary(to, port, 0, content.schema):
            part = _part(to, port, 0, content, frames, schemas)
            return PackedPayload((_BATCH, len(frames), port, (part,)), frames, schemas)
        if _is_slotted(content) and not any(schemas.has_dictionary(to, port, slot, batch.schema) for slot, batch in content):
            parts = tuple(_part(to, port, slot, batch, frames, schemas) for slot, batch in content)
            return PackedPayload((_BATCHES, len(frames), port, parts), frames, schemas)
    return _pickled(payload, schemas)


def sealed(payload: Any, schemas: Schemas, *, is_handed_over: bool) -> PackedPayload:
    """Something of the user's with its bytes. Large buffers are shared, not copied, if nobody can change them any more."""
    return _pickled(payload, schemas, payload, has_buffers_apart=is_handed_over)


def to_plain(payload: PackedPayload) -> tuple[Any, ...]:
    """Something sealed as plain data that can be kept: its own bytes, and none of anybody's objects."""
    kind, count, body, buffers = payload.head
    assert kind == _PICKLED, "only what is not made of batches is sealed"
    frames = [bytes(frame) for frame in payload.frames]
    return (count, _kept_body(body), tuple(map(_kept_body, buffers)), frames)


def from_plain(plain: tuple[Any, ...], schemas: Schemas) -> PackedPayload:
    count, body, buffers, frames = plain
    return PackedPayload((_PICKLED, count, body, buffers), frames, schemas)


def _kept_body(body: int | Frame) -> int | bytes:
    return body if isinstance(body, int) else bytes(body)


def opened(payload: Any) -> Any:
    """A payload that may have been packed or sealed."""
    return payload.unpack() if type(payload) is PackedPayload else payload


def _pickled(payload: Any, schemas: Schemas, content: Any = _NOT_HERE, *, has_buffers_apart: bool = True) -> PackedPayload:
    frames: list[Frame] = []
    buffers: list[pickle.PickleBuffer] = []
    callback = buffers.append if has_buffers_apart else None
    try:
        text = pickle.dumps(payload, protocol=5, buffer_callback=callback)
    except (pickle.PicklingError, AttributeError, TypeError):  # of a class that came with the job and cannot be imported
        buffers.clear()
        text = cloudpickle.dumps(payload, protocol=5, buffer_callback=callback)
    body = _inlined(memoryview(text), frames)
    apart = tuple(_inlined(buffer.raw(), frames) for buffer in buffers)
    return PackedPayload((_PICKLED, len(frames), body, apart), frames, schemas, content)


def _part(
    to: Address, port: int, slot: int, batch: pa.RecordBatch, frames: list[Frame], schemas: Schemas
) -> tuple[int, int, int | Frame, int]:
    body = _inlined(memoryview(batch.serialize()), frames)
    return (slot, schemas.id_of(to, port, slot, batch.schema), body, batch.num_rows)


def is_rows(payload: Any) -> bool:
    """Whether a payload is made of batches, and so runs no user code when it is packed."""
    if type(payload) is not tuple or len(payload) != 2 or type(payload[0]) is not int:
        return False
    return type(payload[1]) is pa.RecordBatch or _is_slotted(payload[1])


def _is_slotted(content: Any) -> bool:
    return (
        type(content) is list
        and bool(content)
        and all(
            type(each) is tuple and len(each) == 2 and type(each[0]) is int and isinstance(each[1], pa.RecordBatch)
            for each in content
        )
    )


def _inlined(body: memoryview, frames: list[Frame]) -> int | Frame:
    """The body itself if it is small, or the number of its frame."""
    if len(body) <= INLINE_BYTES_MOST:
        return body
    frames.append(body)
    return len(frames) - 1


def _inlined_bytes(head: Sequence[Any]) -> int:
    """The size of all bodies that ride in the head; the others are numbers of frames."""
    if head[0] == _PICKLED:
        bodies = (head[2], *head[3])
    elif len(head[3]) == 1:  # by far the most frequent
        bodies = (head[3][0][2],)
    else:
        bodies = tuple(part[2] for part in head[3])
    size = 0
    for body in bodies:
        if type(body) is not int:
            size += len(body)
    return size
