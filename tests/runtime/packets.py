"""Helpers of the tests of the wire: payloads of every kind, messages of every kind, and the way of a packet and back."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from dirigo.flow.event_time.watermark import END, Watermark
from dirigo.flow.operators.windows.partial_store import PartialKey, PartialStore
from dirigo.flow.plan.states import StageStates, WholeState
from dirigo.flow.rows.bad_rows import Bad
from dirigo.kernel import CriticalOutput, Data, Granularity, Lane, Output
from dirigo.kernel.interface.message import (
    Control,
    Critical,
    CriticalAck,
    Grant,
    Intent,
    Note,
    ProgramAck,
    Registration,
    Revoke,
    RevokeAck,
    SyncProgram,
    SyncReply,
    SyncRequest,
    SyncRequestAck,
    Unsync,
    View,
)
from dirigo.runtime.transport.payload import PackedPayload, Schemas
from dirigo.runtime.transport.wire import (
    FORMAT,
    Broken,
    PacketHead,
    Pressure,
    decode_head,
    decode_messages,
    encode_head,
    stripped,
)
from dirigo.state import ListState, MapState, StateSet, ValueState, add, declared_states

TO, FROM = "job~1/count/0", "job~1/source/1"


@dataclass(frozen=True)
class Reading:
    """A class of a user's, in a module that can be imported."""

    station: str
    value: float


def dynamic_class() -> type:
    """A class of a user's in a file that only the submitting process has, as a worker gets to know it."""
    module = types.ModuleType("a_script_of_somebody")
    exec(  # as cloudpickle makes it
        "class Tally:\n"
        "    def __init__(self, count): self.count = count\n"
        "    def __eq__(self, other): return self.count == other.count\n"
        "    def __hash__(self): return self.count\n",
        module.__dict__,
    )
    made = module.__dict__["Tally"]
    assert isinstance(made, type)
    return made


class Sums:
    """States as a user's function declares them."""

    total = ValueState(int, default=0, combine=add, replicated=True)
    by_city = MapState(str, int, default=0, combine=max)
    seen = ListState(str)


def state_set() -> StateSet:
    states = StateSet(declared_states(Sums))
    states.cell("total").set(7)
    states.cell("by_city")["Oslo"] = 3
    states.cell("seen").append("row")
    return states


def batch(rows: int = 3, column: str = "n") -> pa.RecordBatch:
    return pa.record_batch({column: np.arange(rows, dtype=np.int64), "name": pa.array([f"row {n}" for n in range(rows)])})


def piles(rows: int = 3) -> PartialStore:
    made = PartialStore()
    made.add(PartialKey(1, 0), batch(rows))
    made.add(PartialKey(1, 0), batch(2))
    made.add(PartialKey(2, 1, is_late=True), batch(1, "other"))
    return made


def regular_payloads() -> dict[str, Any]:
    """What travels in data messages."""
    return {
        "a batch": (0, batch()),
        "a large batch": (2, batch(50_000)),
        "no rows": (0, batch(0)),
        "a slice": (0, batch(100).slice(10, 5)),
        "nested columns": (0, pa.record_batch({"x": pa.array([[1, None], None, []]), "y": pa.array([{"z": 1}] * 3)})),
        "a dictionary column": (0, pa.record_batch({"x": pa.array(["a", "b", "a"]).dictionary_encode()})),
        "slots": (1, [(0, batch()), (3, batch(2, "other")), (7, batch(40_000))]),
        "no slots": (1, []),
        "bad rows": (1, [Bad({"n": "x"}, ValueError("no number")), Bad("{broken", "no JSON")]),
        "an object of a user's": (0, Reading("Oslo", 1.5)),
        "an object of a class from nowhere": (0, dynamic_class()(5)),
        "a large buffer": (0, {"matrix": np.arange(100_000), "tiny": b"x"}),
        "nothing": None,
        "text": "hello",
        "a tuple that looks like a batch": (True, batch()),
    }


def control_payloads() -> dict[str, Any]:
    """What travels in control messages: criticals, states on their way to the lessor, views on their way back."""
    states = StageStates([FROM], piles(), "to")
    states.watermark = 12_345
    ordered: WholeState[dict[str, Any]] = WholeState(dict)
    ordered.value = {"rows": batch(), "seen": {1, 2}}
    return {
        "nothing": None,
        "a watermark": Watermark(1_700_000_000_000),
        "an idle watermark": Watermark(5, is_idle=True),
        "the end": Watermark(END),
        "piles": piles().take(),
        "large piles": piles(60_000).take(),
        "what is kept": ordered.take(),
        "states of a function": state_set().take(),
        "a view of a function": state_set().view(),
        "a view": states.view(),
        "an object of a user's": Reading("Oslo", 1.5),
        "an object of a class from nowhere": dynamic_class()(5),
        "a batch": (0, batch(5_000)),
        "a large buffer": np.arange(100_000),
        "a pair that looks like a watermark": (0, 5, False),
    }


