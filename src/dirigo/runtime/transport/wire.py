"""Messages of the kernel as they travel: many of them in one packet, headers apart from payloads.

A packet is one multipart message: a head with the headers of all its messages, then the larger bodies of their payloads as
frames. Whatever cannot be a packet is refused with ``BadPacketError`` before anything of it takes effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from dirigo.kernel import Address, Data, Message, WorkerId
from dirigo.kernel.interface.message import (
    Critical,
    Intent,
    SyncProgram,
    SyncReply,
    Unsync,
    View,
)
from dirigo.runtime.transport.payload import Frame, PackedPayload, Schemas, pack

FORMAT = 2  # of packets; workers of one cluster run the same version
_PACKED = -1
_plain: dict[type[msgspec.Struct], int] = {}
_plain_types: list[type[msgspec.Struct]] = []


def register_plain(kind: type[msgspec.Struct]) -> None:
    """Have payloads of a class travel as their fields, in the head of a packet. In the same order in all processes."""
    if kind not in _plain:
        _plain[kind] = len(_plain_types)
        _plain_types.append(kind)


class BadPacketError(Exception):
    """Bytes that are no packet of this cluster."""


class Broken(NamedTuple):
    """A message whose payload cannot be read: its job is lost."""

    to: Address
    error: str


class Pressure(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """How much of a job waits at a worker, how far its sources there are, and what rows cost: for those with its sources."""

    job: str
    worker: WorkerId
    queued_bytes: int
    state_bytes: int
    behind_ms: int | None  # the event time of the furthest behind of its sources here that have not ended
    costs: tuple[tuple[str, int, float], ...] = ()  # (function, rows, seconds per row), if there is news


class PacketHead(msgspec.Struct, frozen=True, array_like=True):
    """What a packet begins with."""

    format: int
    sender: WorkerId
    incarnation: int  # of the sender
    to: WorkerId
    to_incarnation: int
    number: int  # on this link; 0 for one that carries acknowledgments only
    acks: tuple[int, int]  # the last packets that the sender has got from the receiver, by link
    is_missing: bool  # the sender has noticed a gap, and wants everything after its acknowledgments again
    load: tuple[float, float]  # seconds of work waiting at the sender, (urgent, in all)
    schemas: tuple[tuple[int, bytes], ...]
    messages: tuple[Message | Pressure, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PacketHead)


def encode_head(head: PacketHead) -> bytes:
    return _encoder.encode(head)


def stripped(message: Message, schemas: Schemas) -> tuple[Message, list[Frame], int, list[int]]:
    """A message with bytes for its payloads: the header, the frames, their size, and the schemas that it needs."""
    kind = type(message)
    if kind is Data:
        payload = message.payload  # type: ignore[union-attr]
        packed = payload if type(payload) is PackedPayload else pack(payload, message.to, schemas)
        return _with_payload(message, packed.head), packed.frames, packed.nbytes, packed.schema_ids()  # type: ignore[arg-type,return-value]
    strip = _STRIPPERS.get(kind)
    if strip is None:
        return message, [], 0, []
    writer = _Writer(message.to, schemas)
    header: Message = strip(message, writer)
    return header, writer.frames, writer.nbytes, writer.schema_ids


def decode_head(frames: Sequence[bytes]) -> PacketHead:
    """The head of a packet: enough to know whether the rest is wanted."""
    try:
        head = _decoder.decode(frames[0])
    except Exception as error:  # of kinds that msgspec leaves to those who decode text or nest values too deep
        raise BadPacketError(f"{type(error).__name__}: {error}") from error
    if head.format != FORMAT:
        raise BadPacketError(f"format {head.format}")
    return head


def decode_messages(head: PacketHead, frames: Sequence[bytes], schemas: Schemas) -> list[Message | Pressure | Broken]:
    """The messages of a packet. All that they carry stays packed: this runs no user code."""
    try:
        for number, text in head.schemas:
            schemas.learn(number, text)
        reader = _Reader(frames[1:], schemas)
        return [_restored(message, reader) for message in head.messages]
    except BadPacketError:
        raise
    except Exception as error:  # bytes may be wrong in more ways than can be listed
        raise BadPacketError(f"{type(error).__name__}: {error}") from error


def _restored(message: Message | Pressure, reader: _Reader) -> Message | Pressure | Broken:
    if type(message) is Data:
        return _with_payload(message, reader.packed(message.payload))
    restore = _RESTORERS.get(type(message))
    if restore is None:
        return message
    try:
        restored: Message = restore(message, reader)
    except BadPacketError:
        raise
    except Exception as error:  # bytes may be wrong in more ways than can be listed
        return Broken(message.to, f"{type(error).__name__}: {error}")  # type: ignore[union-attr]
    return restored


def _with_payload(data: Data, payload: Any) -> Data:
    return Data(
        data.to,
        data.worker,
        data.sender,
        data.origin,
        data.lane,
        data.seq,
        data.view,
        payload,
        data.created,
        data.deadline,
        data.sent,
        data.trail,
    )


# --- control messages that carry something of the user's -------------------------------------------------------------------


class _Writer:
    """Replaces payloads by their descriptions, and gathers their frames."""

    def __init__(self, to: Address, schemas: Schemas) -> None:
        self.frames: list[Frame] = []
        self.nbytes = 0
        self.schema_ids: list[int] = []
        self._to = to
        self._schemas = schemas

    def __call__(self, payload: Any) -> Any:
        if payload is None:
            return None
        kind = _plain.get(type(payload))
        if kind is not None:
            return (kind, *msgspec.structs.astuple(payload))
        packed = payload if type(payload) is PackedPayload else pack(payload, self._to, self._schemas)
        self.frames += packed.frames
        self.nbytes += packed.nbytes
        self.schema_ids += packed.schema_ids()
        return (_PACKED, packed.head)


class _Reader:
    """Hands out the frames of a packet, message by message, and puts payloads back."""

    def __init__(self, frames: Sequence[bytes], schemas: Schemas) -> None:
        self._frames = frames
        self._next = 0
        self._schemas = schemas

    def packed(self, head: Any) -> PackedPayload:
        count = head[1]
        if not 0 <= count <= len(self._frames) - self._next:
            raise BadPacketError("frames are missing")
        frames = self._frames[self._next : self._next + count]
        self._next += count
        packed = PackedPayload(head, frames, self._schemas)
        if any(number not in self._schemas.by_id for number in packed.schema_ids()):
            raise BadPacketError("a schema is missing")
        return packed

    def __call__(self, described: Any) -> Any:
        if described is None:
            return None
        if described[0] == _PACKED:
            return self.packed(described[1])
        return _plain_types[described[0]](*described[1:])


def _on_program(message: SyncProgram, change: Any) -> SyncProgram:
    criticals = tuple(
        Critical(change(each.payload), each.created, each.deadline, each.sent, each.trail) for each in message.criticals
    )
    return msgspec.structs.replace(message, criticals=criticals)


def _on_reply(message: SyncReply, change: Any) -> SyncReply:
    timers = tuple((due, change(payload)) for due, payload in message.timers)
    return msgspec.structs.replace(message, partial=change(message.partial), timers=timers)


def _on_view(message: Unsync | View, change: Any) -> Unsync | View:
    return message if message.view is None else msgspec.structs.replace(message, view=change(message.view))


def _on_intent(message: Intent, change: Any) -> Intent:
    outputs = tuple(msgspec.structs.replace(output, payload=change(output.payload)) for output in message.outputs)
    return msgspec.structs.replace(message, outputs=outputs)


# The same walk strips and restores, and meets payloads in the same order.
_STRIPPERS: dict[type, Any] = {
    SyncProgram: _on_program,
    SyncReply: _on_reply,
    Unsync: _on_view,
    View: _on_view,
    Intent: _on_intent,
}
_RESTORERS = _STRIPPERS
