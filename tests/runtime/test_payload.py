"""Payloads as bytes and back: batches, objects of users, and what may be sent on as it is."""

from __future__ import annotations

from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from dirigo.runtime.transport.payload import INLINE_BYTES_MOST, PackedPayload, Schemas, pack
from runtime.packets import TO, batch, control_payloads, dynamic_class, regular_payloads, same

PAYLOADS = {**control_payloads(), **regular_payloads()}


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_comes_back_as_it_was(name: str) -> None:
    payload = PAYLOADS[name]
    assert same(payload, pack(payload, TO, Schemas()).unpack())


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_size_of_a_payload_is_that_of_its_bytes(name: str) -> None:
    packed = pack(PAYLOADS[name], TO, Schemas())
    assert packed.nbytes >= sum(len(frame) for frame in packed.frames)
    assert all(len(frame) > INLINE_BYTES_MOST for frame in packed.frames)
    assert packed.head[1] == len(packed.frames)


def test_small_bodies_ride_along_and_large_ones_go_apart() -> None:
    assert not pack((0, batch(3)), TO, Schemas()).frames
    assert len(pack((0, batch(50_000)), TO, Schemas()).frames) == 1
    assert len(pack((0, [(0, batch(50_000)), (1, batch(1)), (2, batch(50_000))]), TO, Schemas()).frames) == 2


def test_a_large_buffer_is_not_copied_into_the_pickle() -> None:
    array = np.arange(1_000_000)
    packed = pack(array, TO, Schemas())
    assert max(len(frame) for frame in packed.frames) == array.nbytes
    assert packed.nbytes < array.nbytes + 10_000


def test_a_slice_travels_without_the_rest_of_its_batch() -> None:
    assert pack((0, batch(100_000).slice(5, 10)), TO, Schemas()).nbytes < 10_000


def test_a_schema_is_described_once_and_found_by_its_content() -> None:
    schemas = Schemas()
    first = pack((0, batch()), TO, schemas)
    again = pack((0, batch(9)), "job~1/count/5", schemas)
    other = pack((0, batch(3, "other")), TO, schemas)
    assert first.schema_ids() == again.schema_ids() != other.schema_ids()
    assert len(schemas.texts) == 2
    assert Schemas().id_of("x/y/0", 0, 0, batch().schema) == first.schema_ids()[0]  # in every process the same


def test_schemas_that_differ_in_a_detail_are_different_schemas() -> None:
    plain = pa.schema([pa.field("n", pa.int64())])
    fields = [
        pa.schema([pa.field("n", pa.int64(), nullable=False)]),
        pa.schema([pa.field("n", pa.int64(), metadata={"unit": "ms"})]),
        plain.with_metadata({"unit": "ms"}),
    ]
    schemas = Schemas()
    assert len({schemas.id_of(TO, 0, 0, schema) for schema in [plain, *fields[:1]]}) == 2
    for schema in [plain, *fields]:
        made = pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=schema)
        back = pack((0, made), TO, schemas).unpack()[1]
        assert back.equals(made)
        assert back.schema.field("n").nullable == schema.field("n").nullable


def test_a_job_that_is_over_leaves_no_trace_but_the_schemas_themselves() -> None:
    schemas = Schemas()
    for job in range(100):
        for partition in range(10):
            schemas.id_of(f"job~{job}/count/{partition}", 0, 0, batch().schema)
        schemas.forget_job(f"job~{job}")
    assert len(schemas.by_id) == len(schemas.texts) == 1
    assert not schemas._last


def test_a_payload_can_be_sent_on_by_somebody_who_cannot_read_it() -> None:
    cls = dynamic_class()
    packed = pack((0, cls(5)), TO, Schemas())
    frames = [bytes(frame) for frame in packed.frames]
    assert PackedPayload(packed.head, frames, Schemas()).unpack()[1].count == 5


def test_an_object_stays_of_the_class_that_a_worker_got_with_the_job() -> None:
    cls = cloudpickle.loads(cloudpickle.dumps(dynamic_class()))  # as the job brings it
    back = pack(cls(5), TO, Schemas()).unpack()
    assert type(back) is cls


class Unpicklable:
    """Refuses."""

    def __reduce__(self) -> Any:
        raise RuntimeError("I stay here")


@pytest.mark.parametrize("payload", [(0, Unpicklable()), (0, (n for n in range(3))), Unpicklable()])
def test_what_cannot_be_pickled_is_refused_when_it_is_packed(payload: Any) -> None:
    with pytest.raises((RuntimeError, TypeError)):
        pack(payload, TO, Schemas())