def messages_around(payload: Any) -> list[Any]:
    """Every kind of control message that can carry something, with this in all its places."""
    critical = Critical(payload, 1.5, 2.5)
    outputs = (Output(TO, payload, 1.0), CriticalOutput(TO, payload, Granularity.ONE, True, 1.0, 9.0))
    return [
        SyncProgram(TO, 1, FROM, 0, 4, Granularity.ONE, 2, (FROM,), True, (critical, critical), ((0, 1, 5),)),
        SyncReply(TO, 1, 2, 7, payload, ((TO, 1, 3),), 2, ((10.0, payload), (11.0, payload))),
        Unsync(TO, 1, 0, 7, (FROM,), True, 5, payload),
        View(TO, 1, 0, 5, payload),
        Intent(TO, 1, 2, 9, outputs),
    ]


def plain_messages() -> list[Any]:
    """Every kind that carries nothing of a user's."""
    return [
        ProgramAck(TO, 1, FROM, 4),
        CriticalAck(TO, 1, FROM, 4),
        SyncRequest(TO, 1, 0, 7, 3, ((FROM, 0, 2),)),
        SyncRequestAck(TO, 1, 0, 7),
        Registration(TO, 1, FROM, 0, 3, (1, 2)),
        Grant(TO, 1, FROM, 3, (1, 2), 4),
        Revoke(TO, 1, FROM, 0, 3),
        Note(TO, 1, FROM, 0, "late"),
        RevokeAck(TO, 1, FROM, 0, 3, ((1, 2),), 2),
        Pressure("job~1", 2, 1 << 40, 5, None),
        Pressure("job~1", 2, 0, 0, -5),
    ]


def data(payload: Any, seq: int = 1) -> Data:
    return Data(TO, 1, FROM, 0, Lane.FORWARD, seq, 3, payload, 1.5, 2.5)


def all_kinds() -> set[type]:
    return {Data, *get_args(Control)}


def packet(messages: Sequence[Any], schemas: Schemas, known: set[int] | None = None, number: int = 1) -> list[Any]:
    """The frames of one packet, as ``Peers`` makes them; ``known`` are the schemas that the receiver has."""
    known = set() if known is None else known
    headers: list[Any] = []
    frames: list[Any] = []
    needed: list[int] = []
    for message in messages:
        if type(message) is Pressure:
            headers.append(message)
            continue
        header, its_frames, _, its_schemas = stripped(message, schemas)
        headers.append(header)
        frames += its_frames
        needed += its_schemas
    new = [each for each in dict.fromkeys(needed) if each not in known]
    known.update(new)
    told = tuple((each, schemas.texts[each]) for each in new)
    return [encode_head(PacketHead(FORMAT, 0, 3, 1, 4, number, (0, 0), False, (0.0, 0.0), told, tuple(headers))), *frames]


def decode(frames: Sequence[bytes], schemas: Schemas) -> tuple[PacketHead, list[Any]]:
    """Take a packet in, as the fetcher does."""
    head = decode_head(frames)
    return head, list(decode_messages(head, frames, schemas))


def carried(messages: Sequence[Any], receiver: Schemas | None = None) -> list[Any]:
    """Messages after their way over the wire."""
    frames = [bytes(frame) for frame in packet(messages, Schemas())]
    _, arrived = decode(frames, receiver or Schemas())
    assert not any(isinstance(each, Broken) for each in arrived), arrived
    return arrived


def unpacked(payload: Any) -> Any:
    return payload.unpack() if isinstance(payload, PackedPayload) else payload


def same(one: Any, other: Any) -> bool:
    """Whether two payloads mean the same; the other one may have come, and still be packed."""
    other = unpacked(other)
    if isinstance(one, Watermark | Reading | StateSet):
        return bool(one == other)
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, Bad):
        return isinstance(other, Bad) and one.row == other.row and repr(one.error) == repr(other.error)
    if isinstance(one, pa.RecordBatch):
        return bool(one.equals(other)) and bool(one.schema.equals(other.schema))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one).__name__ == type(other).__name__ and bool(one == other)
