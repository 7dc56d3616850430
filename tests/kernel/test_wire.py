"""Every message survives msgspec's MessagePack: it is encoded as it is, and decoded by its type."""

import msgspec
import pytest

from dirigo.kernel import Granularity, Lane
from dirigo.kernel.interface import message
from dirigo.kernel.interface.message import CriticalRun, Message, SyncReply
from kernel.scenario import (
    A,
    D,
    S,
    critical,
    critical_ack,
    forwarded,
    grant,
    handed_back,
    intent,
    out,
    program,
    program_ack,
    registration,
    request_ack,
    revoke,
    revoke_ack,
    row,
    sync_request,
)

EXAMPLES: list[msgspec.Struct] = [
    out(D, "x"),
    critical(D, "W", one=True, final=True),
    row("a", 1, view=2),
    forwarded("a", 2, 2),
    handed_back("a", 3, 2),
    program(1, "V", "W", cut=((10, 1, 4), (12, 2, 5)), final=True),
    program(2, "W", one=7),
    program(2, "W", one=7).criticals[0],
    program_ack(1),
    critical_ack(1),
    sync_request(1, 2, forwards=3, cuts=((S, 10, 4),)),
    message.Note(A, 1, D, 2, "late"),
    request_ack(1, 2),
    SyncReply(A, 1, 2, 1, {"seen": ["a"]}, ((D, 5, 1),), 3, ((5.0, "due"),)),
    message.Unsync(A, 2, 1, 1, (D,), False, 4, {"seen": ["a"]}),
    message.View(A, 2, 1, 4, {"seen": ["a"]}),
    CriticalRun(A, 1, ((S, 1, "W"),), Granularity.ONE, 7, True, 1.0, 2.0),
    registration(1, 2, 3),
    grant(1, 2, view=4),
    revoke(1),
    revoke_ack(1, (2, 4)),
    intent(1, 2, critical(D, "W"), out(D, "x")),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_a_message_comes_back_as_it_was(example: msgspec.Struct) -> None:
    twin = msgspec.msgpack.decode(msgspec.msgpack.encode(example), type=type(example))
    assert twin == example
    assert repr(twin) == repr(example)  # which shows enums as enums, and tuples as tuples


@pytest.mark.parametrize("lane", Lane)
def test_a_lane_is_compared_by_identity_and_so_has_to_come_back_as_the_member(lane: Lane) -> None:
    example = msgspec.structs.replace(row("a", 1), lane=lane)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(example), type=type(example)).lane is lane


def test_every_kind_of_message_has_an_example_here() -> None:
    assert {type(example) for example in EXAMPLES} >= set(Message.__args__)


@pytest.mark.parametrize(
    "example", [example for example in EXAMPLES if isinstance(example, Message)], ids=lambda example: type(example).__name__
)
def test_one_decoder_tells_all_kinds_of_messages_apart(example: msgspec.Struct) -> None:
    twin = msgspec.msgpack.Decoder(Message).decode(msgspec.msgpack.encode(example))
    assert type(twin) is type(example)
    assert twin == example


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        row("a", 1).seq = 2  # type: ignore[misc]
