"""Packets: every kind of message there and back, and nothing but a refusal for whatever is no packet."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.kernel import Data, Output
from dirigo.kernel.interface.message import Intent
from dirigo.runtime.transport.payload import PackedPayload, Schemas, sealed
from dirigo.runtime.transport.wire import FORMAT, BadPacketError, Broken, decode_head, stripped
from runtime.packets import (
    TO,
    Reading,
    all_kinds,
    batch,
    carried,
    control_payloads,
    data,
    decode,
    messages_around,
    packet,
    piles,
    plain_messages,
    regular_payloads,
    same,
    unpacked,
)

REGULAR = regular_payloads()
CONTROL = control_payloads()


def fields_of(message: Any) -> list[Any]:
    return [getattr(message, field) for field in message.__struct_fields__]


def test_there_is_a_case_for_each_kind_of_message() -> None:
    kinds = {type(each) for each in [*messages_around(None), *plain_messages(), data(None)]}
    assert all_kinds() <= kinds


@pytest.mark.parametrize("message", plain_messages(), ids=lambda each: type(each).__name__)
def test_a_message_without_a_payload_comes_back_as_it_was(message: Any) -> None:
    assert carried([message]) == [message]


@pytest.mark.parametrize("name", REGULAR)
def test_a_data_message_comes_back_as_it_was_and_still_packed(name: str) -> None:
    sent = data(REGULAR[name])
    (back,) = carried([sent])
    assert type(back) is Data
    assert type(back.payload) is PackedPayload
    assert same(REGULAR[name], unpacked(back.payload))
    assert [field for field in fields_of(back) if field is not back.payload] == [
        field for field in fields_of(sent) if field is not sent.payload
    ]


@pytest.mark.parametrize("name", CONTROL)
@pytest.mark.parametrize("kind", range(len(messages_around(None))))
def test_a_control_message_comes_back_as_it_was(name: str, kind: int) -> None:
    sent = messages_around(CONTROL[name])[kind]
    (back,) = carried([sent])
    assert type(back) is type(sent)
    for before, after in zip(fields_of(sent), fields_of(back), strict=True):
        assert same_deeply(before, after)


def same_deeply(one: Any, other: Any) -> bool:
    """The same, also inside of the records that a message has in itself."""
    if isinstance(one, msgspec.Struct) and hasattr(one, "payload"):
        return type(one) is type(other) and all(map(same_deeply, fields_of(one), fields_of(other)))
    if isinstance(one, tuple) and type(one) is tuple and type(other) is tuple:
        return len(one) == len(other) and all(map(same_deeply, one, other))
    return same(one, other)


def test_many_messages_share_a_packet_and_keep_their_own_frames() -> None:
    messages: list[Any] = []
    for payload in REGULAR.values():
        messages += [data(payload), *plain_messages()]
    for payload in CONTROL.values():
        messages += messages_around(payload)
    back = carried(messages)
    assert [type(each) for each in back] == [type(each) for each in messages]
    for before, after in zip(messages, back, strict=True):
        if type(before) is Data:
            assert same(before.payload, unpacked(after.payload))


def test_a_forwarded_message_is_the_same_bytes_and_needs_no_reading() -> None:
    sender, middle, last = Schemas(), Schemas(), Schemas()
    sent = data((0, batch(50_000)))
    _, (arrived,) = decode([bytes(frame) for frame in packet([sent], sender)], middle)
    assert isinstance(arrived, Data)
    packed = arrived.payload
    header, frames, size, schema_ids = stripped(arrived, middle)
    assert isinstance(header, Data)
    assert frames == packed.frames
    assert header.payload is packed.head
    assert size == packed.nbytes
    assert schema_ids == packed.schema_ids()
    _, (there,) = decode([bytes(frame) for frame in packet([arrived], middle)], last)
    assert isinstance(there, Data)
    assert same(sent.payload, there.payload.unpack())


def test_a_receiver_learns_a_schema_once() -> None:
    sender, receiver, known = Schemas(), Schemas(), set[int]()
    first = packet([data((0, batch()))], sender, known)
    second = packet([data((0, batch(4)))], sender, known)
    assert len(known) == 1
    decode([bytes(frame) for frame in first], receiver)
    head, (back,) = decode([bytes(frame) for frame in second], receiver)
    assert head.schemas == ()
    assert isinstance(back, Data)
    assert same((0, batch(4)), back.payload.unpack())
    with pytest.raises(BadPacketError, match="schema"):
        decode([bytes(frame) for frame in second], Schemas())


def test_a_large_state_travels_in_several_frames() -> None:
    partial = piles(200_000).take()
    frames = packet([messages_around(partial)[1]], Schemas())
    assert len(frames) > 3
    assert len(frames[0]) < 20_000
    _, (back,) = decode([bytes(frame) for frame in frames], Schemas())
    assert same(partial, back.partial)


class Explosive:
    """Can be sent and not be read."""

    def __reduce__(self) -> Any:
        return (explode, ())


def explode() -> None:
    raise KeyError("a lost import")


def packed_in(value: Any) -> list[PackedPayload]:
    """All that is packed in a message."""
    if isinstance(value, PackedPayload):
        return [value]
    if isinstance(value, msgspec.Struct):
        return packed_in(tuple(fields_of(value)))
    return [found for each in value for found in packed_in(each)] if isinstance(value, tuple) else []


def test_nothing_is_read_when_it_arrives_but_where_the_code_of_its_job_runs() -> None:
    good = plain_messages()[0]
    frames = packet([*messages_around(Explosive()), good, data((0, Explosive()))], Schemas())
    _, back = decode([bytes(frame) for frame in frames], Schemas())
    assert back[5] == good
    for message in (*back[:5], back[6]):
        assert packed_in(message)
        for packed in packed_in(message):
            with pytest.raises(KeyError, match="a lost import"):
                packed.unpack()


def test_what_was_sealed_is_not_pickled_again_and_is_itself_where_it_was_made() -> None:
    payload = [Reading("Oslo", 5.0)]
    packed = sealed(payload, Schemas(), is_handed_over=False)
    payload.append(Reading("Oslo", 6.0))  # by a function that goes on with what it has emitted
    assert packed.unpack() is payload
    for message in messages_around(packed):
        (back,) = carried([message])
        assert packed_in(back)
        assert all(same([Reading("Oslo", 5.0)], each) for each in packed_in(back))


def test_rows_among_the_outputs_of_a_lessee_are_counted_where_they_arrive() -> None:
    (back,) = carried([Intent(TO, 1, 0, 1, (Output(TO, (0, batch(7))),))])
    (packed,) = packed_in(back)
    assert packed.rows == 7
    assert same((0, batch(7)), packed)


# --- what is no packet -------------------------------------------------------------------------------------------------


def whole_packet() -> list[bytes]:
    """A packet with a bit of everything, small."""
    large = [data((0, batch(400))), data((1, [(0, batch(2)), (1, batch(500))]))]
    states = messages_around(piles(300).take()) + messages_around(REGULAR["an object of a user's"])
    return [bytes(frame) for frame in packet([*large, *states, *plain_messages()], Schemas())]


def read_all(frames: list[bytes]) -> None:
    """Take a packet in and read what it carries: refused, broken, or fine."""
    try:
        _, messages = decode(frames, Schemas())
    except BadPacketError:
        return
    for message in messages:
        assert isinstance(message, Broken | msgspec.Struct)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_random_bytes_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(BadPacketError):
        decode(frames, Schemas())


@given(st.recursive(st.none() | st.integers() | st.binary(max_size=9) | st.text(max_size=9), st.lists, max_leaves=30))
def test_well_formed_nonsense_is_refused(value: Any) -> None:
    try:
        body = msgspec.msgpack.encode(value)
    except OverflowError:  # a number too large to be written
        return
    with pytest.raises(BadPacketError):
        decode([body], Schemas())


HEAD_CUTS = len(whole_packet()[0])


def test_a_head_that_is_cut_off_anywhere_is_refused() -> None:
    frames = whole_packet()
    for length in range(HEAD_CUTS):
        with pytest.raises(BadPacketError):
            decode([frames[0][:length], *frames[1:]], Schemas())


def test_frames_that_are_missing_are_noticed() -> None:
    frames = whole_packet()
    for count in range(1, len(frames)):
        with pytest.raises(BadPacketError):
            decode(frames[:count], Schemas())


def test_frames_that_are_cut_off_do_no_harm() -> None:
    frames = whole_packet()
    rng = Random(3)
    for number in range(1, len(frames)):
        for length in {0, 1, 7, len(frames[number]) - 1, *(rng.randrange(len(frames[number])) for _ in range(20))}:
            read_all([*frames[:number], frames[number][:length], *frames[number + 1 :]])


# With the first two, a pickle asks for so much memory that it takes half a minute to be refused.
@pytest.mark.parametrize("seed", [*(pytest.param(seed, marks=pytest.mark.acceptance) for seed in range(2)), *range(2, 6)])
def test_flipped_bits_in_a_head_do_no_harm(seed: int) -> None:
    frames = whole_packet()
    rng = Random(seed)
    for _ in range(300):
        head = bytearray(frames[0])
        for _ in range(rng.choice([1, 1, 2, 8])):
            head[rng.randrange(len(head))] ^= 1 << rng.randrange(8)
        read_all([bytes(head), *frames[1:]])


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_in_frames_do_no_harm(seed: int) -> None:
    frames = whole_packet()
    rng = Random(seed)
    for _ in range(100):
        number = rng.randrange(1, len(frames))
        body = bytearray(frames[number])
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        read_all([*frames[:number], bytes(body), *frames[number + 1 :]])


@pytest.mark.parametrize(
    "head",
    [
        None,
        [],
        [0],
        [1],
        [1, -1, 0, ()],
        [1, 1, 0, [[0, 0, b""]]],
        [9, 0, 0, ()],
        [1, 10**9, 0, ()],
        [0, 0, None, []],
        5,
        "x",
    ],
)
def test_payload_descriptions_that_make_no_sense_are_refused(head: Any) -> None:
    frames = packet([data(None)], Schemas())
    value = msgspec.msgpack.decode(frames[0])
    message = value[10][0]
    message[8] = head  # after the kind and seven fields of the header
    try:
        _, (back,) = decode([msgspec.msgpack.encode(value)], Schemas())
    except BadPacketError:
        return
    assert isinstance(back, Data)
    with pytest.raises((IndexError, TypeError, ValueError)):  # it is noticed where the job's code runs
        back.payload.unpack()


def test_a_packet_of_another_format_is_refused() -> None:
    value = msgspec.msgpack.decode(packet([], Schemas())[0])
    value[0] = FORMAT + 1
    with pytest.raises(BadPacketError, match=f"format {FORMAT + 1}"):
        decode([msgspec.msgpack.encode(value)], Schemas())


def test_a_head_with_text_that_is_no_text_is_refused() -> None:
    frames = packet([plain_messages()[0]], Schemas())
    with pytest.raises(BadPacketError):
        decode_head([frames[0].replace(b"job~1", b"job\xff\xfe")])


@pytest.mark.parametrize("depth", [100, 10_000, 1_000_000])
def test_a_head_that_is_nested_without_end_is_refused(depth: int) -> None:
    value = msgspec.msgpack.decode(packet([data(None)], Schemas())[0])
    value[10][0][8] = "here"
    whole = msgspec.msgpack.encode(value)
    nested = b"\x91" * depth + b"\xc0"
    with pytest.raises(BadPacketError):
        decode([whole.replace(msgspec.msgpack.encode("here"), nested)], Schemas())
