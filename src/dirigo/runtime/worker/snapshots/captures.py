"""How the small parts of captures are written: what the kernel keeps of an actor, its progress, and where a split is.

Addresses are written without the job: whoever goes on from them is another generation, with another name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from dirigo.flow.plan.states import StageCapture
from dirigo.flow.sources.reader import ReaderCapture
from dirigo.kernel import Address, Kept
from dirigo.runtime.snapshots.blobs import BlobRef
from dirigo.runtime.snapshots.codec import decode, encode
from dirigo.runtime.transport.payload import PackedPayload, Schemas, from_plain, to_plain

_reader_encoder = msgspec.msgpack.Encoder()
_reader_decoder = msgspec.msgpack.Decoder(ReaderCapture)


class ActorHead(NamedTuple):
    """The small part of what an actor keeps."""

    stage: Any
    ended: tuple[str, ...]  # places of upstream actors
    timers: tuple[tuple[float, Any], ...]
    inline: bytes | None  # its own states, if they are small


class WrittenBody(NamedTuple):
    """What was written of an actor's own states the last time."""

    changes: int  # how often they may have changed until then
    ref: BlobRef
    digest: bytes | None = None  # of its bytes; None if another process wrote them


def place_of_actor(address: Address) -> str:
    """An address without its job."""
    return address.partition("/")[2]


def actor_head(stage: Any, kept: Kept, inline: bytes | None = None) -> bytes:
    ended = tuple(map(place_of_actor, kept.ended))
    timers = tuple((due, _plain(payload)) for due, payload in kept.timers)
    return b"".join(encode(tuple(ActorHead(stage, ended, timers, inline))))


def restored(head: bytes, body: Any, run: str, schemas: Schemas) -> tuple[StageCapture, Kept]:
    """What an actor of this generation goes on from; ``body``: its own states if they were written apart."""
    read = read_head(head)
    if read.inline is not None:
        body = decode(read.inline)
    kept = Kept(tuple(f"{run}/{place}" for place in read.ended), restored_timers(read, schemas))
    return StageCapture(read.stage, body), kept


def read_head(head: bytes) -> ActorHead:
    return ActorHead(*decode(head))


def restored_timers(head: ActorHead, schemas: Schemas) -> tuple[tuple[float, Any], ...]:
    return tuple((due, _opened(payload, schemas)) for due, payload in head.timers)


def source_entry(captured: ReaderCapture) -> bytes:
    return _reader_encoder.encode(captured)


def restored_source(entry: bytes) -> ReaderCapture:
    return _reader_decoder.decode(entry)


_PACKED = "packed"


def _plain(payload: Any) -> Any:
    return (_PACKED, to_plain(payload)) if type(payload) is PackedPayload else (None, payload)


def _opened(written: tuple[str | None, Any], schemas: Schemas) -> Any:
    kind, payload = written
    return from_plain(payload, schemas) if kind == _PACKED else payload
